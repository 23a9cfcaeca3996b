"""NumPy's array creation functions, with NumPy's signatures and dtypes, which return NDArrays.

They differ from the functions of `tj` in their default dtypes: where `tj.zeros` uses float32, these use
float64, and complex128 for complex numbers. They are members of `tracejit.numpy`, and may replace NumPy's own
functions in a traced body (`surroundings.numpy_module`). `like` is accepted, as in NumPy, and has no effect.

>>> from tracejit.frontend.arrays.makers import MAKERS
>>> MAKERS["zeros"](2), MAKERS["full"](2, 7), MAKERS["array"]([0.5])
(NDArray([0., 0.], dtype=float64), NDArray([7, 7], dtype=int64), NDArray([0.5], dtype=float64))
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import creation, grids, ranges
from tracejit.frontend.arrays.interop import signature_of
from tracejit.frontend.recording.numpy_views import Watched

FLOAT64, COMPLEX128 = np.dtype("float64"), np.dtype("complex128")


def _of_numbers(*numbers: Any) -> np.dtype | None:
    """Return NumPy's dtype of floating and complex Python numbers.

    Return None if all are integers, or one is not a Python number: the creation function then infers the
    dtype.
    """
    if not all(isinstance(x, (bool, int, float, complex)) for x in numbers):
        return None
    if any(isinstance(x, complex) for x in numbers):
        return COMPLEX128
    return FLOAT64 if any(isinstance(x, float) for x in numbers) else None


def _floating(*numbers: Any) -> np.dtype | None:
    """Return NumPy's dtype of numbers in functions that also convert integers to floats."""
    return _of_numbers(*numbers, 1.0)


def _maker(function: Callable[..., Any], dtype_of: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    """Wrap `function`: without a dtype it uses that which `dtype_of` returns for the arguments."""

    @functools.wraps(function)
    def make(*args: Any, **options: Any) -> Any:
        options.pop("like", None)
        bound = signature_of(function).bind(*args, **options)
        if bound.arguments.get("dtype") is None and (dtype := dtype_of(bound.arguments)) is not None:
            bound.arguments["dtype"] = dtype
        return function(*bound.args, **bound.kwargs)

    return make


def _always_double(arguments: dict[str, Any]) -> np.dtype:
    return FLOAT64


# -- from data -----------------------------------------------------------------------------------------------


def _dtype_of(obj: Any) -> Any:
    """Return the dtype that NumPy infers for `obj`; None if it must be inferred, or refused, by `asarray`."""
    if isinstance(obj, list | tuple):
        kinds = [kind for item in obj if (kind := _dtype_of(item)) is not None]
        return np.result_type(*kinds) if kinds else FLOAT64
    if isinstance(obj, ArrayCore | np.ndarray | np.generic):
        return obj.dtype
    if isinstance(obj, bool):
        return np.dtype(bool)
    return np.dtype("int64") if isinstance(obj, int) else _of_numbers(obj)


def _of_data(arguments: dict[str, Any]) -> Any:
    data = arguments.get("obj", arguments.get("x"))
    return _dtype_of(data) if isinstance(data, bool | int | float | complex | list | tuple) else None


def _like(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function such as `zeros_like` to accept any object that NumPy converts to an array."""

    @functools.wraps(function)
    def make(x: Any, /, *args: Any, **options: Any) -> Any:
        if isinstance(x, Watched):  # only its shape and dtype are needed
            x = ArrayCore.from_numpy(np.empty(x.shape, x.dtype))
        return function(asarray(x), *args, **options)

    return make


array = _maker(creation.array, _of_data)
asarray = _maker(creation.asarray, _of_data)


# -- filled, and ranges --------------------------------------------------------------------------------------


def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None, like: Any = None
) -> Any:
    """NumPy's `arange`: float64 where a bound is a float."""
    chosen = _of_numbers(*(x for x in (start, stop, step) if x is not None)) if dtype is None else dtype
    return ranges.arange(start, stop, 1 if step is None else step, dtype=chosen, device=device)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    order: str = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Any:
    """NumPy's `eye`: float64 unless a dtype is given."""
    creation.check_order("eye", order)
    return ranges.eye(N, M, k, FLOAT64 if dtype is None else dtype, device=device)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, like: Any = None) -> Any:
    """NumPy's `tri`: float64 unless a dtype is given."""
    return grids.tri(N, M, k, FLOAT64 if dtype is None else dtype)


class _ClassOfArrays(type):
    """The metaclass that makes NumPy's `ndarray` callable and usable with `isinstance`."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return _ndarray(*args, **options)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, ArrayCore)


_ndarray = _maker(creation.ndarray, _always_double)


class ndarray(metaclass=_ClassOfArrays):
    """The class of arrays under NumPy's name. ``ndarray(shape, dtype)`` is `empty`."""


MAKERS: dict[str, Callable[..., Any]] = {
    "arange": arange,
    "array": array,
    "asanyarray": _maker(creation.asarray, _of_data),
    "asarray": asarray,
    "ascontiguousarray": _maker(creation.ascontiguousarray, _of_data),
    "asfortranarray": _maker(creation.asfortranarray, _of_data),
    "empty": _maker(creation.empty, _always_double),
    "empty_like": _like(creation.empty_like),
    "eye": eye,
    "fromfunction": _maker(grids.fromfunction, _always_double),
    "full": _maker(creation.full, lambda bound: _of_numbers(bound["fill_value"])),
    "full_like": _like(creation.full_like),
    "geomspace": _maker(ranges.geomspace, lambda bound: _floating(bound["start"], bound["stop"])),
    "identity": _maker(grids.identity, _always_double),
    "linspace": _maker(ranges.linspace, lambda bound: _floating(bound["start"], bound["stop"])),
    "logspace": _maker(ranges.logspace, lambda bound: _floating(bound["start"], bound["stop"])),
    "ndarray": ndarray,
    "ones": _maker(creation.ones, _always_double),
    "ones_like": _like(creation.ones_like),
    "tri": tri,
    "zeros": _maker(creation.zeros, _always_double),
    "zeros_like": _like(creation.zeros_like),
}
"""Array creation functions, by NumPy's names."""
