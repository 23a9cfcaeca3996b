"""Single operations on small arrays by their kernels, at once: no recording, no launch, no variable.

Most operators are not NumPy's bit for bit (`Trait.EXACT`), so their kernels compute them wherever they stand.
A graph of one operator is compiled for each form of operands (dtypes, shapes, strides) and kept as a *direct
call* (`tracejit.engine.direct`): what remains for an operation is to look it up and to allocate its result.

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
from tracejit.ir.evaluate import meaning
from tracejit.ir.graph import Builder, Graph, Value
from tracejit.ir.op import Op, Trait
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View
from tracejit.ops import matmul
from tracejit.ops import view as view_op

KEPT = 1024  # direct calls of one operator
MOST_WORK = 1 << 16  # multiplications of a product: about as long as a launch takes
NEVER = frozenset({Trait.HOST, Trait.ORDERED, Trait.CAN_FAIL})


class Number(NamedTuple):
    """A Python number as an operand: its bits, in the low bytes of 8, and its dtype."""

    bits: int
    dtype: np.dtype


class DirectCall(NamedTuple):
    """The call that computes one operation on operands of one form; `direct` owns the code."""

    run: Callable[..., int]
    shape: tuple[int, ...]
    dtype: np.dtype
    direct: Direct | None


Operand = np.ndarray | Number

Compute = Callable[..., "np.ndarray | None"]
"""``compute(*operands)``: the result of one operation as a new array in C order; None for what is to be
recorded. Raises what the operator's typing rule raises, with the user's line."""

_computers: dict[Hashable, Compute] = {}
_lock = make_lock()


def compute(op: Op, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> np.ndarray | None:
    """``op(*operands, **attrs)``, see `Compute`.

    Elementwise operators broadcast their operands, whose dtypes are the ones that the operator computes in.
    """
    try:
        return _computers[op, *attrs.items(), len(operands)](*operands)
    except KeyError:
        return computer(op, len(operands), attrs)(*operands)
    except TypeError:  # an attribute that cannot be hashed
        return None


def computer(op: Op, arity: int, attrs: Mapping[str, Any]) -> Compute:
    """The function that computes an operator with these attributes; who calls it often keeps it."""
    key = (op, *attrs.items(), arity)
    found = _computers.get(key)
    if found is None:
        found = _computers[key] = {1: _unary, 2: _binary}.get(arity, _any)(_Calls(op, attrs))
    return found


def _unary(calls: _Calls) -> Compute:
    def compute(x: np.ndarray) -> np.ndarray | None:
        if config.check:
            return None  # launches are compared with NumPy
        form = x.dtype, x.shape, x.strides
        call = calls[form] if form in calls else calls.add(form, (x,))
        if call is None:
            return None
        out = np.empty(call.shape, call.dtype)
        call.run(x, out)
        return out

    return compute


def _binary(calls: _Calls, keep: Callable[[np.ndarray, Any, DirectCall], None] | None = None) -> Compute:
    """`keep` is told of every call that runs."""

    def compute(x1: Operand, x2: Operand) -> np.ndarray | None:
        if config.check:
            return None
        form: Hashable
        given: Any
        if type(x1) is not np.ndarray:
            return general(x1, x2)
        if isinstance(x2, Number):
            form, given = (x1.dtype, x1.shape, x1.strides, x2.dtype, None), x2.bits
        elif x1.dtype is x2.dtype and x1.shape == x2.shape:
            form, given = (x1.dtype, x1.shape, x1.strides, x2.strides), x2
        else:
            form, given = (x1.dtype, x1.shape, x1.strides, x2.dtype, x2.shape, x2.strides), x2
        call = calls[form] if form in calls else calls.add(form, (x1, x2))
        if call is None:
            return None
        out = np.empty(call.shape, call.dtype)
        call.run(x1, given, out)
        if keep is not None:
            keep(x1, x2, call)
        return out

    general = _any(calls)
    return compute


def _any(calls: _Calls) -> Compute:
    def compute(*operands: Operand) -> np.ndarray | None:
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
    """The direct calls of an operator with some attributes by the forms of its operands."""

    def __init__(self, op: Op, attrs: Mapping[str, Any]) -> None:
        super().__init__()
        self.op, self.attrs = op, attrs

    def add(self, form: Hashable, operands: tuple[Operand, ...]) -> DirectCall | None:
        """Find out how operands of a new form are computed."""
        call = None
        if NEVER.isdisjoint(self.op.traits) and all(map(_is_plain, operands)):
            graph = _graph(self.op, operands, self.attrs)
            if graph is not None:
                call = _compiled(graph) if _has_elements(operands) else self.of_nothing(graph)
        with _lock:
            if len(self) >= KEPT:
                for old in list(self)[: KEPT // 4]:
                    del self[old]
            self[form] = call
        return call

    def of_nothing(self, graph: Graph) -> DirectCall:
        """The call for operands of which one has no elements: NumPy computes the result."""
        result = graph.outputs[0].type

        def run(*given: Any) -> int:
            *operands, out = given
            if out.size:  # else numbers among the operands are bits here, and need not be told
                (found,) = meaning(self.op, operands, self.attrs, (result,))
                out[...] = found.reshape(out.shape)
            return 0

        return DirectCall(run, result.shape, result.dtype, None)


class _Products(_Calls):
    """Calls of products of vectors and matrices. Vectors are rows or columns in the graph."""

    def add(self, form: Hashable, operands: tuple[Operand, ...]) -> DirectCall | None:
        a, b = operands
        assert isinstance(a, np.ndarray)
        assert isinstance(b, np.ndarray)
        call = super().add(form, (a if a.ndim == 2 else a[None], b if b.ndim == 2 else b[:, None]))
        if call is not None:
            call = self[form] = call._replace(shape=(*a.shape[:-1], *b.shape[1:]))
        return call


def _is_plain(x: Operand) -> bool:
    """Whether an operand lies upwards in memory, in whole steps."""
    return isinstance(x, Number) or all(s >= 0 and s % x.itemsize == 0 for s in x.strides)


def _has_elements(operands: tuple[Operand, ...]) -> bool:
    return all(isinstance(x, Number) or x.size > 0 for x in operands)


def _graph(op: Op, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Graph | None:
    """A graph of one operator on operands of these forms; None if it is no small operation."""
    builder = Builder()
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    shape = None
    if Trait.ELEMENTWISE in op.traits:
        try:
            shape = np.broadcast_shapes(*(x.shape for x in arrays))
        except ValueError:
            return None  # the recorder says so
    values = [_input(builder, x, shape) for x in operands]
    try:
        result = builder.append(op, tuple(values), None, attrs)
    except TracejitError as error:
        raise locate(error, user_location()) from None
    if isinstance(result, tuple) or result.type.on_host:
        return None
    shapes = [*(v.type.shape for v in values), result.type.shape]
    if max(map(math.prod, shapes)) > MOST_WORK or (op.work and op.work(shapes, attrs) > MOST_WORK):
        return None
    return builder.graph([result])


def _input(builder: Builder, x: Operand, shape: tuple[int, ...] | None) -> Value:
    """An operand as a value: the memory that it spans, and a view of that, broadcast to `shape`."""
    if isinstance(x, Number):
        return builder.input(number_type(x.dtype))
    seen = View(
        0, x.shape, tuple([s // x.itemsize if n > 1 else 0 for s, n in zip(x.strides, x.shape, strict=True)])
    )
    extents = x.shape if seen.is_contiguous() else (seen.span()[1],)
    value = builder.input(ArrayType(extents, x.dtype))
    wide = seen if shape is None or shape == x.shape else seen.broadcast(shape)
    return value if wide.is_whole(extents) else builder.emit(view_op, value, view=wide)


def _compiled(graph: Graph) -> DirectCall | None:
    program = compile.compile_graph(graph).program
    if not Direct.admits(program):
        return None
    direct, result = Direct(program), graph.outputs[0].type
    return DirectCall(direct.call, result.shape, result.dtype, direct)


product = _binary(_Products(matmul, {}), machine_code.keep_product)
"""The matrix product of two arrays of one or two dimensions, of one dtype, see `Compute`."""
