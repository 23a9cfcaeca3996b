"""Attention that is written out: the search for it among nodes, and the operator that it is.

    %5 = matmul(%0, %4)                # the scores: queries by keys, turned
    %6 = multiply(%5, 0.125)
    %7 = add(%6, %3)                   # a mask
    %10 = exp(subtract(%7, %9))        # %9: the maximum of each row
    %13 = divide(%10, %12)             # the weights; %12: the sum of each row
    %14 = matmul(%13, %2)

`written_out` finds it, for the pass `tracejit.passes.attend` and for `tracejit.passes.gradient`, which then
takes the gradient of the operator instead of those of the nodes.

Scores may be multiplied or divided by numbers, and then masked: by arrays that are added, and by minus
infinity where a condition says so. A query all of whose scores are minus infinity gives nan, as it does
written out. Small matrices of scores, half numbers and other devices stay as they are, and so does a gradient
to a mask, which is a matrix of scores itself.

Causal masks are known by what computes them (`tracejit.passes.diagonals`), also those of the operator: then
half of the scores are not computed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from tracejit import ops
from tracejit.config import config
from tracejit.ir.graph import Builder, Node, Value, producers_of
from tracejit.ir.op import Op
from tracejit.ir.types import name_of
from tracejit.ir.view import View, contiguous_strides
from tracejit.kernels.attention.plan import MASKS
from tracejit.kernels.images.windows import ENTRIES
from tracejit.ops.symbolic import Sym, SymNode, building, emit, number
from tracejit.passes.diagonals import diagonal
from tracejit.passes.producers import made_by, number_of
from tracejit.tuning import tuning_of

LEAST = 1 << 22
"""The least bytes of all scores: smaller ones stay in the caches, where the gradient is faster with the
matrix.
"""

LEAST_CAUSAL = 1 << 14
"""The least scores of a matrix with a causal mask, which saves time however few there are in all."""


class Mask(NamedTuple):
    """A mask of scores: a part of an array that is added; or a condition under which they are `shown`, or
    under which they are not.
    """

    base: Value
    view: View
    shown: bool | None = None


class AttentionPattern(NamedTuple):
    """Attention among nodes: ``softmax(q @ kt * scale + masks) @ v``.

    product: the node that completes it. inner: the nodes before, which compute scores and weights. factors:
    operators on run-time numbers by which scores are multiplied or divided. causal: whether a query sees the
    keys up to its own number. masks: the others, in the order of the nodes.
    """

    product: Node
    inner: frozenset[Node]
    q: Value
    kt: Value
    v: Value
    scale: float
    factors: tuple[tuple[Op, Value], ...]
    causal: bool
    masks: tuple[Mask, ...]

    def emit(self, builder: Builder) -> SymNode:
        """Append the operator, whose operands and results have three dimensions."""
        with building(builder, self.product.location):
            q, kt, v = map(Sym, (self.q, self.kt, self.v))
            operands = [_matrices(x) for x in (self.scaled(q), kt.mT, v)]
            attrs: dict[str, Any] = {"scale": self.scale, "causal": self.causal}
            if self.masks:
                mask, attrs["spread"] = self.mask()
                operands.append(mask)
                attrs |= {"nan": True, "cut": any(mask.shown is not None for mask in self.masks)}
            return SymNode(tuple(operands), emit(ops.attention, *operands, **attrs), attrs)

    @property
    def operands(self) -> tuple[Value, Value, Value]:
        """The operands that have cotangents."""
        return self.q, self.kt, self.v

    def takes_all(self, active: Set[Value], wrt: Iterable[Value]) -> bool:
        """Whether only the gradient to the operands is wanted; `active`: the values that depend on `wrt`."""
        made = {value for node in self.inner for value in node.outputs}
        return made.isdisjoint(wrt) and not any(mask.base in active for mask in self.masks)

    def pull_back(self, builder: Builder, cotangent: Value) -> list[Value]:
        """Append the gradient, from the cotangent of the result: the cotangents of the operands."""
        node = self.emit(builder)
        with building(builder, self.product.location):
            assert ops.attention.gradient is not None
            found = ops.attention.gradient(node, [Sym(cotangent).reshape(node.outputs[0].shape), None])
            of_q, of_k, of_v = [x for x in found[:3] if x is not None]
            *batch, features, keys = self.kt.type.shape
            cotangents = (
                self.scaled(of_q.reshape(self.q.type.shape)),
                of_k.reshape((*batch, keys, features)).mT,
                of_v.reshape(self.v.type.shape),
            )
        return [ct.value for ct in cotangents]

    def serves_nothing_else(self, readers: Mapping[Value, Set[Node]], results: Set[Value]) -> bool:
        """Whether only the result needs scores and weights."""
        made = [value for node in self.inner for value in node.outputs]
        return all(readers[v] <= {*self.inner, self.product} and v not in results for v in made)

    def scaled(self, x: Sym) -> Sym:
        """`x` by the run-time numbers."""
        return functools.reduce(lambda found, factor: emit(factor[0], found, Sym(factor[1])), self.factors, x)

    def mask(self) -> tuple[Sym, int]:
        """All masks as one, (masks, rows or 1, keys), and how many successive matrices share each of them."""
        *lead, queries, keys = self.product.inputs[0].type.shape
        moving = [any(mask.view.strides[axis] for mask in self.masks) for axis in range(len(lead) + 1)]
        differ = [axis for axis, n in enumerate(lead) if n > 1 and moving[axis]]
        first, last = (differ[0], differ[-1] + 1) if differ else (0, 0)
        dropped = [*range(first), *range(last, len(lead)), *([] if moving[-1] else [len(lead)])]
        total: Sym | None = None
        for mask in self.masks:
            view = functools.reduce(lambda v, axis: v.select(axis, 0), reversed(dropped), mask.view)
            found = Sym(mask.base).view(view)
            total = _combined(total, found, mask.shown, self.q.type.dtype)
        assert total is not None
        shape = (math.prod(lead[first:last]), queries if moving[-1] else 1, keys)
        return total.reshape(shape), math.prod(lead[last:]) if differ else 1


def _matrices(x: Sym) -> Sym:
    """`x` with three dimensions."""
    return x.reshape((math.prod(x.shape[:-2]), *x.shape[-2:]))


def _combined(total: Sym | None, mask: Sym, shown: bool | None, dtype: np.dtype) -> Sym:
    """The sum of masks that is added to scores, with one more."""
    if shown is None:
        return mask if total is None else total + mask
    kept = number(0.0, dtype) if total is None else total
    hidden = number(-math.inf, dtype)
    return emit(ops.where, mask, *((kept, hidden) if shown else (hidden, kept)))


def mask_of(node: Node) -> Value | None:
    """The mask of the operator or of its gradient."""
    number, _ = MASKS.get(node.op.name, (0, 0))
    return node.inputs[number] if number and len(node.inputs) > number else None


def written_out(nodes: Iterable[object]) -> dict[Node, AttentionPattern]:
    """Attention among `nodes`, by the product that completes it. Items that are no nodes are skipped."""
    if "attend" in config.disable:
        return {}
    known = [node for node in nodes if isinstance(node, Node)]
    if not any(node.op is ops.exp for node in known):
        return {}
    search = AttentionSearch(known)
    found = [search.completed_by(node) for node in known if node.op is ops.matmul]
    return {each.product: each for each in found if each is not None}


class AttentionSearch:
    """The search among nodes, backwards from a product to the scores."""

    def __init__(self, nodes: Sequence[Node]):
        self.producers = producers_of(nodes)

    def completed_by(self, product: Node) -> AttentionPattern | None:
        """Attention whose last product is `product`."""
        weights = made_by(self.producers, product.inputs[0], ops.divide)
        if weights is None or not _has_kernel(product):
            return None
        powers, total = weights.inputs
        exponential = made_by(self.producers, powers, ops.exp)
        sums = self.of_rows(total, ops.sum, powers)
        if exponential is None or sums is None:
            return None
        difference = made_by(self.producers, exponential.inputs[0], ops.subtract)
        if difference is None:
            return None
        scores, highest = difference.inputs
        maxima = self.of_rows(highest, ops.max, scores)
        if maxima is None:
            return None
        return self.from_scores(product, scores, [weights, exponential, difference, *sums, *maxima])

    def from_scores(self, product: Node, scores: Value, inner: list[Node]) -> AttentionPattern | None:
        """Attention by these scores; `inner`: the nodes between them and `product`."""
        masks, causal = list[Mask](), False
        while (masked := self.masked(scores)) is not None:
            node, mask, scores = masked
            inner.append(node)
            if self.is_causal(mask):
                causal = True
            else:
                masks.insert(0, mask)
        scale, factors = 1.0, list[tuple[Op, Value]]()
        while (scaled := self.scaled(scores)) is not None:
            node, factor, scores = scaled
            inner.append(node)
            if isinstance(factor, Value):
                factors.insert(0, (node.op, factor))
            else:
                scale = scale * factor if node.op is ops.multiply else scale / factor
        first = made_by(self.producers, scores, ops.matmul)
        if first is None or first.output.type != product.inputs[0].type or not _is_worth_it(product, causal):
            return None
        (q, kt), (_, v) = first.inputs, product.inputs
        nodes, numbers = frozenset([first, *inner]), tuple(factors)
        return AttentionPattern(product, nodes, q, kt, v, scale, numbers, causal, tuple(masks))

    def masked(self, scores: Value) -> tuple[Node, Mask, Value] | None:
        """The node that masks scores, its mask, and the scores before."""
        node = self.producers.get(scores)
        if node is None or node.op not in (ops.add, ops.where):
            return None
        if node.op is ops.where:
            condition, x, y = node.inputs
            shown = number_of(self.producers, y) == -math.inf
            if condition.type.on_host or not (shown or number_of(self.producers, x) == -math.inf):
                return None
            return node, Mask(*self.seen(condition), shown), x if shown else y
        x, y = node.inputs
        if x.type != y.type:  # a number is added
            return None
        before, mask = (x, y) if self.are_scores(x) else (y, x)
        return (node, Mask(*self.seen(mask)), before) if self.are_scores(before) else None

    def without_causal_mask(self, node: Node) -> Node:
        """`node`; if it is the operator, or its gradient, whose one mask is causal: without that mask."""
        mask = mask_of(node)
        if mask is None or mask.type.shape[0] != 1 or not self.is_causal(Mask(*self.seen(mask))):
            return node
        attrs = {name: value for name, value in node.attrs.items() if name not in ("spread", "nan", "cut")}
        return Node(node.op, node.inputs[:-1], node.outputs, attrs | {"causal": True}, node.location)

    def is_causal(self, mask: Mask) -> bool:
        """Whether a mask shows each query the keys up to its own number, in all matrices."""
        if any(mask.view.strides[:-2]):
            return False
        view = View(mask.view.offset, mask.view.shape[-2:], mask.view.strides[-2:])
        found = diagonal(self.producers, mask.base, view)
        if found is None or found.at != 0:
            return False
        expected = (-math.inf, 0.0) if mask.shown is None else (not mask.shown, mask.shown)
        return (found.below, found.above) == expected

    def are_scores(self, value: Value) -> bool:
        """Whether `value` is a product, perhaps scaled and masked."""
        node = self.producers.get(value)
        while node is not None and node.op in (ops.multiply, ops.divide, ops.add, ops.where):
            arrays = [v for v in node.inputs if v.type == value.type and self.seen(v)[0] is v]
            node = next((n for v in arrays if (n := self.producers.get(v)) is not None), None)
        return node is not None and node.op is ops.matmul

    def scaled(self, scores: Value) -> tuple[Node, Value | float, Value] | None:
        """The node that multiplies or divides scores by a number, the number, and the scores before."""
        node = self.producers.get(scores)
        if node is None or node.op not in (ops.multiply, ops.divide):
            return None
        x, factor = node.inputs
        if x.type.on_host and node.op is ops.multiply:
            x, factor = factor, x
        if x.type.on_host or not factor.type.on_host:
            return None
        known = number_of(self.producers, factor)
        if known == 0 or (known is not None and not math.isfinite(known)):
            return None
        return node, factor if known is None else known, x

    def of_rows(self, value: Value, op: Op, x: Value) -> list[Node] | None:
        """The nodes by which `value` is the sum or maximum of each row of `x`, repeated along the row."""
        nodes: list[Node] = []
        base, view = self.seen(value, nodes)
        node, shape = made_by(self.producers, base, op), x.type.shape
        repeated = View(0, shape, (*contiguous_strides(shape[:-1]), 0))
        if node is None or node.inputs[0] is not x or node.attrs["axes"] != (len(shape) - 1,):
            return None
        moved = [a == b or n == 1 for a, b, n in zip(view.strides, repeated.strides, shape, strict=True)]
        return [*nodes, node] if view.offset == 0 and all(moved) else None

    def seen(self, value: Value, nodes: list[Node] | None = None) -> tuple[Value, View]:
        """The array behind `value` and the view of it; the views between them are appended to `nodes`.
        Cotangents need not flow through an operator that shifts all scores of a row alike.
        """
        view = View.of_shape(value.type.shape)
        while (node := self.producers.get(value)) is not None:
            if node.op is ops.view and (composed := node.attrs["view"].compose(view)) is not None:
                view = composed
            elif nodes is None or node.op is not ops.stop_gradient:
                break
            if nodes is not None:
                nodes.append(node)
            (value,) = node.inputs
        return value, view


def _has_kernel(product: Node) -> bool:
    """Whether the kernel takes operands of these types."""
    weights, result = product.inputs[0].type, product.output.type
    return (
        "attend" in tuning_of(result.device).passes
        and name_of(result.dtype) in ENTRIES
        and all(type(n) is int and n > 0 for n in (*weights.shape, result.shape[-1]))
    )


def _is_worth_it(product: Node, causal: bool) -> bool:
    """Whether there are enough scores."""
    scores = product.inputs[0].type
    *_, queries, keys = scores.shape
    return scores.nbytes >= LEAST or (causal and queries * keys >= LEAST_CAUSAL)
