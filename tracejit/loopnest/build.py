"""Construction of the loop program of a fused kernel from its body.

`trace` follows the body from its outputs to its inputs and demands every value *at a view*: the map from the
domain's index to an element of the value. View nodes are absorbed into these maps.

    y = exp(x - view(max(x)))      # domain kept (m,), reduced (n,)
      load x      at 0+[m,n]:[n,1]       level FULL
      reduce max  of the load            level KEPT: the same for all reduced indices
      apply subtract, apply exp          level FULL

A reduction or an expensive function may be demanded at one view only, so nothing expensive is computed twice.
`trace` raises `Unfusable` with the reason if a body does not fit. The fusion pass relies on this to test
candidate groups; code generation traces the final group again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value, producers_of
from tracejit.ir.op import ELEMENTWISE, EXPENSIVE, REDUCTION, Op, Trait
from tracejit.ir.view import View, contiguous_strides
from tracejit.loopnest.layout import DomainLayout, is_fold, layouts, reduced_axes
from tracejit.loopnest.program import (
    APPLY,
    CHECK,
    FULL,
    GATHER,
    HOST,
    INDEX,
    KEPT,
    LOAD,
    MATCH,
    NUMBER,
    REDUCE,
    SCAN,
    Domain,
    Level,
    LoopProgram,
    OutputStore,
    Term,
    TermKind,
    Unfusable,
    merge,
    piece_length,
    row_tile,
)
from tracejit.loopnest.regions import Region, disjoint
from tracejit.tuning import tuning_of_values

INT64 = np.dtype("int64")


def trace(body: Graph) -> LoopProgram:
    """Return the body as terms over one domain, with as few dimensions as possible. Raise `Unfusable` if
    there is none.
    """
    reasons = []
    for layout in layouts(body):
        try:
            return _traced(body, layout)
        except Unfusable as error:
            reasons.append(str(error))  # the exception would keep its traceback's frames alive
    raise Unfusable(reasons[0])


def _traced(body: Graph, layout: DomainLayout) -> LoopProgram:
    """Return the program over one layout."""
    tracer = _Tracer(body, *layout)
    stores = tuple(s for position, value in enumerate(body.outputs) for s in tracer.stores(position, value))
    terms, tuning = tuple(tracer.terms), tuning_of_values((*body.inputs, *body.outputs))
    program = merge(LoopProgram(tracer.domain, terms, stores, tracer.matmul, tuning))
    if program.domain.pieces:
        piece_length(program.domain)
    if program.matmul is not None:
        row_tile(program)
    return program


class _Tracer:
    """Creates terms on demand, one for each value and view."""

    def __init__(self, body: Graph, domain: Domain, full: View, kept: View):
        self.body, self.domain, self.full, self.kept = body, domain, full, kept
        self.terms: list[Term] = []
        self.matmul: Node | None = None
        self.producers = producers_of(body.nodes)
        self.kept_size, self.full_size = math.prod(domain.kept), math.prod(domain.shape)
        self.inputs = {value: i for i, value in enumerate(body.inputs)}
        self.terms_by_value: dict[Value, list[tuple[View, Term]]] = {}
        self.views: dict[Value, View] = {}  # of values that must not be computed at two views
        # The shape and the axes of the reduction that determines the domain.
        self.rows: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        if domain.reduced:
            fold = next(filter(is_fold, body.nodes))
            self.rows = fold.inputs[0].type.shape, reduced_axes(fold)

    # -------------------------------------------------------------------------------------------- outputs

    def stores(self, position: int, output: Value) -> Iterator[OutputStore]:
        """Yield the stores of one output of the body: a single store, or one for each update in a chain."""
        updates: list[Node] = []
        base = output
        while base in self.producers and self.producers[base].op is ops.update:
            updates.append(self.producers[base])
            base = updates[-1].inputs[0]
        if not updates:
            yield self.store(position, output)
            return
        if base not in self.inputs:
            raise Unfusable("update writes into an input of the kernel only")
        written: list[Region] = []
        for node in reversed(updates):
            view: View = node.attrs["view"]
            region = Region(view, base.type.shape)
            if not all(map(region.is_apart, written)):
                raise Unfusable("updates of one array overlap")
            written.append(region)
            store = self.store(position, node.inputs[1])
            yield store._replace(view=self.compose(view, store.view, node), base=self.inputs[base])

    def store(self, position: int, value: Value) -> OutputStore:
        """Return the store of `value` at its natural view."""
        natural = self.natural_view(value)
        term = self.demand(value, natural)
        view = self.partial_view(term, natural) if self.domain.pieces else natural
        return OutputStore(position, term, view, max(term.level, self.domain.level(natural)))

    def partial_view(self, term: Term, natural: View) -> View:
        """Return the view of partial results: those of kept index k start at ``k * pieces``; lowering adds
        the piece.
        """
        if natural is self.full:
            return natural
        if term.kind is not REDUCE:
            raise Unfusable("a kernel of partial results stores nothing else of the kept shape")
        return View(0, natural.shape, tuple(s * self.domain.pieces for s in natural.strides))

    def natural_view(self, value: Value) -> View:
        """Return the natural view of `value`: its elements in the order of the domain."""
        size, pieces = value.type.size, self.domain.pieces
        if size == self.kept_size * max(1, pieces) and is_partial(self.producers.get(value)) == (pieces > 1):
            return self.kept
        if size == self.full_size:
            return self.full
        raise Unfusable(f"{value.type} fits neither the kept nor the full shape of the kernel")

    # -------------------------------------------------------------------------------------------- values

    def demand(self, value: Value, view: View) -> Term:
        """Return the term of `value` at `view`."""
        known = self.terms_by_value.get(value)
        if known is None:
            known = self.terms_by_value[value] = []
        else:
            for seen, term in known:
                if seen is view or seen == view or value.type.on_host:
                    return term
        term = self.build(value, view)
        known.append((view, term))
        return term

    def build(self, value: Value, view: View) -> Term:
        node = self.producers.get(value)
        if node is not None:
            return _term_builder(node.op)(self, node, view)
        if value.type.on_host:
            return self.add(NUMBER, value.type.dtype, HOST, value=value)
        return self.load(value, view, value)

    def load(self, value: Value, view: View, source: Value) -> Term:
        """Return a read at `view` of `source`, of which `value` is a view. An empty value is read in a
        loop without iterations, at an offset that moves along the loop, so that the read is not hoisted.
        """
        if not (value.type.size or self.full_size) and self.kept_size:
            return self.add(LOAD, value.type.dtype, FULL, value=source, view=self.full)
        return self.add(LOAD, value.type.dtype, self.domain.level(view), value=source, view=view)

    def add(
        self,
        kind: TermKind,
        dtype: np.dtype,
        level: Level,
        args: Sequence[Term] = (),
        value: Value | None = None,
        view: View | None = None,
        function: str | None = None,
        node: Node | None = None,
        stride: int = 0,
        bound: int = 0,
    ) -> Term:
        for argument in args:
            if argument.level > level:
                level = argument.level
        term = Term(kind, dtype, level, tuple(args), value, view, function, node, stride, bound)
        self.terms.append(term)
        return term

    def compose(self, inner: View, outer: View, node: Node) -> View:
        view = inner.compose(outer)
        if view is None:
            raise Unfusable(f"{node.op.name} {inner} is no affine index map over the kernel's domain")
        return view

    def check_single_view(self, node: Node, view: View) -> None:
        """Raise `Unfusable` if an expensive node is demanded at a second view."""
        if self.views.setdefault(node.output, view) != view:
            raise Unfusable(f"{node.op.name} is needed at two different index maps")

    def elementwise(self, node: Node, view: View) -> Term:
        args, level = [], HOST
        for value in node.inputs:
            term = self.demand(value, view)
            args.append(term)
            if term.level > level:
                level = term.level
        term = Term(APPLY, node.outputs[0].type.dtype, level, tuple(args), None, None, node.op.kernel, node)
        self.terms.append(term)
        return term

    def expensive(self, node: Node, view: View) -> Term:
        """Return the term of an elementwise node that must be computed only once for each of its elements."""
        if not node.output.type.on_host:
            self.check_single_view(node, view)
            self.check_not_repeated(node, view)
        return self.elementwise(node, view)

    def unfusable(self, node: Node, view: View) -> Term:
        raise Unfusable(f"{node.op.name} cannot be part of a fused kernel")

    def check_not_repeated(self, node: Node, view: View) -> None:
        """Raise `Unfusable` if a broadcast would compute an expensive node repeatedly."""
        last = max((d for d, stride in enumerate(view.strides) if stride), default=-1)
        if math.prod(self.domain.shape[: last + 1]) > node.output.type.size:
            raise Unfusable(f"broadcasting {node.op.name} would compute it many times")

    def view(self, node: Node, view: View) -> Term:
        """Return the term of an element of an array. Updates of other elements are skipped."""
        (x,), seen = node.inputs, node.attrs["view"]
        while (update := self.producers.get(x)) is not None and update.op is ops.update:
            if not disjoint(update.attrs["view"], seen, x.type.shape):
                raise Unfusable("a kernel does not read what it stores")
            x = update.inputs[0]
        return self.demand(x, self.compose(seen, view, node))

    def full_of(self, node: Node, view: View) -> Term:
        return self.demand(node.inputs[0], view)

    def iota(self, node: Node, view: View) -> Term:
        return self.add(INDEX, INT64, self.domain.level(view), view=view)

    def matmul_result(self, node: Node, view: View) -> Term:
        if view != self.full or not view.is_contiguous():
            raise Unfusable("an epilogue reads the product at its own index only")
        self.matmul = node
        return self.add(LOAD, node.output.type.dtype, self.domain.level(view), value=node.output, view=view)

    def check_index(self, node: Node, view: View) -> Term:
        (index,) = node.inputs
        extent = node.attrs["extent"]
        moving = [d for d, stride in enumerate(view.strides) if stride]
        if not view.permute(moving).covers(index.type.shape):
            raise Unfusable("a kernel checks all of an index, or none of it")
        linear = self.add(INDEX, INT64, self.domain.level(view), view=view)
        return self.add(CHECK, INT64, HOST, [self.demand(index, view), linear], bound=extent, node=node)

    def gather(self, node: Node, view: View) -> Term:
        """Return element ``x[before, index[middle], after]``. `view` consists of three affine groups of
        dimensions.
        """
        x, index = node.inputs
        axis = node.attrs["axis"]
        base, source = self.source(x)
        if not x.type.size:
            return self.load(x, view, source)
        before, after = base.shape[:axis], base.shape[axis + 1 :]
        groups = (math.prod(before), index.type.size, math.prod(after))
        group_views = [
            self.compose(View(0, groups, tuple(int(g == group) for g in range(3))), view, node)
            for group in range(3)
        ]
        fixed = [
            self.compose(View(0, extents, strides), group_view, node)
            for extents, strides, group_view in (
                (before, base.strides[:axis], group_views[0]),
                (after, base.strides[axis + 1 :], group_views[2]),
            )
        ]
        moves = tuple(a + b for a, b in zip(fixed[0].strides, fixed[1].strides, strict=True))
        element = View(base.offset + fixed[0].offset + fixed[1].offset, view.shape, moves)
        return self.add(
            GATHER,
            x.type.dtype,
            self.domain.level(element),
            [self.demand(index, group_views[1])],
            value=source,
            view=element,
            node=node,
            stride=base.strides[axis],
        )

    def source(self, x: Value) -> tuple[View, Value]:
        """Return the input that `x` is a view of, and the view."""
        view = View.of_shape(x.type.shape)
        while x not in self.inputs:
            node = self.producers[x]
            if node.op is not ops.view:
                raise Unfusable("gather reads an input of the kernel only")
            view, (x,) = self.compose(node.attrs["view"], view, node), node.inputs
        return view, x

    # -------------------------------------------------------------------------------------------- folds

    def operand_view(self, node: Node, view: View) -> View:
        """Return the view at which the operand of a reduction is read if its result is demanded at `view`."""
        (x,) = node.inputs
        axes = reduced_axes(node)
        if view is self.kept and (x.type.shape, axes) == self.rows:
            return self.full
        kept = [a for a in range(x.type.ndim) if a not in axes]
        dims = len(self.domain.kept)
        operand = View.of_shape(x.type.shape)
        if any(view.strides[dims:]):
            raise Unfusable(f"{node.op.name} reduces other dimensions than the kernel does")
        inner = operand.permute(axes)
        along = (
            View(0, inner.shape, inner.strides).reshape(self.domain.reduced)
            if (inner.size == math.prod(self.domain.reduced))
            else None
        )
        if along is None:
            raise Unfusable(
                f"{node.op.name} over {inner.shape} in a kernel that reduces {self.domain.reduced}"
            )
        outer = self.compose(
            operand.permute(kept), View(view.offset, view.shape[:dims], view.strides[:dims]), node
        )
        return View(outer.offset, self.domain.shape, outer.strides + along.strides)

    def reduction(self, node: Node, view: View) -> Term:
        self.check_single_view(node, view)
        if node.attrs.get("pieces", 0) != self.domain.pieces:
            raise Unfusable("a kernel does not mix partial and complete reductions")
        operand = self.demand(node.inputs[0], self.operand_view(node, view))
        if node.op.along:
            return self.position(node, operand, node.op.along)
        return self.reduce(node, node.op.name, operand, node.output.type.dtype)

    def reduce(self, node: Node, function: str, operand: Term, dtype: np.dtype) -> Term:
        term = Term(REDUCE, dtype, KEPT, (operand,), function=function, node=node)
        self.terms.append(term)
        return term

    def position(self, node: Node, operand: Term, function: str) -> Term:
        """Return the terms of argmax or argmin: first the extreme value, then the smallest index at which
        it occurs.
        """
        extreme = self.reduce(node, function, operand, operand.dtype)
        reduced = self.domain.reduced
        along = View(0, self.domain.shape, (0,) * len(self.domain.kept) + contiguous_strides(reduced))
        index = self.add(INDEX, INT64, self.domain.level(along), view=along)
        match = self.add(MATCH, INT64, HOST, [operand, extreme, index], bound=math.prod(reduced), node=node)
        return self.reduce(node, "min", match, INT64)

    def scan(self, node: Node, view: View) -> Term:
        self.check_single_view(node, view)
        is_empty = not (self.full_size or node.output.type.size)
        if not is_empty and (view != self.full or self.domain.pieces or not self.runs_along(node)):
            raise Unfusable(f"{node.op.name} is computed in its own order only")
        operand = self.demand(node.inputs[0], view)
        return self.add(SCAN, node.output.type.dtype, FULL, [operand], function=node.op.name, node=node)

    def runs_along(self, scan: Node) -> bool:
        """Return whether the reduced dimensions are the axis of `scan`, with its result demanded at the
        full view.
        """
        operand, reduced = View.of_shape(scan.inputs[0].type.shape), self.domain.reduced
        along = operand.permute(reduced_axes(scan))
        if along.size != math.prod(reduced):
            return False
        steps = View(0, along.shape, along.strides).reshape(reduced)
        dims, strides = len(self.domain.kept), steps.strides if steps is not None else None
        return strides == self.full.strides[dims:]


def is_partial(node: Node | None) -> bool:
    """Return whether `node` is a reduction into pieces."""
    return node is not None and bool(node.attrs.get("pieces", 0))


_BY_OPERATOR: dict[Op, Callable[[_Tracer, Node, View], Term]] = {
    ops.view: _Tracer.view,
    ops.full: _Tracer.full_of,
    ops.iota: _Tracer.iota,
    ops.matmul: _Tracer.matmul_result,
    ops.check_index: _Tracer.check_index,
    ops.gather: _Tracer.gather,
}
"""Operators that are index maps, or have a term kind of their own."""


@functools.cache
def _term_builder(op: Op) -> Callable[[_Tracer, Node, View], Term]:
    """Return the method that builds the term of an element of a node of this operator."""
    if op in _BY_OPERATOR:
        return _BY_OPERATOR[op]
    if Trait.SCAN in op.traits:
        return _Tracer.scan
    if REDUCTION in op.traits or op.along:
        return _Tracer.reduction
    if ELEMENTWISE in op.traits:
        return _Tracer.expensive if EXPENSIVE in op.traits else _Tracer.elementwise
    return _Tracer.unfusable


def is_generated(op: Op) -> bool:
    """Return whether a kernel can be generated for a node of this operator: from terms, or from the stores
    of an update.
    """
    return op is ops.update or _term_builder(op) is not _Tracer.unfusable
