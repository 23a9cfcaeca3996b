"""The public elementwise functions: one for each operator whose declaration has an arity.

There is not a list of functions: name, operands, dtypes, promotion and docstring are derived from the
declaration (`tracejit.ops`), and NumPy's name of the function from the ufunc that defines its meaning. A
declared operator is therefore public.

>>> import tracejit as tj
>>> tj.add(tj.asarray([1, 2, 3]), 0.5)
NDArray([1.5, 2.5, 3.5], dtype=float64)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import dispatch, immediate
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.public import DECLARED, names_of, public
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import is_number
from tracejit.frontend.recording.recording import thread
from tracejit.ir.op import OPS, Op
from tracejit.ir.types import DTYPES, ArrayType, is_floating, name_of
from tracejit.ops import copy as copy_op
from tracejit.ops import pow as pow_op
from tracejit.ops import round as round_op
from tracejit.ops import sqrt as sqrt_op
from tracejit.ops import square as square_op
from tracejit.ops import stop_gradient as stop_gradient_op
from tracejit.ops import where as where_op

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

    def __getattr__(name: str) -> Any: ...


PROMOTION = {
    "same": "Operands are promoted as in NumPy; Python numbers adopt the dtype of the arrays.",
    "float": "Integers and bools are promoted to NumPy's floating dtype for them (float16 for 8 bits, "
    "float32 for 16, otherwise float64).",
    "bool": "Operands are interpreted as truth values.",
}


def _describe(op: Op) -> str:
    """Return the docstring of a public function, from its declaration."""
    dtypes = ", ".join(sorted(map(name_of, op.admits)))
    widest = next(dtype for dtype in reversed(DTYPES) if dtype in op.admits)
    returns_bool = op.infer(*[ArrayType((), widest)] * op.arity).dtype == bool
    is_unary = op.arity == 1
    return (
        f"{op.doc}\n\n"
        f"{'x: an array of any shape' if is_unary else 'x1, x2: arrays of shapes that broadcast'}, "
        "or numbers.\n"
        f"{PROMOTION[op.promotion or 'same']}\n"
        f"Returns an array of {'the same' if is_unary else 'the broadcast'} shape and of "
        f"{'dtype bool' if returns_bool else 'the common dtype'}, computed in\n{dtypes}.\n"
        f"Raises {'' if is_unary else 'ShapeError if shapes do not broadcast, '}DTypeError for other dtypes, "
        f"ArgumentError for other objects.\n{_example(op)}"
    )


def _example(op: Op) -> str:
    """Return the example of a declaration as a session of the Python prompt."""
    if op.example is None:
        return ""
    operands, elements, dtype = op.example
    arguments = [f"tj.asarray({_source(x)})" if isinstance(x, list) else _source(x) for x in operands]
    return (
        "\n>>> import tracejit as tj\n"
        f">>> tj.{op.name}({', '.join(arguments)})\nNDArray({elements}, dtype={dtype})\n"
    )


def _source(x: Any) -> str:
    """Return the source of a number or a list of numbers."""
    if isinstance(x, list):
        return f"[{', '.join(map(_source, x))}]"
    return repr(x) if math.isfinite(x) else f"tj.{x}"


def _public(op: Op) -> Callable[..., Any]:
    """Create the public function of an elementwise operator."""

    compute: Callable[..., Any] = immediate.unary_of(op) if op.arity == 1 else immediate.binary_of(op)

    def unary(x: Any, /) -> Any:
        result = None if thread.busy else compute(x)
        return dispatch.record(op, x) if result is None else result

    def binary(x1: Any, x2: Any, /) -> Any:
        result = None if thread.busy else compute(x1, x2)
        return dispatch.record(op, x1, x2) if result is None else result

    function: Callable[..., Any] = unary if op.arity == 1 else binary
    function.__name__ = function.__qualname__ = op.name
    function.__module__ = __name__
    function.__doc__ = _describe(op)
    return function


@public
def pow(x1: Any, x2: Any, /) -> NDArray:
    """The first operand to the power of the second.

    Integers to a negative power raise ArgumentError, as in NumPy; a literal exponent of 2 is `square`.
    The result has the broadcast shape and the common dtype.
    Raises ShapeError if shapes do not broadcast, DTypeError for bool.

    >>> import tracejit as tj
    >>> tj.pow(tj.asarray([1, 2, 3]), 2)
    NDArray([1, 4, 9], dtype=int64)
    """
    if type(x2) is int and x2 == 2 and isinstance(x1, ArrayCore) and x1.dtype.kind != "b":
        return dispatch.apply(square_op, x1)
    if is_number(x2) and isinstance(x1, ArrayCore) and is_floating(x1.dtype) and x2 == 0.5:
        return dispatch.apply(sqrt_op, x1)  # as NumPy; it differs from pow at -inf and -0.0
    is_integer = isinstance(x2, int) and not isinstance(x2, bool)
    if is_integer and isinstance(x1, ArrayCore) and x1.dtype.kind in "biu" and x2 < 0:
        raise locate(
            ArgumentError(
                f"pow: integers to the negative power {x2} are no integers; cast the base to a float first"
            ),
            user_location(),
        )
    return dispatch.apply(pow_op, x1, x2)


@public(names="around", method=True)
def round(x: Any, /, decimals: int = 0) -> NDArray:
    """Round to the nearest number with `decimals` digits after the decimal point, ties to even.

    Negative decimals round to tens, hundreds, ... Real and imaginary parts of complex numbers are rounded
    separately. Shape and dtype are unchanged.
    Raises ArgumentError for integers with negative `decimals`; bools are refused.

    >>> import tracejit as tj
    >>> tj.round(tj.asarray([0.5, 1.5, 2.5]))
    NDArray([0., 2., 2.], dtype=float32)
    """
    digits = integer("round: decimals", decimals)
    array = dispatch.as_array("round", x)
    if array.dtype.kind == "c":
        return dispatch.apply(OPS["complex"], round(real(array), digits), round(imag(array), digits))
    if digits == 0:
        return dispatch.apply(round_op, array)
    if is_floating(array.dtype):
        if digits > 0:
            return dispatch.apply(round_op, array * 10.0**digits) / 10.0**digits
        return dispatch.apply(round_op, array / 10.0**-digits) * 10.0**-digits
    if digits > 0 and array.dtype.kind in "iu":
        return array.copy()
    raise locate(
        ArgumentError(
            f"round: {array.dtype} cannot be rounded to {digits} decimals; cast it to a float first"
        ),
        user_location(),
    )


@public
def positive(x: Any, /) -> NDArray:
    """A copy of the operand, which must not be bool.

    Shape and dtype are unchanged.
    Raises ArgumentError for bool and for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.positive(tj.asarray([-1, 2]))
    NDArray([-1,  2], dtype=int64)
    """
    array = dispatch.as_array("positive", x)
    if array.dtype == bool:
        raise locate(ArgumentError("positive: not defined for bool; cast it with astype"), user_location())
    return dispatch.emit(copy_op, array)


@overload
def where(condition: Any, /) -> tuple[NDArray, ...]: ...


@overload
def where(condition: Any, x1: Any, x2: Any, /) -> NDArray: ...


@public
def where(condition: Any, x1: Any = None, x2: Any = None, /) -> Any:
    """Elements of `x1` where `condition` is true, otherwise of `x2`; with one argument `nonzero` of it.

    All three broadcast; x1 and x2 are promoted to one dtype; a nonzero number in the condition is true.
    The result has the broadcast shape.
    Raises ShapeError if they do not, ArgumentError for an object that is not an array or number and for two
    arguments.

    >>> import tracejit as tj
    >>> tj.where(tj.asarray([True, False]), 1.0, tj.asarray([5, 6]))
    NDArray([1., 6.], dtype=float64)
    """
    if x1 is None and x2 is None:
        from tracejit.frontend.arrays.functions.sorting import nonzero  # imports this module

        return nonzero(condition)
    if x1 is None or x2 is None:
        raise locate(ArgumentError("where: give both x1 and x2, or neither"), user_location())
    computed = immediate.select(condition, x1, x2)
    return dispatch.apply(where_op, condition, x1, x2) if computed is None else computed


@public(method=True)
def clip(x: Any, min: Any = None, max: Any = None) -> NDArray:
    """Elements limited to the interval from `min` to `max`; a bound of None imposes no limit.

    `x`, `min` and `max` broadcast and are promoted as in NumPy; nan is unchanged. A Python integer outside
    the range of the dtype imposes no limit. The result has the broadcast shape.
    Raises ShapeError if they do not, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.clip(tj.asarray([-1, 3, 9]), 0, 5)
    NDArray([0, 3, 5], dtype=int64)
    """
    result = dispatch.as_array("clip", x)
    min, max = (bound if bound is None else dispatch.as_operand("clip", bound) for bound in (min, max))
    if result.dtype.kind in "iu":
        limits = np.iinfo(result.dtype)
        min = None if type(min) is int and min < limits.min else min
        max = None if type(max) is int and max > limits.max else max
    if min is None and max is None:
        return result.copy()
    if min is not None:
        result = FUNCTIONS["maximum"](result, min)
    return result if max is None else FUNCTIONS["minimum"](result, max)


@public
def real(x: Any, /) -> NDArray:
    """The real part: float32 or float64 for complex numbers; real arrays are returned unchanged.

    The shape is unchanged. Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.real(tj.asarray([1 + 2j, 3]))
    NDArray([1., 3.], dtype=float32)
    """
    array = dispatch.as_array("real", x)
    return dispatch.apply(OPS["real"], array) if array.dtype.kind == "c" else array


@public
def imag(x: Any, /) -> NDArray:
    """The imaginary part: float32 or float64 for complex numbers; zeros for real arrays.

    The shape is unchanged. Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.imag(tj.asarray([1 + 2j, 3]))
    NDArray([2., 0.], dtype=float32)
    """
    array = dispatch.as_array("imag", x)
    if array.dtype.kind == "c":
        return dispatch.apply(OPS["imag"], array)
    return dispatch.full(0, array.shape, array.dtype, array.device)


@public(method=True)
def conj(x: Any, /) -> NDArray:
    """The complex conjugate; real arrays are returned unchanged.

    Shape and dtype are unchanged. Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.conj(tj.asarray([1 + 2j, 3]))
    NDArray([1.-2.j, 3.-0.j], dtype=complex64)
    """
    array = dispatch.as_array("conj", x)
    return dispatch.apply(OPS["conj"], array) if array.dtype.kind == "c" else array


@public
def stop_gradient(x: Any, /) -> NDArray:
    """A copy of the operand through which no gradient is propagated.

    Shape and dtype are unchanged.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.grad(lambda x: (tj.stop_gradient(x) * x).sum())(tj.asarray([3.0]))
    NDArray([3.], dtype=float32)
    """
    return dispatch.emit(stop_gradient_op, dispatch.as_array("stop_gradient", x))


for _op in OPS.values():
    if _op.arity and _op.promotion and _op.name not in names_of(__name__):
        public(_public(_op))

FUNCTIONS: dict[str, Callable[..., Any]] = {
    declared.name: declared.value for declared in DECLARED[__name__].values() if not declared.is_other_name
}
"""Every public elementwise function, by name."""

globals().update(FUNCTIONS)
