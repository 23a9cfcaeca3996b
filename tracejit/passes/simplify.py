"""Exact algebraic simplification: a table of small rules, applied in one forward pass.

A rule belongs to one operator, matches the definitions of the operands, and returns the value that replaces
the application, or None. Nodes that a rule emits are simplified in turn, so all nodes before the current one
are in their final form, and one pass suffices. No rule adds work; `dce` removes nodes that lose their last
use.

Exact means: the same bits as the NumPy evaluator, except for the sign and payload of nan. So ``x + 0.0`` is
kept (it turns -0.0 into 0.0) while ``x - 0.0`` is removed; ``x / 8`` may become ``x * 0.125`` but ``x / 3``
may not become a product.

    %1: float32 = constant() [value=2.0]
    %2: float32[8] = power(%0, %1)          =>    %2: float32[8] = square(%0)

`copy`, `stop_gradient` and `without_gradient` are identities for this pass: values are immutable, `legalize`
inserts the copies that the memory plan needs, and gradients have been taken during recording.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tracejit import ops
from tracejit.ir.evaluate import evaluate_node
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value, constant_of
from tracejit.ir.op import CAN_FAIL, ELEMENTWISE, EXACT, REDUCTION, Op
from tracejit.ir.types import HALVES, Device, is_floating, is_inexact
from tracejit.ir.view import View
from tracejit.loopnest.regions import disjoint, inverse, same
from tracejit.passes.producers import number_of, produced_by
from tracejit.tuning import tuning_of

Rewrite = Callable[..., Value | None]
_RULES: dict[Op, list[Rewrite]] = defaultdict(list)

# The greatest number of stores that a read is moved across: keeps the pass linear on long chains of stores.
_MAX_STORES = 32

# The greatest number of parts of a concatenation that are stored separately.
_MAX_PARTS = 8


def simplify(graph: Graph) -> Graph:
    """Simplify the nodes of `graph`; the results are the same."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rewriter.add(node)
    final = rewriter.final
    return Graph(
        graph.inputs,
        tuple(rewriter.builder.nodes),
        tuple(final.get(v, v) for v in graph.outputs),
        tuple(Effect(e.target, final.get(e.value, e.value)) for e in graph.effects),
    )


class Rewriter:
    """The graph under construction, with the defining node of every value."""

    def __init__(self, graph: Graph):
        self.builder = Builder()
        self.builder.inputs.extend(graph.inputs)
        self.final: dict[Value, Value] = {}  # values of the old graph to their replacements
        self.definition: dict[Value, Node] = {}
        self.op: Op  # the operator whose rule runs
        self._location: str | None = None

    def add(self, node: Node) -> None:
        """Append `node`, simplified."""
        self._location = node.location
        inputs = tuple([self.final.get(v, v) for v in node.inputs])
        if len(node.outputs) == 1:
            value = self._apply(node.op, inputs, node.attrs)
            if value is not None:
                self.final[node.outputs[0]] = value
                return
        if inputs != node.inputs:
            node = Node(node.op, inputs, node.outputs, node.attrs, node.location)
        self.builder.nodes.append(node)
        self._define(node)

    def emit(self, op: Op, *inputs: Value, **attrs: Any) -> Value:
        """Apply `op` to `inputs`: return the simplified value, or the output of a new node."""
        value = self._apply(op, inputs, attrs)
        if value is None:
            value = self.builder.emit(op, *inputs, location=self._location, **attrs)
            self._define(self.builder.nodes[-1])
        return value

    def _define(self, node: Node) -> None:
        for value in node.outputs:
            self.definition[value] = node

    def _apply(self, op: Op, inputs: tuple[Value, ...], attrs: Any) -> Value | None:
        for rule in _rules_of(op):
            self.op = op
            value = rule(self, *inputs, **attrs)
            if value is not None:
                return value
        return None

    def match(self, value: Value, op: Op) -> Node | None:
        """The node that defines `value` if it applies `op`, else None."""
        return produced_by(self.definition, value, op)

    def number(self, value: Value) -> Any:
        """The Python number that all elements of `value` are known to equal, or None."""
        return number_of(self.definition, value)


def rule(*operators: Op) -> Callable[[Rewrite], Rewrite]:
    """Register a rule; ``rule(rewriter, *operands, **attributes)`` returns the replacement, or None."""

    def register(function: Rewrite) -> Rewrite:
        for op in operators:
            _RULES[op].append(function)
        return function

    return register


# -------------------------------------------------------------------------------------------------- numbers


def _fold_constants(r: Rewriter, *inputs: Value, **attrs: Any) -> Value | None:
    """Evaluate an elementwise operator on constants."""
    op, definitions = r.op, [node for v in inputs if (node := r.match(v, ops.constant))]
    if len(definitions) < len(inputs):
        return None
    output = Value(op.infer(*(v.type for v in inputs), **attrs))
    arrays = [np.asarray(d.attrs["value"], dtype=d.output.type.dtype) for d in definitions]
    with np.errstate(all="ignore"):
        (result,) = evaluate_node(Node(op, inputs, (output,), attrs), arrays)
    return r.emit(ops.constant, **constant_of(result[()], output.type.dtype))


def _fold_fills(r: Rewriter, *inputs: Value, **attrs: Any) -> Value | None:
    """Replace array operands that are filled with a number by the number; if all are, the result is a fill.

    This is valid for exact operators only: NumPy computes some others differently for numbers than for
    arrays.
    """
    op = r.op
    fills = [r.match(v, ops.full) for v in inputs]
    if not any(fills):
        return None
    numbers = [v if fill is None else fill.inputs[0] for v, fill in zip(inputs, fills, strict=True)]
    if any(not v.type.on_host for v in numbers):
        return r.emit(op, *numbers, **attrs)
    if any(r.match(v, ops.constant) is None for v in numbers):
        return None  # run-time numbers have no arithmetic
    if op is ops.random_bits:
        return None  # the index operand must remain an array
    filled = next(v.type for v, fill in zip(inputs, fills, strict=True) if fill)
    return r.emit(ops.full, r.emit(op, *numbers, **attrs), shape=filled.shape, device=filled.device)


@functools.cache
def _rules_of(op: Op) -> tuple[Rewrite, ...]:
    """The rules for an operator: those registered for it, then those for elementwise operators."""
    simple = ELEMENTWISE in op.traits and CAN_FAIL not in op.traits
    return (*_RULES[op], *[_fold_constants] * simple, *[_fold_fills] * (simple and EXACT in op.traits))


def _same_number(number: Any, expected: float) -> bool:
    """Whether a known number equals `expected`; the signs of floating-point zeros must be equal, too."""
    if number is None or number != expected:
        return False
    return not isinstance(number, float) or math.copysign(1, number) == math.copysign(1, expected)


def _has_type_of_first(x: Value, other: Value) -> bool:
    """Whether the result of an elementwise operator on `x` and `other` has the type of `x`."""
    return other.type.on_host or not x.type.on_host


def _neutral(op: Op, numbers: Callable[[np.dtype], float | None], *, both: bool) -> None:
    """Register that ``x op n`` (if `both`, also ``n op x``) is x for the number n = ``numbers(x.dtype)``."""

    def drop_neutral(r: Rewriter, x: Value, y: Value) -> Value | None:
        neutral = numbers(x.type.dtype)
        if neutral is None:
            return None
        if _same_number(r.number(y), neutral) and _has_type_of_first(x, y):
            return x
        if both and _same_number(r.number(x), neutral) and _has_type_of_first(y, x):
            return y
        return None

    rule(op)(drop_neutral)


def _zero(dtype: np.dtype, of_float: float) -> float | None:
    """The neutral zero, which preserves signs of zeros; None for complex numbers, which have two signs."""
    return of_float if is_floating(dtype) else None if dtype.kind == "c" else 0


def _all_ones(dtype: np.dtype) -> int:
    return -1 if dtype.kind == "i" else 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)


_neutral(ops.add, lambda dtype: _zero(dtype, -0.0), both=True)
_neutral(ops.subtract, lambda dtype: _zero(dtype, 0.0), both=False)
_neutral(ops.multiply, lambda dtype: None if dtype.kind == "c" else 1, both=True)
_neutral(ops.divide, lambda dtype: None if dtype.kind == "c" else 1, both=False)
_neutral(ops.pow, lambda dtype: None if dtype.kind == "c" else 1, both=False)
_neutral(ops.floor_divide, lambda dtype: None if is_floating(dtype) else 1, both=False)
_neutral(ops.bitwise_left_shift, lambda dtype: 0, both=False)
_neutral(ops.bitwise_right_shift, lambda dtype: 0, both=False)
_neutral(ops.bitwise_or, lambda dtype: 0, both=True)
_neutral(ops.bitwise_xor, lambda dtype: 0, both=True)
_neutral(ops.bitwise_and, _all_ones, both=True)


@rule(ops.add)
def _add_negative(r: Rewriter, x: Value, y: Value) -> Value | None:
    """x + -y is x - y."""
    for a, b in ((x, y), (y, x)):
        if negated := r.match(b, ops.negative):
            return r.emit(ops.subtract, a, negated.inputs[0])
    return None


@rule(ops.subtract)
def _subtract_negative(r: Rewriter, x: Value, y: Value) -> Value | None:
    """x - -y is x + y."""
    negated = r.match(y, ops.negative)
    return r.emit(ops.add, x, negated.inputs[0]) if negated else None


def _is_reduced(r: Rewriter, x: Value) -> bool:
    """Whether `x` is an array without dimensions, or contains the results of a reduction."""
    node = r.definition.get(x)
    while node is not None and node.op is ops.view and node.inputs[0].type.size == x.type.size:
        node = r.definition.get(node.inputs[0])
    return x.type.shape == () or (node is not None and REDUCTION in node.op.traits)


@rule(ops.divide)
def _divide_by_power_of_two(r: Rewriter, x: Value, y: Value) -> Value | None:
    """x / 2**k is x * 2**-k if both powers are normal numbers: equal rounding, but a product is cheaper.

    A mean remains a quotient: it needs one division for an entire sum, and its divisor is often the batch
    size, on which the structure of a kernel should not depend.
    """
    if _is_reduced(r, x):
        return None
    number = r.number(y)
    if (
        number is None
        or isinstance(number, complex)
        or not _has_type_of_first(x, y)
        or math.frexp(number)[0] not in (0.5, -0.5)
    ):
        return None
    if abs(math.frexp(number)[1]) >= -ml_dtypes.finfo(y.type.dtype).minexp:
        return None
    return r.emit(ops.multiply, x, r.emit(ops.constant, **constant_of(1 / number, y.type.dtype)))


@rule(ops.pow)
def _special_powers(r: Rewriter, x: Value, y: Value) -> Value | None:
    """Replace powers for the scalar exponents for which NumPy itself uses a simpler function."""
    number = r.number(y) if y.type.on_host else None
    if number == 2:
        return r.emit(ops.square, x)
    if is_floating(x.type.dtype) and number == 0.5:
        return r.emit(ops.sqrt, x)
    if is_floating(x.type.dtype) and number == -1:
        return r.emit(ops.reciprocal, x)
    return None


@rule(ops.negative, ops.logical_not, ops.bitwise_invert)
def _double_negation(r: Rewriter, x: Value) -> Value | None:
    """Cancel a double negation."""
    node = r.definition.get(x)
    is_same = node is not None and node.op is r.op and node.inputs[0].type == x.type
    return node.inputs[0] if node is not None and is_same else None


@rule(ops.square, ops.abs)
def _ignore_sign(r: Rewriter, x: Value) -> Value | None:
    """The square or absolute value of -x or abs(x) is that of x; but -x wraps for unsigned numbers."""
    wraps = r.op is ops.abs and x.type.dtype.kind == "u"
    inner = (None if wraps else r.match(x, ops.negative)) or r.match(x, ops.abs)
    is_same = inner is not None and inner.inputs[0].type.dtype == x.type.dtype  # not so of complex numbers
    return r.emit(r.op, inner.inputs[0]) if inner is not None and is_same else None


@rule(ops.maximum, ops.minimum, ops.bitwise_and, ops.bitwise_or, ops.logical_and, ops.logical_or)
def _idempotent(r: Rewriter, x: Value, y: Value) -> Value | None:
    """Replace the result by an operand if both are the same value: these operators are idempotent."""
    return x if x is y else None


@rule(ops.where)
def _known_choice(r: Rewriter, condition: Value, x: Value, y: Value) -> Value | None:
    """Resolve `where` with two equal operands or with a known condition."""
    known = r.number(condition)
    if x is not y and known is None:
        return None
    chosen = y if known is False else x
    arrays = [v for v in (condition, x, y) if not v.type.on_host]
    if chosen.type.on_host and arrays:
        return r.emit(ops.full, chosen, shape=arrays[0].type.shape, device=arrays[0].type.device)
    return chosen


@rule(ops.astype)
def _cast(r: Rewriter, x: Value, *, dtype: np.dtype) -> Value | None:
    """Remove a cast to the same dtype; merge a cast with an exact cast before it."""
    if x.type.dtype == dtype:
        return x
    inner = r.match(x, ops.astype)
    if inner and _is_exact_cast(inner.inputs[0].type.dtype, x.type.dtype):
        source = inner.inputs[0]
        if _rounds_twice(source.type.dtype, dtype):
            return None
        # The result for an out-of-range float depends on the dtype it is converted from; integers wrap, but
        # floats do not.
        is_float = is_inexact(source.type.dtype) or is_inexact(x.type.dtype)
        if not is_float or dtype.kind not in "iu" or np.can_cast(source.type.dtype, dtype, "safe"):
            return r.emit(ops.astype, source, dtype=dtype)
    return None


def _rounds_twice(source: np.dtype, target: np.dtype) -> bool:
    """Whether a direct cast rounds via float32, unlike a cast via another dtype."""
    return source.kind in "iu" and source.itemsize > 2 and target in HALVES


def _is_exact_cast(source: np.dtype, target: np.dtype) -> bool:
    """Whether `target` represents every number of `source` exactly."""
    rounds = source.kind in "iu" and is_floating(target) and source.itemsize >= target.itemsize
    return np.can_cast(source, target, "safe") and not rounds


@rule(ops.copy, ops.stop_gradient, ops.without_gradient)
def _identity(r: Rewriter, x: Value, **attrs: Any) -> Value | None:
    """Replace a copy by its original: values never change."""
    return x


@rule(ops.floor, ops.ceil, ops.trunc, ops.round)
def _rounded_integer(r: Rewriter, x: Value) -> Value | None:
    """Remove the rounding of integers."""
    return x if x.type.dtype.kind in "iub" else None


@rule(ops.sum, ops.prod, ops.max, ops.min, ops.any, ops.all)
def _nothing_reduced(r: Rewriter, x: Value, *, axes: tuple[int, ...], pieces: int = 0) -> Value | None:
    """Remove a reduction over no axes."""
    return None if axes or pieces else x


@rule(ops.matmul)
def _empty_product(r: Rewriter, x: Value, y: Value) -> Value | None:
    """Replace a product without elements, or of sums without terms, by zeros; its kernels need elements."""
    if x.type.size and y.type.size:
        return None
    type = ops.matmul.infer(x.type, y.type)
    zero = r.emit(ops.constant, **constant_of(0, type.dtype))
    return r.emit(ops.full, zero, shape=type.shape, device=type.device)


# ------------------------------------------------------------------------------------------------- movement


@rule(ops.view)
def _view(r: Rewriter, x: Value, *, view: View) -> Value | None:
    """Simplify the identity view, and views of views, fills and index ranges."""
    if view.is_identity(x.type.shape):
        return x
    if filled := r.match(x, ops.full):
        return r.emit(ops.full, filled.inputs[0], shape=view.shape, device=x.type.device)
    if inner := r.match(x, ops.view):
        combined = inner.attrs["view"].compose(view)
        return None if combined is None else r.emit(ops.view, inner.inputs[0], view=combined)
    if r.match(x, ops.iota) and len(view.shape) == 1 and view.offset == 0 and view.is_contiguous():
        return r.emit(ops.iota, size=view.shape[0], device=x.type.device)
    return None


@rule(ops.view)
def _view_of_update(r: Rewriter, x: Value, *, view: View) -> Value | None:
    """Forward the value that was stored into exactly these elements, if later stores write other elements.

    If no store wrote the elements, the view still reads the newest array: reading an older array would extend
    its live range, and memory that is still read cannot be overwritten in place.
    """
    low, high = view.span()
    for _ in range(_MAX_STORES):
        node = r.match(x, ops.update)
        if node is None:
            return None
        (base, value), stored = node.inputs, node.attrs["view"]
        start, end = stored.span()
        if not (end <= low or high <= start):  # decides most stores of a loop quickly
            if same(stored, view):
                return r.emit(ops.view, value, view=View.of_shape(view.shape))
            if not disjoint(stored, view, x.type.shape):
                return None
        x = base
    return None


@rule(ops.update)
def _update(r: Rewriter, base: Value, x: Value, *, view: View) -> Value | None:
    """Simplify stores of no elements, of all elements, or of the elements' present values."""
    if view.size == 0:
        return base
    covering = inverse(view, base.type.shape)
    if covering is not None:
        return r.emit(ops.view, x, view=covering)
    source = r.match(x, ops.view)
    if source and source.inputs[0] is base and same(source.attrs["view"], view):
        return base
    return None


@rule(ops.update)
def _update_in_parts(r: Rewriter, base: Value, x: Value, *, view: View) -> Value | None:
    """Split the store of a concatenation of few parts into one store for each part."""
    parts: list[tuple[Value, View]] = []
    while (store := r.match(x, ops.update)) is not None:
        composed = view.compose(store.attrs["view"])
        if composed is None or len(parts) == _MAX_PARTS:
            return None
        parts.append((store.inputs[1], composed))
        x = store.inputs[0]
    if not parts or r.match(x, ops.empty) is None:
        return None
    for part, composed in reversed(parts):
        base = r.emit(ops.update, base, part, view=composed)
    return base


@rule(ops.gather)
def _stored_element(r: Rewriter, x: Value, index: Value, *, axis: int) -> Value | None:
    """Forward what was just stored at this single index."""
    node = r.match(x, ops.scatter)
    if node is None or node.attrs["axis"] != axis or index.type.size != 1:
        return None
    _, stored, written = node.inputs
    if written.type.size != 1 or _same_elements(r, written) is not _same_elements(r, index):
        return None
    extents = x.type.shape
    return r.emit(
        ops.view, stored, view=View.of_shape((*extents[:axis], *index.type.shape, *extents[axis + 1 :]))
    )


def _same_elements(r: Rewriter, x: Value) -> Value:
    """Return the single element that `x` views."""
    node = r.match(x, ops.view)
    return node.inputs[0] if node is not None and node.inputs[0].type.size == 1 else x


# -------------------------------------------------------------------------------------------------- devices


@rule(ops.copy_to)
def _copy_to(r: Rewriter, x: Value, *, device: Device, priority: int = 0) -> Value | None:
    """Simplify copies to the same device, of copies and of fills. (`cse` merges equal copies.)"""
    if device == x.type.device:
        return x
    if filled := r.match(x, ops.full):
        return r.emit(ops.full, filled.inputs[0], shape=x.type.shape, device=device)
    if inner := r.match(x, ops.copy_to):
        return r.emit(ops.copy_to, inner.inputs[0], device=device, priority=priority)
    return None


@rule(ops.fft)
def _one_axis_at_a_time(r: Rewriter, x: Value, *, axes: tuple[int, ...], inverse: bool) -> Value | None:
    """Split a transform along several axes if kernels transform one; as in NumPy, the last comes first."""
    if len(axes) < 2 or tuning_of(x.type.device).several_axes:
        return None
    for axis in reversed(axes):
        x = r.emit(ops.fft, x, axes=(axis,), inverse=inverse)
    return x
