"""Sums along a loop: products of few terms become one product of stacked factors, parts of zeros one array.

    %6 = matmul(%0, %1)           # [256,16] @ [16,1024]
    %7 = matmul(%2, %3)       =>  %6 = matmul([%0 %2 ...], [%1; %3; ...])      # [256,64] @ [64,1024]
    %8 = add(%6, %7) ...

Such a sum is the gradient of a weight that a loop uses in every step. Each product is larger than both its
factors, and adds a few numbers to every element by way of memory. Stacked factors take less memory than the
products. The sum is that of the same terms, rounded less often.

Only chains of additions count, which loops write. Shards of a batch are added up as a balanced tree, which
stays as it is: the bits are those of ranks with a shard each.

The gradient of an array that each round reads a part of is a sum of arrays that are zero but for a part. It
becomes stores of the parts, which rounds of a loop can make, into one array; where they cover it, nothing is
filled with zeros:

    add(update(0, a; left), update(0, b; right))   ->   update(update(empty, a + 0; left), b + 0; right)

Adding 0 keeps the sum exact: it turns -0.0 into 0.0.

Products are stacked if their factors have the same types and together are smaller than the result, if
nothing else reads them, and if all are seen through the same view, as the gradients of a transposed weight
are. Each pair is stored where its product was; the product of all stands where the sum was complete.
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

LEAST = 4
"""The fewest products that are stacked: a sum of three is read and written less often than it is copied."""


PLACED = "placed"
"""The kind of updates of zeros."""


class Summand(NamedTuple):
    """A product in a sum, and the view of it that is added; or an update of zeros."""

    made: Node
    seen: Node | None = None


class Sum(NamedTuple):
    """The operands of a chain of additions that nothing else reads: products by kind, updates of zeros, and
    the rest.
    """

    inner: list[Node]
    parts: dict[Hashable, list[Summand]]
    rest: list[Value]


def stack(graph: Graph) -> Graph:
    """`graph` with sums of many products of few terms as single products, and sums of parts as stores."""
    count = Counter(node.op for node in graph.nodes)
    if count[ops.matmul] < LEAST and count[ops.update] < 2:
        return graph
    sums = _Sums(graph).found()
    return dce(_Rewriting(graph, sums).run()) if sums else graph


class _Sums:
    """The search for sums: the node that makes each value, how often it is read, and where."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.producers = producers_of(graph.nodes)
        self.uses = Counter(value for node in graph.nodes for value in node.inputs)
        self.uses.update(dict.fromkeys(graph.results(), 2))

    def found(self) -> dict[Node, Sum]:
        """Sums with products to stack, by the addition that completes them."""
        sums: dict[Node, Sum] = {}
        covered: set[Node] = set()
        for node in reversed(self.graph.nodes):
            if node.op is ops.add and node not in covered:
                found = self.sum_of(node)
                covered.update(found.inner)
                if found.parts:
                    sums[node] = found
        return sums

    def sum_of(self, root: Node) -> Sum:
        """The chain of additions that `root` completes; products that are to be stacked in `parts`."""
        inner: list[Node] = []
        parts: dict[Hashable, list[Summand]] = {}
        rest: list[Value] = []
        terms: list[Value] = []
        last: Node | None = root
        while last is not None:
            sums = [made for value in last.inputs if (made := self.inner_sum(value, root)) is not None]
            following = sums[0] if len(sums) == 1 else None
            terms += [v for v in reversed(last.inputs) if following is None or v is not following.output]
            if following is not None:
                inner.append(following)
            last = following
        terms.reverse()
        places = self.places(terms)
        if places:
            written = {part.made.output for part in places}
            return Sum(inner, {PLACED: places}, [v for v in terms if v not in written])
        for value in terms:
            part = self.part_of(value)
            if part is None:
                rest.append(value)
            else:
                parts.setdefault(_kind(part), []).append(part)
        for kind in [kind for kind, found in parts.items() if len(found) < LEAST]:
            rest += [(p.seen or p.made).output for p in parts.pop(kind)]
        return Sum(inner, parts, rest)

    def inner_sum(self, value: Value, root: Node) -> Node | None:
        """The addition that makes `value`, if it is a part of the sum `root`."""
        made = self.read_once(value)
        return made if made is not None and made.op is ops.add and value.type == root.output.type else None

    def read_once(self, value: Value) -> Node | None:
        """The node that makes `value`, if that is read once."""
        return self.producers.get(value) if self.uses[value] == 1 else None

    def places(self, terms: list[Value]) -> list[Summand]:
        """The updates of zeros among the terms of a sum, if they are at different places and all but one term
        at most: then no element is a sum of more than two terms, whose order would matter.
        """
        found: list[Summand] = []
        written = Regions(terms[0].type.shape)
        for value in terms:
            made = self.read_once(value)
            if made is None or made.op is not ops.update or not is_zero(self.producers, made.inputs[0]):
                continue
            view = made.attrs["view"]
            if written.are_apart(view):
                written.add(view)
                found.append(Summand(made))
        return found if len(found) >= max(2, len(terms) - 1) else []

    def part_of(self, value: Value) -> Summand | None:
        """The product that `value` is, or is a view of, if it is better stacked with others."""
        made = self.read_once(value)
        seen = made if made is not None and made.op is ops.view else None
        product = made if seen is None else self.read_once(seen.inputs[0])
        if product is None or product.op is not ops.matmul or not _is_thin(product):
            return None
        return Summand(product, seen)


def _kind(part: Summand) -> Hashable:
    x, y = part.made.inputs
    return x.type, y.type, None if part.seen is None else part.seen.attrs["view"]


def _is_thin(product: Node) -> bool:
    """Whether a product of two matrices is larger than both together."""
    x, y = (value.type for value in product.inputs)
    if x.ndim != 2 or not is_floating(x.dtype) or x.dtype in HALVES:
        return False
    if not all(isinstance(n, int) for n in (*x.shape, *y.shape)):
        return False  # the extents differ from round to round of a loop
    return 0 < x.size + y.size <= x.shape[0] * y.shape[1]


class _Rewriting:
    """The graph under construction, and the new values for those of the old one. `placed`: arrays of parts,
    in which no zero is negative.
    """

    def __init__(self, graph: Graph, sums: dict[Node, Sum]):
        self.graph, self.sums = graph, sums
        self.producers = producers_of(graph.nodes)
        self.builder = Builder()
        self.builder.inputs = list(graph.inputs)
        self.final: dict[Value, Value] = {}
        self.placed: set[Value] = set()

    def run(self) -> Graph:
        """The graph with products stacked. Their old nodes and additions are left out."""
        groups = {root: [*found.parts.values()] for root, found in self.sums.items()}
        stacks = {
            root: [
                (_Placed if kind is PLACED else _Stack)(self, parts) for kind, parts in found.parts.items()
            ]
            for root, found in self.sums.items()
        }
        member = {
            part.made: made
            for root, found in groups.items()
            for made, parts in zip(stacks[root], found, strict=True)
            for part in parts
        }
        seen = {part.seen for found in groups.values() for parts in found for part in parts}
        inner = {node for found in self.sums.values() for node in found.inner}
        for node in self.graph.nodes:
            if node in member:
                member[node].add(node)
            elif node in stacks:
                self.final[node.output] = self.total(node, stacks[node])
            elif node not in seen and node not in inner:
                self.keep(node)
        graph, final = self.graph, self.final
        return Graph(
            graph.inputs,
            tuple(self.builder.nodes),
            tuple(final.get(v, v) for v in graph.outputs),
            tuple(Effect(e.target, final.get(e.value, e.value)) for e in graph.effects),
        )

    def keep(self, node: Node) -> None:
        """Append a node that is in no sum."""
        inputs = tuple([self.final.get(v, v) for v in node.inputs])
        if inputs != node.inputs:
            node = Node(node.op, inputs, node.outputs, node.attrs, node.location)
        self.builder.nodes.append(node)

    def total(self, root: Node, stacks: "list[_Stack | _Placed]") -> Value:
        """The totals of stacks and what else is in the sum that `root` completes."""
        products = [made.total(root.location) for made in stacks]
        rest = [self.final.get(v, v) for v in self.sums[root].rest]
        return functools.reduce(
            lambda total, part: self.builder.emit(ops.add, total, part, location=root.location),
            products + rest,
        )

    def turned(self, factor: Value, location: str | None) -> Value:
        """A factor, transposed; without a view if it was a transposed one."""
        view = View.of_shape(factor.type.shape)
        made = self.producers.get(factor)
        if made is not None and made.op is ops.view:
            view, (factor,) = made.attrs["view"], made.inputs
        view, factor = view.permute((1, 0)), self.final.get(factor, factor)
        if view.is_whole(factor.type.shape):
            return factor
        return self.builder.emit(ops.view, factor, view=view, location=location)


class _Factors:
    """The first or second factors of products, side by side along the dimension that is summed over.

    Those that lie transposed in memory are stacked so, too: then a factor is stored as it lies.
    """

    def __init__(self, rewriting: _Rewriting, factor: Value, summed: int, count: int):
        self.rewriting, self.summed = rewriting, summed
        made = rewriting.producers.get(factor)
        self.lies = made is not None and made.op is ops.view and made.attrs["view"].strides[0] == 1
        if self.lies:
            self.summed = 1 - summed
        shape = factor.type.shape[::-1] if self.lies else factor.type.shape
        self.depth = shape[self.summed]
        self.shape = tuple([n * count if axis == self.summed else n for axis, n in enumerate(shape)])
        self.stored = 0
        self.array: Value | None = None

    def add(self, factor: Value, location: str | None) -> None:
        """Store the next factor."""
        emit, rewriting = self.rewriting.builder.emit, self.rewriting
        type = factor.type
        x = rewriting.turned(factor, location) if self.lies else rewriting.final.get(factor, factor)
        if self.array is None:
            self.array = emit(
                ops.empty, shape=self.shape, dtype=type.dtype, device=type.device, location=location
            )
        start = self.stored * self.depth
        view = View.of_shape(self.shape).slice_axis(self.summed, start, start + self.depth)
        self.array = emit(ops.update, self.array, x, view=view, location=location)
        self.stored += 1

    def all(self, location: str | None) -> Value:
        """The stacked factors."""
        assert self.array is not None
        if not self.lies:
            return self.array
        view = View.of_shape(self.shape).permute((1, 0))
        return self.rewriting.builder.emit(ops.view, self.array, view=view, location=location)


class _Stack:
    """The factors of some products of one sum."""

    def __init__(self, rewriting: _Rewriting, parts: list[Summand]):
        self.builder, self.seen = rewriting.builder, parts[0].seen
        x, y = parts[0].made.inputs
        self.sides = _Factors(rewriting, x, 1, len(parts)), _Factors(rewriting, y, 0, len(parts))

    def add(self, product: Node) -> None:
        """Store the factors of the next product."""
        for side, factor in zip(self.sides, product.inputs, strict=True):
            side.add(factor, product.location)

    def total(self, location: str | None) -> Value:
        """The sum of all products, seen as each of them was."""
        x, y = [side.all(location) for side in self.sides]
        total = self.builder.emit(ops.matmul, x, y, location=location)
        if self.seen is None:
            return total
        return self.builder.emit(ops.view, total, view=self.seen.attrs["view"], location=location)


class _Placed:
    """Parts of one array, each of which was a sum's update of zeros."""

    def __init__(self, rewriting: _Rewriting, parts: list[Summand]):
        self.rewriting, self.type = rewriting, parts[0].made.output.type
        self.is_covered = sum(part.made.attrs["view"].size for part in parts) == self.type.size
        self.array: Value | None = None
        self.zero: Value

    def add(self, update: Node) -> None:
        """Store the next part."""
        emit, rewriting, location = self.rewriting.builder.emit, self.rewriting, update.location
        if self.array is None:
            self.array = self.start(location)
        x = rewriting.final.get(update.inputs[1], update.inputs[1])
        made = rewriting.producers.get(update.inputs[1])
        is_sum = made is not None and made.op is ops.add and is_zero(rewriting.producers, made.inputs[1])
        if not is_sum and x not in rewriting.placed:
            x = emit(ops.add, x, self.zero, location=location)
        self.array = emit(ops.update, self.array, x, view=update.attrs["view"], location=location)

    def start(self, location: str | None) -> Value:
        """Memory for all parts, filled with zeros unless they cover it."""
        emit, type = self.rewriting.builder.emit, self.type
        zero: Value = emit(ops.constant, **constant_of(0, type.dtype))
        self.zero = zero
        if self.is_covered:
            made = emit(ops.empty, shape=type.shape, dtype=type.dtype, device=type.device, location=location)
        else:
            made = emit(ops.full, zero, shape=type.shape, device=type.device, location=location)
        return made

    def total(self, location: str | None) -> Value:
        """The array with all parts."""
        assert self.array is not None
        self.rewriting.placed.add(self.array)
        return self.array
