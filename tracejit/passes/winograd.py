"""Lowering of convolutions by 3 x 3 windows, and of their gradients, to Winograd convolution.

    %2: float32[32,64,32,32] = conv2d(%0, %1) [padding=((1, 1), (1, 1)), ...]
        =>
    %3: float32[1,16,64,64] = winograd_weights(%1, %0) [stride=1, transposed=False]
    %2: float32[32,64,32,32] = winograd_conv2d(%0, %3) [filters=64, padding=((1, 1), (1, 1)), stride=1]

A tile of 2 x 2 outputs needs 16 multiplications instead of 36; with a stride of 2 it needs 25. The error is
at most that of a sum in the same precision (see docs/decisions/65-winograd.md and 88); larger tiles would
need fewer multiplications but have larger errors. Because transforms subtract elements of a tile from one
another, an infinite element makes all outputs of the tiles that read it nan, where direct convolution has
infinities.

The pass applies where it is profitable: stride 1 or 2, dilation 1, one group, enough channels and filters for
matrix products, enough tiles to amortise the transform of the weights, and extents that tiles divide without
much waste. The gradient with respect to images of a strided convolution is lowered only if the padding before
the images is one element.
"""

from __future__ import annotations

from collections.abc import Callable

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import Op
from tracejit.ir.types import ArrayType, name_of
from tracejit.kernels.images.windows import ENTRIES
from tracejit.kernels.images.winograd_plan import LANES, SCHEMES, SPREAD, WINDOW_SIDE
from tracejit.kernels.split import ceil_div
from tracejit.tuning import tuning_of

MIN_CHANNELS = LANES
"""The least number of channels and of filters: with fewer, most lanes of a vector would be idle."""

MIN_TILES = 24
"""The least number of tiles: with fewer, transforming the weights costs as much as it saves."""

MAX_TILE_RATIO = {1: 1.6, 2: 1.2}
"""The greatest ratio, by stride, of the elements of all tiles to those of the images that they cover."""

MAX_WIDTH = 512
"""The greatest width of an image such that a row of tiles fits in scratch memory."""

Replacement = Callable[[Node, "Weights"], list[Node]]


class Weights:
    """The transformed weights of a graph, each of which is computed once."""

    def __init__(self) -> None:
        self.known: dict[tuple[Value, bool, int], Value] = {}

    def of(self, w: Value, transposed: bool, node: Node) -> tuple[list[Node], Value]:
        """Return the nodes that transform `w` for the convolution `node`, if not known, and the result."""
        stride = node.attrs["stride"][0]
        transformed = self.known.get((w, transposed, stride))
        if transformed is not None:
            return [], transformed
        operands = (w, node.inputs[0])
        transform = _node(ops.winograd_weights, operands, None, node, transposed=transposed, stride=stride)
        self.known[w, transposed, stride] = transform.output
        return [transform], transform.output


def winograd(graph: Graph) -> Graph:
    """Replace convolutions and their gradients in `graph` where that is profitable."""
    if not any(node.op in _REPLACED for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    weights = Weights()
    for node in graph.nodes:
        replace = _REPLACED.get(node.op)
        nodes += replace(node, weights) if replace is not None and _is_profitable(node) else [node]
    return Graph(graph.inputs, tuple(nodes), graph.outputs, graph.effects)


def _is_profitable(node: Node) -> bool:
    attrs, second, result = node.attrs, node.inputs[1].type, node.output.type
    weight = result if node.op is ops.conv2d_weight_gradient else second
    return (
        "winograd" in tuning_of(result.device).passes
        and name_of(result.dtype) in ENTRIES
        and weight.shape[2:] == (WINDOW_SIDE, WINDOW_SIDE)
        and attrs["stride"] in [(stride, stride) for stride in SCHEMES]
        and attrs["dilation"] == (1, 1)
        and attrs["groups"] == 1
        and all(n < WINDOW_SIDE for pair in attrs["padding"] for n in pair)
        and min(weight.shape[:2]) >= MIN_CHANNELS
        and _fits(node, attrs["stride"][0])
    )


def _fits(node: Node, stride: int) -> bool:
    """Whether there are enough tiles, and few of their elements are beyond the borders."""
    tiled_shape, scheme = node.output.type.shape, SCHEMES[stride]
    if node.op is ops.conv2d_weight_gradient:
        tiled_shape = node.inputs[1].type.shape
    elif node.op is ops.conv2d_input_gradient and stride > 1:
        if any(before != 1 for before, _ in node.attrs["padding"]):
            return False
        scheme = SPREAD
    images, _, height, width = tiled_shape
    side = scheme.tile
    tiles = images * ceil_div(height, side) * ceil_div(width, side)
    return (
        tiles >= MIN_TILES
        and tiles * side * side <= MAX_TILE_RATIO[stride] * images * height * width
        and side <= width <= MAX_WIDTH
    )


def _convolution(node: Node, weights: Weights) -> list[Node]:
    x, w = node.inputs
    transforms, u = weights.of(w, False, node)
    attrs = {"padding": node.attrs["padding"], "filters": w.type.shape[0], "stride": node.attrs["stride"][0]}
    return [*transforms, _node(ops.winograd_conv2d, (x, u), node.output, node, **attrs)]


def _input_gradient(node: Node, weights: Weights) -> list[Node]:
    y, w = node.inputs
    transforms, u = weights.of(w, True, node)
    attrs = {"padding": node.attrs["padding"], "filters": w.type.shape[1]}
    if node.attrs["stride"] != (1, 1):
        attrs["extents"] = node.attrs["extents"]
        return [*transforms, _node(ops.winograd_input_gradient, (y, u), node.output, node, **attrs)]
    padding = tuple([tuple([WINDOW_SIDE - 1 - n for n in pair]) for pair in node.attrs["padding"]])
    attrs |= {"padding": padding, "stride": 1}
    return [*transforms, _node(ops.winograd_conv2d, (y, u), node.output, node, **attrs)]


def _weight_gradient(node: Node, weights: Weights) -> list[Node]:
    stride = node.attrs["stride"][0]
    padding, filters = node.attrs["padding"], node.output.type.shape[0]
    sums = _node(ops.winograd_weight_sums, node.inputs, None, node, padding=padding, stride=stride)
    return [
        sums,
        _node(
            ops.winograd_weight_gradient, (sums.output,), node.output, node, filters=filters, stride=stride
        ),
    ]


def _node(op: Op, inputs: tuple[Value, ...], output: Value | None, node: Node, **attrs: object) -> Node:
    """Create a node with the location of `node`, and with a new output unless `output` is not None."""
    if output is None:
        inferred: ArrayType = op.infer(*[v.type for v in inputs], **attrs)
        output = Value(inferred)
    return Node(op, inputs, (output,), attrs, node.location)


_REPLACED: dict[Op, Replacement] = {
    ops.conv2d: _convolution,
    ops.conv2d_input_gradient: _input_gradient,
    ops.conv2d_weight_gradient: _weight_gradient,
}
