"""Convolutions by 3 x 3 windows, and their gradients, with fewer multiplications.

    %2: float32[32,64,32,32] = conv2d(%0, %1) [padding=((1, 1), (1, 1)), ...]
        =>
    %3: float32[1,16,64,64] = winograd_weights(%1, %0) [stride=1, transposed=False]
    %2: float32[32,64,32,32] = winograd_conv2d(%0, %3) [filters=64, padding=((1, 1), (1, 1)), stride=1]

Tiles of 2 x 2 places take 16 multiplications where the sums take 36; with a stride of 2 they take 25. Their
error is that of a sum in the same precision, or less (see docs/decisions/65-winograd.md and 88); larger tiles
would save more and err more. As tiles subtract elements from one another, an infinite element makes all
places of the tiles that see it nan, where a sum has infinities.

It is done where it pays off: stride 1 or 2, dilation 1, one group, enough channels and filters for
products, enough places to transform weights for, and tiles that fit. The gradient to images with a stride is
done for the usual padding by one element only.
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

LEAST = LANES
"""The least channels, and filters: with fewer, most lanes of a transform or a product would be idle."""

LEAST_TILES = 24
"""The least tiles: with fewer, transforming the weights takes as long as it saves."""

WASTE = {1: 1.6, 2: 1.2}
"""The most places of all tiles, by stride, as a multiple of those of the images."""

WIDEST = 512
"""Places in a row, the tiles of which fit in scratch memory."""

Replacement = Callable[[Node, "Weights"], list[Node]]


class Weights:
    """Transformed weights of a graph, each made once."""

    def __init__(self) -> None:
        self.known: dict[tuple[Value, bool, int], Value] = {}

    def of(self, w: Value, transposed: bool, node: Node) -> tuple[list[Node], Value]:
        """The node that makes them for the convolution `node`, unless there is one, and their value."""
        stride = node.attrs["stride"][0]
        found = self.known.get((w, transposed, stride))
        if found is not None:
            return [], found
        operands = (w, node.inputs[0])
        made = _node(ops.winograd_weights, operands, None, node, transposed=transposed, stride=stride)
        self.known[w, transposed, stride] = made.output
        return [made], made.output


def winograd(graph: Graph) -> Graph:
    """`graph` with convolutions replaced where that is worth it."""
    if not any(node.op in _REPLACED for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    weights = Weights()
    for node in graph.nodes:
        replace = _REPLACED.get(node.op)
        nodes += replace(node, weights) if replace is not None and _is_worth_it(node) else [node]
    return Graph(graph.inputs, tuple(nodes), graph.outputs, graph.effects)


def _is_worth_it(node: Node) -> bool:
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
        and min(weight.shape[:2]) >= LEAST
        and _fits(node, attrs["stride"][0])
    )


def _fits(node: Node, stride: int) -> bool:
    """Whether there are enough tiles, and few of their places lie beyond the borders."""
    places, scheme = node.output.type.shape, SCHEMES[stride]
    if node.op is ops.conv2d_weight_gradient:
        places = node.inputs[1].type.shape
    elif node.op is ops.conv2d_input_gradient and stride > 1:
        if any(before != 1 for before, _ in node.attrs["padding"]):
            return False
        scheme = SPREAD
    images, _, height, width = places
    side = scheme.tile
    tiles = images * ceil_div(height, side) * ceil_div(width, side)
    return (
        tiles >= LEAST_TILES
        and tiles * side * side <= WASTE[stride] * images * height * width
        and side <= width <= WIDEST
    )


def _convolution(node: Node, weights: Weights) -> list[Node]:
    x, w = node.inputs
    made, u = weights.of(w, False, node)
    attrs = {"padding": node.attrs["padding"], "filters": w.type.shape[0], "stride": node.attrs["stride"][0]}
    return [*made, _node(ops.winograd_conv2d, (x, u), node.output, node, **attrs)]


def _input_gradient(node: Node, weights: Weights) -> list[Node]:
    y, w = node.inputs
    made, u = weights.of(w, True, node)
    attrs = {"padding": node.attrs["padding"], "filters": w.type.shape[1]}
    if node.attrs["stride"] != (1, 1):
        attrs["extents"] = node.attrs["extents"]
        return [*made, _node(ops.winograd_input_gradient, (y, u), node.output, node, **attrs)]
    padding = tuple([tuple([WINDOW_SIDE - 1 - n for n in pair]) for pair in node.attrs["padding"]])
    attrs |= {"padding": padding, "stride": 1}
    return [*made, _node(ops.winograd_conv2d, (y, u), node.output, node, **attrs)]


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
    """A node at the place of `node`, with a new output unless that is given."""
    if output is None:
        inferred: ArrayType = op.infer(*[v.type for v in inputs], **attrs)
        output = Value(inferred)
    return Node(op, inputs, (output,), attrs, node.location)


_REPLACED: dict[Op, Replacement] = {
    ops.conv2d: _convolution,
    ops.conv2d_input_gradient: _input_gradient,
    ops.conv2d_weight_gradient: _weight_gradient,
}
