"""NumPy's window functions for spectra and filters, as constants of the program, and the function `i0`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import DTypeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import is_floating

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray


def _window(name: str, points: Any, *parameters: float) -> Any:
    values = getattr(np, name)(integer(f"{name}: M", points), *parameters)
    return asarray(values, dtype="float32")


@public
def bartlett(M: int) -> NDArray:
    """The triangular window of `M` points, 0 at both ends: float32[M].

    Raises ArgumentError for a value that is not an integer.

    >>> import tracejit as tj
    >>> tj.bartlett(5)
    NDArray([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    return _window("bartlett", M)


@public
def blackman(M: int) -> NDArray:
    """Blackman's window of `M` points, ``0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1))``.

    The result is float32[M]. Raises ArgumentError for a value that is not an integer.

    >>> import tracejit as tj
    >>> tj.blackman(3).shape
    (3,)
    """
    return _window("blackman", M)


@public
def hamming(M: int) -> NDArray:
    """Hamming's window of `M` points, ``0.54 - 0.46 cos(2 pi n / (M - 1))``: float32[M].

    Raises ArgumentError for a value that is not an integer.

    >>> import tracejit as tj
    >>> tj.hamming(3)
    NDArray([0.08, 1.  , 0.08], dtype=float32)
    """
    return _window("hamming", M)


@public
def hanning(M: int) -> NDArray:
    """Von Hann's window of `M` points, ``0.5 - 0.5 cos(2 pi n / (M - 1))``: float32[M].

    Raises ArgumentError for a value that is not an integer.

    >>> import tracejit as tj
    >>> tj.hanning(3)
    NDArray([0., 1., 0.], dtype=float32)
    """
    return _window("hanning", M)


@public
def kaiser(M: int, beta: float) -> NDArray:
    """Kaiser's window of `M` points with the shape parameter `beta`: float32[M].

    Raises ArgumentError for a value that is not an integer.

    >>> import tracejit as tj
    >>> tj.kaiser(3, 0.0)
    NDArray([1., 1., 1.], dtype=float32)
    """
    return _window("kaiser", M, beta)


POINTS = 128
"""Number of intervals of the trapezoidal rule for `i0`, which is exact to double precision up to the
overflow of `i0`, beyond 700."""


@public
def i0(x: Any, /) -> NDArray:
    """The modified Bessel function of the first kind and order 0, as in Kaiser's window.

    The shape is unchanged; integers become floats.
    Raises DTypeError for complex numbers.
    Method: the trapezoidal rule for ``exp(x cos t)`` over a half circle, which converges exponentially
    (Trefethen and Weideman, "The exponentially convergent trapezoidal rule", 2014).

    >>> import tracejit as tj
    >>> tj.i0(tj.asarray([0.0, 1.0])).round(4)
    NDArray([1.    , 1.2661], dtype=float32)
    """
    array = asarray(x)
    if array.dtype.kind == "c":
        raise locate(
            DTypeError(f"i0: not defined for {array.dtype}; take the absolute value"), user_location()
        )
    kind = array.dtype if is_floating(array.dtype) else np.dtype("float64")
    magnitude = dispatch.apply(ops.abs, dispatch.cast(array, kind))
    angles = np.pi * np.arange(POINTS + 1) / POINTS
    weights = np.where(np.arange(POINTS + 1) % POINTS, 1.0, 0.5) / POINTS
    exponent = dispatch.cast(asarray(np.cos(angles) - 1), kind)
    terms = dispatch.apply(ops.exp, magnitude[..., None] * exponent) * dispatch.cast(asarray(weights), kind)
    return dispatch.apply(ops.exp, magnitude) * terms.sum(axis=-1)
