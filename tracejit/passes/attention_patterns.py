"""Detection of attention that is computed from primitive operators, and its conversion to the operator.

    %5 = matmul(%0, %4)                # the scores: queries by transposed keys
    %6 = multiply(%5, 0.125)
    %7 = add(%6, %3)                   # a mask
    %10 = exp(subtract(%7, %9))        # %9: the maximum of each row
    %13 = divide(%10, %12)             # the weights; %12: the sum of each row
    %14 = matmul(%13, %2)

`attention_patterns_of` finds the pattern, for the pass `tracejit.passes.attend` and for
`tracejit.passes.gradient`, which differentiates the operator instead of the nodes.

Scores may be multiplied or divided by numbers, and then masked: by adding arrays, and by selecting minus
infinity according to a condition. A query all of whose scores are minus infinity has the result nan, as in
the pattern. The pattern is not replaced for small matrices of scores, half-precision numbers and devices
without a kernel, nor where the gradient of a mask is needed, which is a matrix of scores itself.

Causal masks are detected from the nodes that compute them (`tracejit.passes.diagonals`), also for the
operator: half of the scores are then not computed.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

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
from tracejit.passes.producers import number_of, produced_by
from tracejit.tuning import tuning_of

MIN_SCORE_BYTES = 1 << 22
"""The least size of all scores in bytes: smaller matrices stay in the caches, where the gradient is faster
with the materialised matrix.
"""

MIN_CAUSAL_SCORES = 1 << 14
"""The least number of scores of a causal matrix, for which the operator is faster at any total size."""


class Mask(NamedTuple):
    """A mask of scores, the `view` of the array `base`.

    shown: None for an array that is added to the scores; for a condition, its value where scores are kept.
    """

    base: Value
    view: View
    shown: bool | None = None


class AttentionPattern(NamedTuple):
    """Attention among nodes: ``softmax(q @ kt * scale + masks) @ v``.

    product: the last node of the pattern. inner: the other nodes, which compute scores and weights. factors:
    the multiplications and divisions of scores by run-time numbers. causal: whether query i attends to the
    keys 0 to i only. masks: the other masks, in the order of the nodes.
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
        """Append the attention operator, whose operands and results have three dimensions."""
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
        """The operands to which cotangents are propagated."""
        return self.q, self.kt, self.v

    def covers_gradient(self, active: Set[Value], wrt: Iterable[Value]) -> bool:
        """Whether no gradient with respect to inner values or masks is needed.

        active: the values that depend on those of `wrt`, with respect to which the gradient is taken.
        """
        computed = {value for node in self.inner for value in node.outputs}
        return computed.isdisjoint(wrt) and not any(mask.base in active for mask in self.masks)

    def pull_back(self, builder: Builder, cotangent: Value) -> list[Value]:
        """Append the gradient of the operator for the given cotangent; return those of the operands."""
        node = self.emit(builder)
        with building(builder, self.product.location):
            assert ops.attention.gradient is not None
            gradients = ops.attention.gradient(node, [Sym(cotangent).reshape(node.outputs[0].shape), None])
            q_gradient, k_gradient, v_gradient = [x for x in gradients[:3] if x is not None]
            *batch, features, keys = self.kt.type.shape
            cotangents = (
                self.scaled(q_gradient.reshape(self.q.type.shape)),
                k_gradient.reshape((*batch, keys, features)).mT,
                v_gradient.reshape(self.v.type.shape),
            )
        return [ct.value for ct in cotangents]

    def is_self_contained(self, readers: Mapping[Value, Set[Node]], results: Set[Value]) -> bool:
        """Whether scores and weights are used by nodes of the pattern only."""
        computed = [value for node in self.inner for value in node.outputs]
        return all(readers[v] <= {*self.inner, self.product} and v not in results for v in computed)

    def scaled(self, x: Sym) -> Sym:
        """Multiply or divide `x` by the run-time numbers, as the scores are."""
        return functools.reduce(
            lambda product, factor: emit(factor[0], product, Sym(factor[1])), self.factors, x
        )

    def mask(self) -> tuple[Sym, int]:
        """Combine all masks to one, (masks, rows or 1, keys); return it and the attribute `spread`."""
        *batch, queries, keys = self.product.inputs[0].type.shape
        varies = [any(mask.view.strides[axis] for mask in self.masks) for axis in range(len(batch) + 1)]
        mask_axes = [axis for axis, n in enumerate(batch) if n > 1 and varies[axis]]
        first, last = (mask_axes[0], mask_axes[-1] + 1) if mask_axes else (0, 0)
        constant_axes = [*range(first), *range(last, len(batch)), *([] if varies[-1] else [len(batch)])]
        total: Sym | None = None
        for mask in self.masks:
            view = functools.reduce(lambda v, axis: v.select(axis, 0), reversed(constant_axes), mask.view)
            array = Sym(mask.base).view(view)
            total = _add_mask(total, array, mask.shown, self.q.type.dtype)
        assert total is not None
        shape = (math.prod(batch[first:last]), queries if varies[-1] else 1, keys)
        return total.reshape(shape), math.prod(batch[last:]) if mask_axes else 1


def _matrices(x: Sym) -> Sym:
    """Merge the leading dimensions of `x`, such that it has three dimensions."""
    return x.reshape((math.prod(x.shape[:-2]), *x.shape[-2:]))


def _add_mask(total: Sym | None, mask: Sym, shown: bool | None, dtype: np.dtype) -> Sym:
    """Add one more mask to `total`, the array that is added to the scores."""
    if shown is None:
        return mask if total is None else total + mask
    visible = number(0.0, dtype) if total is None else total
    hidden = number(-math.inf, dtype)
    return emit(ops.where, mask, *((visible, hidden) if shown else (hidden, visible)))


def mask_of(node: Node) -> Value | None:
    """The mask operand of an attention operator or its gradient; None if it has none."""
    number, _ = MASKS.get(node.op.name, (0, 0))
    return node.inputs[number] if number and len(node.inputs) > number else None


def attention_patterns_of(nodes: Iterable[object]) -> dict[Node, AttentionPattern]:
    """Find attention patterns among `nodes`, by their last product. Items that are not nodes are skipped."""
    if "attend" in config.disable:
        return {}
    candidates = [node for node in nodes if isinstance(node, Node)]
    if not any(node.op is ops.exp for node in candidates):
        return {}
    search = AttentionSearch(candidates)
    patterns = [search.pattern_of(node) for node in candidates if node.op is ops.matmul]
    return {pattern.product: pattern for pattern in patterns if pattern is not None}


class AttentionSearch:
    """The search for attention patterns, backwards from the last product to the scores."""

    def __init__(self, nodes: Sequence[Node]):
        self.producers = producers_of(nodes)

    def pattern_of(self, product: Node) -> AttentionPattern | None:
        """The attention pattern whose last product is `product`, or None."""
        weights = produced_by(self.producers, product.inputs[0], ops.divide)
        if weights is None or not _has_kernel(product):
            return None
        powers, total = weights.inputs
        exponential = produced_by(self.producers, powers, ops.exp)
        sums = self.row_reduction(total, ops.sum, powers)
        if exponential is None or sums is None:
            return None
        difference = produced_by(self.producers, exponential.inputs[0], ops.subtract)
        if difference is None:
            return None
        scores, highest = difference.inputs
        maxima = self.row_reduction(highest, ops.max, scores)
        if maxima is None:
            return None
        return self.from_scores(product, scores, [weights, exponential, difference, *sums, *maxima])

    def from_scores(self, product: Node, scores: Value, inner: list[Node]) -> AttentionPattern | None:
        """The pattern with masked `scores`, or None; `inner`: the nodes between them and `product`."""
        masks, causal = list[Mask](), False
        while (masked := self.unmask(scores)) is not None:
            node, mask, scores = masked
            inner.append(node)
            if self.is_causal(mask):
                causal = True
            else:
                masks.insert(0, mask)
        scale, factors = 1.0, list[tuple[Op, Value]]()
        while (scaled := self.unscale(scores)) is not None:
            node, factor, scores = scaled
            inner.append(node)
            if isinstance(factor, Value):
                factors.insert(0, (node.op, factor))
            else:
                scale = scale * factor if node.op is ops.multiply else scale / factor
        first = produced_by(self.producers, scores, ops.matmul)
        if (
            first is None
            or first.output.type != product.inputs[0].type
            or not _is_profitable(product, causal)
        ):
            return None
        (q, kt), (_, v) = first.inputs, product.inputs
        nodes, numbers = frozenset([first, *inner]), tuple(factors)
        return AttentionPattern(product, nodes, q, kt, v, scale, numbers, causal, tuple(masks))

    def unmask(self, scores: Value) -> tuple[Node, Mask, Value] | None:
        """The node that masks `scores`, its mask, and the scores before masking; None if there is none."""
        node = self.producers.get(scores)
        if node is None or node.op not in (ops.add, ops.where):
            return None
        if node.op is ops.where:
            condition, x, y = node.inputs
            shown = number_of(self.producers, y) == -math.inf
            if condition.type.on_host or not (shown or number_of(self.producers, x) == -math.inf):
                return None
            return node, Mask(*self.base_of(condition), shown), x if shown else y
        x, y = node.inputs
        if x.type != y.type:  # adds a host number
            return None
        before, mask = (x, y) if self.are_scores(x) else (y, x)
        return (node, Mask(*self.base_of(mask)), before) if self.are_scores(before) else None

    def without_causal_mask(self, node: Node) -> Node:
        """Return `node`; if it is an attention operator or gradient with a causal mask, without that mask."""
        mask = mask_of(node)
        if mask is None or mask.type.shape[0] != 1 or not self.is_causal(Mask(*self.base_of(mask))):
            return node
        attrs = {name: value for name, value in node.attrs.items() if name not in ("spread", "nan", "cut")}
        return Node(node.op, node.inputs[:-1], node.outputs, attrs | {"causal": True}, node.location)

    def is_causal(self, mask: Mask) -> bool:
        """Whether a mask is causal in all matrices: query i attends to the keys 0 to i only."""
        if any(mask.view.strides[:-2]):
            return False
        view = View(mask.view.offset, mask.view.shape[-2:], mask.view.strides[-2:])
        matrix = diagonal(self.producers, mask.base, view)
        if matrix is None or matrix.at != 0:
            return False
        expected = (-math.inf, 0.0) if mask.shown is None else (not mask.shown, mask.shown)
        return (matrix.below, matrix.above) == expected

    def are_scores(self, value: Value) -> bool:
        """Whether `value` is a matrix product that may be scaled and masked."""
        node = self.producers.get(value)
        while node is not None and node.op in (ops.multiply, ops.divide, ops.add, ops.where):
            arrays = [v for v in node.inputs if v.type == value.type and self.base_of(v)[0] is v]
            node = next((n for v in arrays if (n := self.producers.get(v)) is not None), None)
        return node is not None and node.op is ops.matmul

    def unscale(self, scores: Value) -> tuple[Node, Value | float, Value] | None:
        """The node that scales `scores` by a number, the number, and the scores before; None without."""
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

    def row_reduction(self, value: Value, op: Op, x: Value) -> list[Node] | None:
        """The nodes of a reduction `op` of the rows of `x`, broadcast along the rows to `value`; or None."""
        nodes: list[Node] = []
        base, view = self.base_of(value, nodes)
        node, shape = produced_by(self.producers, base, op), x.type.shape
        broadcast = View(0, shape, (*contiguous_strides(shape[:-1]), 0))
        if node is None or node.inputs[0] is not x or node.attrs["axes"] != (len(shape) - 1,):
            return None
        is_equal = [a == b or n == 1 for a, b, n in zip(view.strides, broadcast.strides, shape, strict=True)]
        return [*nodes, node] if view.offset == 0 and all(is_equal) else None

    def base_of(self, value: Value, nodes: list[Node] | None = None) -> tuple[Value, View]:
        """The base array of `value`, and the view of it; the nodes in between are appended to `nodes`.

        If `nodes` is not None, `stop_gradient` is skipped, too: the softmax does not depend on a shift that
        is common to all scores of a row, so its cotangent is not needed.
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
    """Whether the attention kernel supports the types of the operands."""
    weights, result = product.inputs[0].type, product.output.type
    return (
        "attend" in tuning_of(result.device).passes
        and name_of(result.dtype) in ENTRIES
        and all(type(n) is int and n > 0 for n in (*weights.shape, result.shape[-1]))
    )


def _is_profitable(product: Node, causal: bool) -> bool:
    """Whether there are enough scores for the operator to be faster."""
    scores = product.inputs[0].type
    *_, queries, keys = scores.shape
    return scores.nbytes >= MIN_SCORE_BYTES or (causal and queries * keys >= MIN_CAUSAL_SCORES)
