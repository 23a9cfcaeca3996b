"""Immediate execution of single operations on small arrays by kernels, without recording, launch or variable.

Most operators do not equal NumPy's bit for bit (`Trait.EXACT`), so they are always computed by their kernels.
For each form of the operands (dtypes, shapes, strides) a graph of one operator is compiled and cached as a
*direct call* (`tracejit.engine.direct`). An operation then only looks up the call and allocates its result.

>>> import numpy as np
>>> from tracejit.ops import tanh
>>> compute(tanh, (np.zeros(3, np.float32),), {})
array([0., 0., 0.], dtype=float32)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tracejit import compile
from tracejit.config import config
from tracejit.engine.direct import Direct
from tracejit.errors import TracejitError, locate
from tracejit.forking import make_lock
from tracejit.frontend.arrays import machine_code
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import number_type
from tracejit.ir.evaluate import evaluate_operator
from tracejit.ir.graph import Builder, Graph, Value
from tracejit.ir.op import Op, Trait
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View
from tracejit.ops import matmul
from tracejit.ops import view as view_op

MAX_CALLS = 1024  # cached direct calls of one operator
MAX_WORK = 1 << 16  # multiplications of a product: about the time of a launch
UNSUPPORTED = frozenset({Trait.HOST, Trait.ORDERED, Trait.CAN_FAIL})


class Number(NamedTuple):
    """A Python number as an operand: its bits, in the low bytes of a 64-bit integer, and its dtype."""

    bits: int
    dtype: np.dtype


class DirectCall(NamedTuple):
    """A call that computes one operation on operands of one form; `direct` owns the machine code."""

    run: Callable[..., int]
    shape: tuple[int, ...]
    dtype: np.dtype
    direct: Direct | None


DirectOperand = np.ndarray | Number

DirectFunction = Callable[..., "np.ndarray | None"]
"""``compute(*operands)`` returns the result of one operation as a new array in C order, or None if the
operation has to be recorded. Raises the errors of the operator's typing rule, with the user's line."""

_computers: dict[Hashable, DirectFunction] = {}
_lock = make_lock()


def compute(op: Op, operands: tuple[DirectOperand, ...], attrs: Mapping[str, Any]) -> np.ndarray | None:
    """Compute ``op(*operands, **attrs)``, see `DirectFunction`.

    Elementwise operators broadcast their operands, which must have the dtype in which the operator computes.
    """
    try:
        return _computers[op, *attrs.items(), len(operands)](*operands)
    except KeyError:
        return computer(op, len(operands), attrs)(*operands)
    except TypeError:  # an attribute that cannot be hashed
        return None


def computer(op: Op, arity: int, attrs: Mapping[str, Any]) -> DirectFunction:
    """Return the function that computes an operator with these attributes. Frequent callers cache it."""
    key = (op, *attrs.items(), arity)
    function = _computers.get(key)
    if function is None:
        function = _computers[key] = {1: _unary, 2: _binary}.get(arity, _any)(_Calls(op, attrs))
    return function


def _unary(calls: _Calls) -> DirectFunction:
    def compute(x: np.ndarray) -> np.ndarray | None:
        if config.check:
            return None  # only launches are checked against NumPy
        form = x.dtype, x.shape, x.strides
        call = calls[form] if form in calls else calls.add(form, (x,))
        if call is None:
            return None
        out = np.empty(call.shape, call.dtype)
        call.run(x, out)
        return out

    return compute


def _binary(
    calls: _Calls, keep: Callable[[np.ndarray, Any, DirectCall], None] | None = None
) -> DirectFunction:
    """Return the function for two operands; `keep` is notified of every call that runs."""

    def compute(x1: DirectOperand, x2: DirectOperand) -> np.ndarray | None:
        if config.check:
            return None
        form: Hashable
        second: Any
        if type(x1) is not np.ndarray:
            return general(x1, x2)
        if isinstance(x2, Number):
            form, second = (x1.dtype, x1.shape, x1.strides, x2.dtype, None), x2.bits
        elif x1.dtype is x2.dtype and x1.shape == x2.shape:
            form, second = (x1.dtype, x1.shape, x1.strides, x2.strides), x2
        else:
            form, second = (x1.dtype, x1.shape, x1.strides, x2.dtype, x2.shape, x2.strides), x2
        call = calls[form] if form in calls else calls.add(form, (x1, x2))
        if call is None:
            return None
        out = np.empty(call.shape, call.dtype)
        call.run(x1, second, out)
        if keep is not None:
            keep(x1, x2, call)
        return out

    general = _any(calls)
    return compute


def _any(calls: _Calls) -> DirectFunction:
    def compute(*operands: DirectOperand) -> np.ndarray | None:
        if config.check:
            return None
        form = tuple([(x.dtype, x.shape, x.strides) if type(x) is np.ndarray else x.dtype for x in operands])
        call = calls[form] if form in calls else calls.add(form, operands)
        if call is None:
            return None
        out = np.empty(call.shape, call.dtype)
        call.run(*[x.bits if isinstance(x, Number) else x for x in operands], out)
        return out

    return compute


class _Calls(dict[Hashable, "DirectCall | None"]):
    """The direct calls of an operator with fixed attributes, by the forms of its operands."""

    def __init__(self, op: Op, attrs: Mapping[str, Any]) -> None:
        super().__init__()
        self.op, self.attrs = op, attrs

    def add(self, form: Hashable, operands: tuple[DirectOperand, ...]) -> DirectCall | None:
        """Compile and cache the call for operands of a new form; None if there is none."""
        call = None
        if UNSUPPORTED.isdisjoint(self.op.traits) and all(map(_has_regular_strides, operands)):
            graph = _graph(self.op, operands, self.attrs)
            if graph is not None:
                call = _compiled(graph) if _has_elements(operands) else self.of_empty(graph)
        with _lock:
            if len(self) >= MAX_CALLS:
                for old in list(self)[: MAX_CALLS // 4]:
                    del self[old]
            self[form] = call
        return call

    def of_empty(self, graph: Graph) -> DirectCall:
        """Return the call for operands of which one has no elements: NumPy computes the result."""
        result = graph.outputs[0].type

        def run(*arguments: Any) -> int:
            *operands, out = arguments
            if out.size:  # if not, numbers among the operands are bits, and need no decoding
                (computed,) = evaluate_operator(self.op, operands, self.attrs, (result,))
                out[...] = computed.reshape(out.shape)
            return 0

        return DirectCall(run, result.shape, result.dtype, None)


class _Products(_Calls):
    """The direct calls of products of vectors and matrices. Vectors are rows or columns in the graph."""

    def add(self, form: Hashable, operands: tuple[DirectOperand, ...]) -> DirectCall | None:
        a, b = operands
        assert isinstance(a, np.ndarray)
        assert isinstance(b, np.ndarray)
        call = super().add(form, (a if a.ndim == 2 else a[None], b if b.ndim == 2 else b[:, None]))
        if call is not None:
            call = self[form] = call._replace(shape=(*a.shape[:-1], *b.shape[1:]))
        return call


def _has_regular_strides(x: DirectOperand) -> bool:
    """Whether the strides of an operand are non-negative multiples of the element size."""
    return isinstance(x, Number) or all(s >= 0 and s % x.itemsize == 0 for s in x.strides)


def _has_elements(operands: tuple[DirectOperand, ...]) -> bool:
    return all(isinstance(x, Number) or x.size > 0 for x in operands)


def _graph(op: Op, operands: tuple[DirectOperand, ...], attrs: Mapping[str, Any]) -> Graph | None:
    """Build a graph of one operator on operands of these forms; None if the operation is not small."""
    builder = Builder()
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    shape = None
    if Trait.ELEMENTWISE in op.traits:
        try:
            shape = np.broadcast_shapes(*(x.shape for x in arrays))
        except ValueError:
            return None  # the recorder raises the error
    values = [_input(builder, x, shape) for x in operands]
    try:
        result = builder.append(op, tuple(values), None, attrs)
    except TracejitError as error:
        raise locate(error, user_location()) from None
    if isinstance(result, tuple) or result.type.on_host:
        return None
    shapes = [*(v.type.shape for v in values), result.type.shape]
    if max(map(math.prod, shapes)) > MAX_WORK or (op.work and op.work(shapes, attrs) > MAX_WORK):
        return None
    return builder.graph([result])


def _input(builder: Builder, x: DirectOperand, shape: tuple[int, ...] | None) -> Value:
    """Return an operand as a value: an input for the memory that it spans, viewed, broadcast to `shape`."""
    if isinstance(x, Number):
        return builder.input(number_type(x.dtype))
    view = View(
        0, x.shape, tuple([s // x.itemsize if n > 1 else 0 for s, n in zip(x.strides, x.shape, strict=True)])
    )
    extents = x.shape if view.is_contiguous() else (view.span()[1],)
    value = builder.input(ArrayType(extents, x.dtype))
    broadcast = view if shape is None or shape == x.shape else view.broadcast(shape)
    return value if broadcast.is_identity(extents) else builder.emit(view_op, value, view=broadcast)


def _compiled(graph: Graph) -> DirectCall | None:
    program = compile.compile_graph(graph).program
    if not Direct.admits(program):
        return None
    direct, result = Direct(program), graph.outputs[0].type
    return DirectCall(direct.call, result.shape, result.dtype, direct)


product = _binary(_Products(matmul, {}), machine_code.keep_product)
"""The matrix product of two arrays of one dtype and one or two dimensions, see `DirectFunction`."""
