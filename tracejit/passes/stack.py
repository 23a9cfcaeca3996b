"""Sums along a loop: thin matrix products become one stacked product, sums of slices become stores.

    %6 = matmul(%0, %1)           # [256,16] @ [16,1024]
    %7 = matmul(%2, %3)       =>  %6 = matmul([%0 %2 ...], [%1; %3; ...])      # [256,64] @ [64,1024]
    %8 = add(%6, %7) ...

Such a sum is the gradient of a weight that a loop uses in every iteration. Each product is larger than both
its factors together, and adds a few terms to every element through memory. The stacked factors need less
memory than the products. The sum has the same terms but is rounded less often.

Only chains of additions are rewritten, which loops record. Shards of a batch are summed by a balanced tree,
which is kept: its result is bitwise that of ranks with one shard each.

The gradient of an array of which each iteration reads a slice is a sum of arrays that are zero except for a
slice. It becomes a sequence of stores of the slices into one array, which the iterations of a rolled loop can
execute. If the slices cover the array, it is not filled with zeros:

    add(update(0, a; left), update(0, b; right))   ->   update(update(empty, a + 0; left), b + 0; right)

Adding 0 preserves the bits of the sum: it turns -0.0 into 0.0.

Products are stacked if their factors have the same types and together are smaller than the result, if nothing
else reads them, and if all are read through the same view, as for the gradient of a transposed weight. Each
pair of factors is stored at the position of its product; the stacked product is at the position of the last
addition.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import functools
from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple

from tracejit import ops
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value, constant_of, producers_of
from tracejit.ir.types import HALVES, is_floating
from tracejit.ir.view import View
from tracejit.loopnest.regions import Regions
from tracejit.passes.dce import dce
from tracejit.passes.producers import is_zero

MIN_PRODUCTS = 4
"""The least number of products that are stacked: with three, copying the factors costs more than the sum."""

SLICES = "placed"
"""The key in `Sum.groups` of updates of zeros."""


class Summand(NamedTuple):
    """A product in a sum and the view of it that is added, if there is one; or an update of zeros."""

    node: Node
    view: Node | None = None


class Sum(NamedTuple):
    """The terms of a chain of additions whose intermediate results have no other readers.

    inner: the additions except the last. groups: the products to stack, by kind, or the updates of zeros.
    other_terms: the other terms.
    """

    inner: list[Node]
    groups: dict[Hashable, list[Summand]]
    other_terms: list[Value]


def stack(graph: Graph) -> Graph:
    """Rewrite sums of many thin products in `graph` as single products, and sums of slices as stores."""
    count = Counter(node.op for node in graph.nodes)
    if count[ops.matmul] < MIN_PRODUCTS and count[ops.update] < 2:
        return graph
    sums = _Sums(graph).search()
    return dce(_StackRewriter(graph, sums).run()) if sums else graph


class _Sums:
    """The search for sums in a graph."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.producers = producers_of(graph.nodes)
        self.uses = Counter(value for node in graph.nodes for value in node.inputs)
        self.uses.update(dict.fromkeys(graph.results(), 2))

    def search(self) -> dict[Node, Sum]:
        """The sums to rewrite, by their last addition."""
        sums: dict[Node, Sum] = {}
        covered: set[Node] = set()
        for node in reversed(self.graph.nodes):
            if node.op is ops.add and node not in covered:
                chain = self.sum_of(node)
                covered.update(chain.inner)
                if chain.groups:
                    sums[node] = chain
        return sums

    def sum_of(self, root: Node) -> Sum:
        """The sum whose last addition is `root`; its `groups` are empty if it is not rewritten."""
        inner: list[Node] = []
        groups: dict[Hashable, list[Summand]] = {}
        other_terms: list[Value] = []
        terms: list[Value] = []
        last: Node | None = root
        while last is not None:
            sums = [
                addition for value in last.inputs if (addition := self.inner_sum(value, root)) is not None
            ]
            next_addition = sums[0] if len(sums) == 1 else None
            terms += [
                v for v in reversed(last.inputs) if next_addition is None or v is not next_addition.output
            ]
            if next_addition is not None:
                inner.append(next_addition)
            last = next_addition
        terms.reverse()
        slices = self.slices_of(terms)
        if slices:
            written = {summand.node.output for summand in slices}
            return Sum(inner, {SLICES: slices}, [v for v in terms if v not in written])
        for value in terms:
            summand = self.product_of(value)
            if summand is None:
                other_terms.append(value)
            else:
                groups.setdefault(_kind(summand), []).append(summand)
        for kind in [kind for kind, products in groups.items() if len(products) < MIN_PRODUCTS]:
            other_terms += [(p.view or p.node).output for p in groups.pop(kind)]
        return Sum(inner, groups, other_terms)

    def inner_sum(self, value: Value, root: Node) -> Node | None:
        """The addition that produces `value` if it belongs to the sum `root`, else None."""
        addition = self.read_once(value)
        return (
            addition
            if addition is not None and addition.op is ops.add and value.type == root.output.type
            else None
        )

    def read_once(self, value: Value) -> Node | None:
        """The node that produces `value` if it has a single reader, else None."""
        return self.producers.get(value) if self.uses[value] == 1 else None

    def slices_of(self, terms: list[Value]) -> list[Summand]:
        """The updates of zeros among `terms` if they are disjoint, and at most one term is something else.

        Then no element is a sum of more than two terms, so the order of the additions does not matter.
        Otherwise the result is empty.
        """
        slices: list[Summand] = []
        written = Regions(terms[0].type.shape)
        for value in terms:
            update = self.read_once(value)
            if update is None or update.op is not ops.update or not is_zero(self.producers, update.inputs[0]):
                continue
            view = update.attrs["view"]
            if written.are_apart(view):
                written.add(view)
                slices.append(Summand(update))
        return slices if len(slices) >= max(2, len(terms) - 1) else []

    def product_of(self, value: Value) -> Summand | None:
        """The thin product that produces `value`, directly or through a view, without other readers."""
        producer = self.read_once(value)
        view_node = producer if producer is not None and producer.op is ops.view else None
        product = producer if view_node is None else self.read_once(view_node.inputs[0])
        if product is None or product.op is not ops.matmul or not _is_thin(product):
            return None
        return Summand(product, view_node)


def _kind(summand: Summand) -> Hashable:
    x, y = summand.node.inputs
    return x.type, y.type, None if summand.view is None else summand.view.attrs["view"]


def _is_thin(product: Node) -> bool:
    """Whether a product of two matrices is at least as large as both together."""
    x, y = (value.type for value in product.inputs)
    if x.ndim != 2 or not is_floating(x.dtype) or x.dtype in HALVES:
        return False
    if not all(isinstance(n, int) for n in (*x.shape, *y.shape)):
        return False  # the extents differ between the iterations of a loop
    return 0 < x.size + y.size <= x.shape[0] * y.shape[1]


class _StackRewriter:
    """The graph under construction.

    final: the new value for each replaced value of the old graph. assembled: arrays combined from slices,
    which contain no negative zeros.
    """

    def __init__(self, graph: Graph, sums: dict[Node, Sum]):
        self.graph, self.sums = graph, sums
        self.producers = producers_of(graph.nodes)
        self.builder = Builder()
        self.builder.inputs = list(graph.inputs)
        self.final: dict[Value, Value] = {}
        self.assembled: set[Value] = set()

    def run(self) -> Graph:
        """Rewrite the graph. Stacked products and the additions of rewritten sums are removed."""
        groups_of = {root: [*chain.groups.values()] for root, chain in self.sums.items()}
        stacks = {
            root: [
                (_Assembly if kind is SLICES else _Stack)(self, summands)
                for kind, summands in chain.groups.items()
            ]
            for root, chain in self.sums.items()
        }
        stack_of = {
            summand.node: stack
            for root, groups in groups_of.items()
            for stack, summands in zip(stacks[root], groups, strict=True)
            for summand in summands
        }
        views = {summand.view for groups in groups_of.values() for summands in groups for summand in summands}
        inner = {node for chain in self.sums.values() for node in chain.inner}
        for node in self.graph.nodes:
            if node in stack_of:
                stack_of[node].add(node)
            elif node in stacks:
                self.final[node.output] = self.total(node, stacks[node])
            elif node not in views and node not in inner:
                self.keep(node)
        graph, final = self.graph, self.final
        return Graph(
            graph.inputs,
            tuple(self.builder.nodes),
            tuple(final.get(v, v) for v in graph.outputs),
            tuple(Effect(e.target, final.get(e.value, e.value)) for e in graph.effects),
        )

    def keep(self, node: Node) -> None:
        """Append a node that does not belong to a sum."""
        inputs = tuple([self.final.get(v, v) for v in node.inputs])
        if inputs != node.inputs:
            node = Node(node.op, inputs, node.outputs, node.attrs, node.location)
        self.builder.nodes.append(node)

    def total(self, root: Node, stacks: "list[_Stack | _Assembly]") -> Value:
        """Add the totals of the stacks and the other terms of the sum whose last addition is `root`."""
        products = [stack.total(root.location) for stack in stacks]
        others = [self.final.get(v, v) for v in self.sums[root].other_terms]
        return functools.reduce(
            lambda total, term: self.builder.emit(ops.add, total, term, location=root.location),
            products + others,
        )

    def transposed(self, factor: Value, location: str | None) -> Value:
        """Transpose a factor; if it is a transposed view of an array, the result is that array."""
        view = View.of_shape(factor.type.shape)
        producer = self.producers.get(factor)
        if producer is not None and producer.op is ops.view:
            view, (factor,) = producer.attrs["view"], producer.inputs
        view, factor = view.permute((1, 0)), self.final.get(factor, factor)
        if view.is_identity(factor.type.shape):
            return factor
        return self.builder.emit(ops.view, factor, view=view, location=location)


class _Factors:
    """The first or the second factors of products, concatenated along the dimension that is summed over.

    Factors that are stored transposed in memory are also stacked transposed, so that each is copied
    contiguously.
    """

    def __init__(self, rewriting: _StackRewriter, factor: Value, summed: int, count: int):
        self.rewriting, self.summed = rewriting, summed
        producer = rewriting.producers.get(factor)
        self.is_transposed = (
            producer is not None and producer.op is ops.view and producer.attrs["view"].strides[0] == 1
        )
        if self.is_transposed:
            self.summed = 1 - summed
        shape = factor.type.shape[::-1] if self.is_transposed else factor.type.shape
        self.depth = shape[self.summed]
        self.shape = tuple([n * count if axis == self.summed else n for axis, n in enumerate(shape)])
        self.stored = 0
        self.array: Value | None = None

    def add(self, factor: Value, location: str | None) -> None:
        """Store the next factor."""
        emit, rewriting = self.rewriting.builder.emit, self.rewriting
        type = factor.type
        x = (
            rewriting.transposed(factor, location)
            if self.is_transposed
            else rewriting.final.get(factor, factor)
        )
        if self.array is None:
            self.array = emit(
                ops.empty, shape=self.shape, dtype=type.dtype, device=type.device, location=location
            )
        start = self.stored * self.depth
        view = View.of_shape(self.shape).slice_axis(self.summed, start, start + self.depth)
        self.array = emit(ops.update, self.array, x, view=view, location=location)
        self.stored += 1

    def all(self, location: str | None) -> Value:
        """The concatenated factors."""
        assert self.array is not None
        if not self.is_transposed:
            return self.array
        view = View.of_shape(self.shape).permute((1, 0))
        return self.rewriting.builder.emit(ops.view, self.array, view=view, location=location)


class _Stack:
    """The stacked factors of products of the same kind in one sum."""

    def __init__(self, rewriting: _StackRewriter, summands: list[Summand]):
        self.builder, self.view_node = rewriting.builder, summands[0].view
        x, y = summands[0].node.inputs
        self.sides = _Factors(rewriting, x, 1, len(summands)), _Factors(rewriting, y, 0, len(summands))

    def add(self, product: Node) -> None:
        """Store the factors of the next product."""
        for side, factor in zip(self.sides, product.inputs, strict=True):
            side.add(factor, product.location)

    def total(self, location: str | None) -> Value:
        """Emit the stacked product, through the view of the original products."""
        x, y = [side.all(location) for side in self.sides]
        total = self.builder.emit(ops.matmul, x, y, location=location)
        if self.view_node is None:
            return total
        return self.builder.emit(ops.view, total, view=self.view_node.attrs["view"], location=location)


class _Assembly:
    """An array that is assembled from slices, each of which was an update of zeros in a sum."""

    def __init__(self, rewriting: _StackRewriter, summands: list[Summand]):
        self.rewriting, self.type = rewriting, summands[0].node.output.type
        self.is_covered = sum(summand.node.attrs["view"].size for summand in summands) == self.type.size
        self.array: Value | None = None
        self.zero: Value

    def add(self, update: Node) -> None:
        """Store the next slice."""
        emit, rewriting, location = self.rewriting.builder.emit, self.rewriting, update.location
        if self.array is None:
            self.array = self.start(location)
        x = rewriting.final.get(update.inputs[1], update.inputs[1])
        producer = rewriting.producers.get(update.inputs[1])
        is_sum = (
            producer is not None
            and producer.op is ops.add
            and is_zero(rewriting.producers, producer.inputs[1])
        )
        if not is_sum and x not in rewriting.assembled:
            x = emit(ops.add, x, self.zero, location=location)
        self.array = emit(ops.update, self.array, x, view=update.attrs["view"], location=location)

    def start(self, location: str | None) -> Value:
        """Emit the array for all slices, filled with zeros unless they cover it."""
        emit, type = self.rewriting.builder.emit, self.type
        zero: Value = emit(ops.constant, **constant_of(0, type.dtype))
        self.zero = zero
        if self.is_covered:
            array = emit(ops.empty, shape=type.shape, dtype=type.dtype, device=type.device, location=location)
        else:
            array = emit(ops.full, zero, shape=type.shape, device=type.device, location=location)
        return array

    def total(self, location: str | None) -> Value:
        """The array with all slices."""
        assert self.array is not None
        self.rewriting.assembled.add(self.array)
        return self.array
