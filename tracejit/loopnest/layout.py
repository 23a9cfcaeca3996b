"""The iteration domain of a fused kernel, derived from the shapes in its body.

The first reduction determines the kept and the reduced dimensions; without a reduction, the shape of the
first output is kept. Dimensions are split as finely as in any array of the same size, so that reshapes inside
the body remain index maps:

    y = x.reshape(4, 30) + z          # x: (4, 5, 6), so the domain is (4, 5, 6) and y is a view over it
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import functools
import math
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import REDUCTION
from tracejit.ir.view import View, contiguous_strides
from tracejit.loopnest.program import Domain


def reduced_axes(node: Node) -> tuple[int, ...]:
    """Return the axes that a reduction or scan runs over."""
    return tuple(node.attrs["axes"]) if "axes" in node.attrs else (node.attrs["axis"],)


def is_fold(node: Node) -> bool:
    """Return whether the node runs over reduced dimensions: a reduction, argmax, argmin or a scan."""
    return REDUCTION in node.op.traits or bool(node.op.along)


def keeps_order(fold: Node) -> bool:
    """Return whether a kernel whose domain `fold` determines reads the operand of `fold` in memory order."""
    shape, axes = fold.inputs[0].type.shape, reduced_axes(fold)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    return View.of_shape(shape).permute([*kept, *axes]).is_contiguous()


class Rows(NamedTuple):
    """The iteration range of a kernel's first reduction, which determines its domain: an array's shape and
    some of its axes.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    def broadcast_view(self) -> View:
        """Return the view of the reduction's results that shows each result at all elements that were
        reduced to it.

        >>> Rows((3, 4), (1,)).broadcast_view()
        View(offset=0, shape=(3, 4), strides=(1, 0))
        """
        strides, step = [0] * len(self.shape), 1
        for axis in reversed(range(len(self.shape))):
            if axis not in self.axes:
                strides[axis], step = step, step * self.shape[axis]
        return View(0, self.shape, tuple(strides))

    def domain(self) -> Domain:
        """Return the domain of a kernel that consists of the reduction only."""
        kept = [extent for axis, extent in enumerate(self.shape) if axis not in self.axes]
        return Domain(tuple(kept), tuple([self.shape[axis] for axis in self.axes]))

    def reduces(self, node: Node) -> bool:
        """Return whether `node` is a reduction over the same shape and axes."""
        return (
            REDUCTION in node.op.traits
            and not node.attrs.get("pieces", 0)
            and (node.inputs[0].type.shape, reduced_axes(node)) == self
        )


def rows_of(fold: Node) -> Rows | None:
    """Return the range of `fold`, or None if it has as many results as operands."""
    rows = Rows(fold.inputs[0].type.shape, reduced_axes(fold))
    return rows if math.prod(rows.shape) > math.prod(fold.output.type.shape) > 0 else None


@functools.lru_cache(maxsize=1024)
def _split(extents: tuple[int, ...], strides: tuple[int, ...], shapes: tuple[tuple[int, ...], ...]) -> View:
    """Return the dimensions split wherever some contiguous array of the same size has a boundary.
    Dimensions of extent 1 are removed.
    """
    boundaries = {u for shape in shapes for u in accumulate(reversed(shape), lambda a, b: a * b) if u}
    new_extents: list[int] = []
    new_strides: list[int] = []
    for extent, stride in zip(extents, strides, strict=True):
        if extent == 1:
            continue
        inside = {u // stride for u in boundaries if stride < u < stride * extent and u % stride == 0}
        sizes = [extent]  # of the blocks between boundaries, outermost first, in elements
        sizes += [size for size in sorted(inside, reverse=True) if extent % size == 0]
        sizes = [s for n, s in enumerate(sizes) if n == 0 or all(t % s == 0 for t in sizes[:n])]
        for size, inner in zip(sizes, [*sizes[1:], 1], strict=True):
            new_extents.append(size // inner)
            new_strides.append(stride * inner)
    return View(0, tuple(new_extents), tuple(new_strides))


DomainLayout = tuple[Domain, View, View]
"""A domain, and the natural views over it of values of the full size and of the kept size."""


def layouts(body: Graph) -> Iterator[DomainLayout]:
    """Yield the layouts that a kernel of `body` may have, best first.

    Without a reduction, any shape of the right size in the body is a layout if all index maps are affine
    over it. Apart from their size, the layouts do not depend on which values are outputs: a body that is
    fusible stays fusible when fewer of its values are needed outside.
    """
    fold = next(filter(is_fold, body.nodes), None)
    if fold is not None:
        yield _reduction_layout(body, fold)
        return
    first = _stored(body, body.outputs[0]).type.shape
    size = math.prod(first)
    if not size:
        natural = View.of_shape(first)
        yield Domain(natural.shape, ()), natural, natural
        return
    shapes = _shapes(body, size)
    for shape in dict.fromkeys([first, *shapes]):
        natural = _split(shape, contiguous_strides(shape), shapes)
        yield Domain(natural.shape, ()), natural, natural


def _reduction_layout(body: Graph, fold: Node) -> DomainLayout:
    """Return the layout of a body whose first reduction is `fold`."""
    (x,) = fold.inputs
    axes, pieces = reduced_axes(fold), fold.attrs.get("pieces", 0)
    kept = [a for a in range(x.type.ndim) if a not in axes]
    operand, result = View.of_shape(x.type.shape), View.of_shape([x.type.shape[a] for a in kept])
    if not operand.size:
        reduced = operand.permute(axes)
        domain = Domain(result.shape, reduced.shape, pieces)
        return (
            domain,
            operand.permute([*kept, *axes]),
            View(0, domain.shape, result.strides + (0,) * len(axes)),
        )
    shapes = _shapes(body, operand.size)
    outer = _split(*_pair(operand.permute(kept)), shapes)
    inner = _split(*_pair(operand.permute(axes)), shapes)
    domain = Domain(outer.shape, inner.shape, pieces)
    full = View(0, domain.shape, outer.strides + inner.strides)
    return domain, full, View(0, domain.shape, contiguous_strides(outer.shape) + (0,) * len(inner.shape))


def _pair(view: View) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return view.shape, view.strides


def _shapes(body: Graph, size: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of all arrays of `size` elements in the body, in order of appearance."""
    shapes: dict[tuple[int, ...], None] = {}
    types = [v.type for v in body.inputs]
    types += [v.type for node in body.nodes for v in node.outputs]
    for type in types:
        if type.shape not in shapes and type.size == size and not type.on_host:
            shapes[type.shape] = None
    return tuple(shapes)


def _stored(body: Graph, output: Value) -> Value:
    """Return the value that is computed for an output: the new elements if the output is an update."""
    node = next((n for n in body.nodes if output in n.outputs), None)
    return node.inputs[1] if node is not None and node.op is ops.update else output
