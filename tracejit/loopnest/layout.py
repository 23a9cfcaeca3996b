"""The dimensions that a fused kernel iterates over, from the shapes in its body.

The first reduction says what is kept and what is reduced; without one, the shape of the first output is
kept. Dimensions are cut as finely as any array of the same size has them, so that reshapes inside the
body stay index maps:

    y = x.reshape(4, 30) + z          # x: (4, 5, 6), so the domain is (4, 5, 6) and y is one view of it
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
    """The axes that a reduction or scan runs over."""
    return tuple(node.attrs["axes"]) if "axes" in node.attrs else (node.attrs["axis"],)


def is_fold(node: Node) -> bool:
    """Whether the node runs over reduced dimensions: a reduction, argmax, argmin or a scan."""
    return REDUCTION in node.op.traits or bool(node.op.along)


def keeps_order(fold: Node) -> bool:
    """Whether a kernel that `fold` lays out reads its operand in the order of memory."""
    shape, axes = fold.inputs[0].type.shape, reduced_axes(fold)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    return View.of_shape(shape).permute([*kept, *axes]).is_contiguous()


class Rows(NamedTuple):
    """The range of a kernel's first reduction, which lays it out: some axes of an array."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    def spread(self) -> View:
        """The results of the reduction, each seen wherever an element went into it.

        >>> Rows((3, 4), (1,)).spread()
        View(offset=0, shape=(3, 4), strides=(1, 0))
        """
        strides, step = [0] * len(self.shape), 1
        for axis in reversed(range(len(self.shape))):
            if axis not in self.axes:
                strides[axis], step = step, step * self.shape[axis]
        return View(0, self.shape, tuple(strides))

    def domain(self) -> Domain:
        """The domain of a kernel that is no more than the reduction."""
        kept = [extent for axis, extent in enumerate(self.shape) if axis not in self.axes]
        return Domain(tuple(kept), tuple([self.shape[axis] for axis in self.axes]))

    def reduces(self, node: Node) -> bool:
        """Whether `node` is a reduction over the same."""
        return (
            REDUCTION in node.op.traits
            and not node.attrs.get("pieces", 0)
            and (node.inputs[0].type.shape, reduced_axes(node)) == self
        )


def rows_of(fold: Node) -> Rows | None:
    """The range of `fold`; None if its results are as many as its operands."""
    rows = Rows(fold.inputs[0].type.shape, reduced_axes(fold))
    return rows if math.prod(rows.shape) > math.prod(fold.output.type.shape) > 0 else None


@functools.lru_cache(maxsize=1024)
def _split(extents: tuple[int, ...], strides: tuple[int, ...], shapes: tuple[tuple[int, ...], ...]) -> View:
    """Dimensions cut where some contiguous array of the same size has a boundary; those of extent 1
    vanish.
    """
    boundaries = {u for shape in shapes for u in accumulate(reversed(shape), lambda a, b: a * b) if u}
    new_extents: list[int] = []
    new_strides: list[int] = []
    for extent, stride in zip(extents, strides, strict=True):
        if extent == 1:
            continue
        inside = {u // stride for u in boundaries if stride < u < stride * extent and u % stride == 0}
        sizes = [extent]  # of the parts still to be cut, outermost first, in elements
        sizes += [size for size in sorted(inside, reverse=True) if extent % size == 0]
        sizes = [s for n, s in enumerate(sizes) if n == 0 or all(t % s == 0 for t in sizes[:n])]
        for size, inner in zip(sizes, [*sizes[1:], 1], strict=True):
            new_extents.append(size // inner)
            new_strides.append(stride * inner)
    return View(0, tuple(new_extents), tuple(new_strides))


Layout = tuple[Domain, View, View]
"""A domain, and the views over it that values of the full and of the kept size have by nature."""


def layouts(body: Graph) -> Iterator[Layout]:
    """Layouts that a kernel of `body` may have, best first.

    Without a reduction, any shape of the right size in the body will do if all index maps can be
    written over it. That does not depend on which values are outputs, apart from their size: a body
    that works keeps working when fewer of its values are needed outside.
    """
    fold = next(filter(is_fold, body.nodes), None)
    if fold is not None:
        yield _reduction_layout(body, fold)
        return
    first = _stored(body, body.outputs[0]).type.shape
    size = math.prod(first)
    if not size:
        home = View.of_shape(first)
        yield Domain(home.shape, ()), home, home
        return
    shapes = _shapes(body, size)
    for shape in dict.fromkeys([first, *shapes]):
        home = _split(shape, contiguous_strides(shape), shapes)
        yield Domain(home.shape, ()), home, home


def _reduction_layout(body: Graph, fold: Node) -> Layout:
    """The domain of a body whose first reduction is `fold`."""
    (x,) = fold.inputs
    axes, pieces = reduced_axes(fold), fold.attrs.get("pieces", 0)
    kept = [a for a in range(x.type.ndim) if a not in axes]
    whole, rest = View.of_shape(x.type.shape), View.of_shape([x.type.shape[a] for a in kept])
    if not whole.size:
        reduced = whole.permute(axes)
        domain = Domain(rest.shape, reduced.shape, pieces)
        return domain, whole.permute([*kept, *axes]), View(0, domain.shape, rest.strides + (0,) * len(axes))
    shapes = _shapes(body, whole.size)
    outer = _split(*_pair(whole.permute(kept)), shapes)
    inner = _split(*_pair(whole.permute(axes)), shapes)
    domain = Domain(outer.shape, inner.shape, pieces)
    full = View(0, domain.shape, outer.strides + inner.strides)
    return domain, full, View(0, domain.shape, contiguous_strides(outer.shape) + (0,) * len(inner.shape))


def _pair(view: View) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return view.shape, view.strides


def _shapes(body: Graph, size: int) -> tuple[tuple[int, ...], ...]:
    """Shapes of all arrays of `size` elements in the body, in order of appearance."""
    shapes: dict[tuple[int, ...], None] = {}
    types = [v.type for v in body.inputs]
    types += [v.type for node in body.nodes for v in node.outputs]
    for type in types:
        if type.shape not in shapes and type.size == size and not type.on_host:
            shapes[type.shape] = None
    return tuple(shapes)


def _stored(body: Graph, output: Value) -> Value:
    """The value computed for an output: the new elements, if it is an update."""
    node = next((n for n in body.nodes if output in n.outputs), None)
    return node.inputs[1] if node is not None and node.op is ops.update else output
