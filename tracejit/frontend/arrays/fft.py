"""Discrete Fourier transforms: `tj.fft`, NumPy's functions and the array API's.

NumPy's routines compute them as tasks of the engine, in the precision of the operand: float32 and complex64
give complex64. `n` and `s` are extents to which an axis is first truncated or padded with zeros. `norm`
selects the direction that is divided by the number of elements: "backward", "forward", or "ortho" (both, by
its square root).

>>> import tracejit as tj
>>> tj.fft.fft(tj.asarray([1.0, 0.0, 0.0, 0.0]))
NDArray([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.axes import integer, normalize_axes, normalize_axis
from tracejit.frontend.arrays.devices import chosen_device
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.elementwise import conj
from tracejit.frontend.arrays.functions.movement import concat, roll
from tracejit.frontend.arrays.public import names_of, public
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import HALVES, is_floating, is_inexact

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

FLOAT32, FLOAT64 = np.dtype("float32"), np.dtype("float64")
SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _operand(name: str, x: Any, *, complex: bool) -> Any:
    """Return `x` in a floating dtype; with `complex`, in the complex dtype of the same precision."""
    array = dispatch.as_array(name, x)
    if not is_inexact(array.dtype):
        array = dispatch.cast(array, FLOAT64)
    if array.dtype in HALVES:
        array = dispatch.cast(array, FLOAT32)
    if complex and is_floating(array.dtype):
        return dispatch.cast(array, ops.complex.infer(array._storage.type, array._storage.type).dtype)
    if not complex and array.dtype.kind == "c":
        what = f"{name}: takes real numbers, got {array.dtype}; use fft, or take the real part"
        raise locate(DTypeError(what), user_location())
    return array


def _scaled(name: str, x: Any, count: int, norm: Any, *, inverse: bool) -> Any:
    """Divide `x` as `norm` requires for one direction of a transform of `count` elements."""
    if norm not in SWAPPED:
        what = f'{name}: norm is "backward", "ortho" or "forward", not {norm!r}'
        raise locate(ArgumentError(what), user_location())
    if norm == "ortho":
        return x / math.sqrt(count)
    return x / float(count) if (norm == "forward") != inverse else x


def _extent(name: str, n: Any) -> int:
    """Return an extent that a user passes, checked to be positive."""
    extent = integer(f"{name}: n", n)
    if extent < 1:
        what = f"{name}: a transform of {extent} elements; it needs 1 or more"
        raise locate(ShapeError(what), user_location())
    return extent


def _resized(x: Any, axis: int, extent: int) -> Any:
    """Truncate `x`, or pad it with zeros, to an extent along an axis."""
    current = x.shape[axis]
    if extent <= current:
        return x if extent == current else x[(*[slice(None)] * axis, slice(extent))]
    shape = (*x.shape[:axis], extent - current, *x.shape[axis + 1 :])
    return concat([x, dispatch.full(0, shape, x.dtype, x.device)], axis=axis)


def _plan(name: str, x: Any, s: Any, axes: Any) -> list[tuple[int, int | None]]:
    """Return the axes of a transform with the requested extents (None: unchanged), in order."""
    if axes is None:
        count = x.ndim if s is None else len(s)
        axes = range(x.ndim - count, x.ndim)
    axes = list(axes)
    sizes = [None] * len(axes) if s is None else list(s)
    if len(sizes) != len(axes):
        what = f"{name}: {len(sizes)} extents for {len(axes)} axes; give one for each"
        raise locate(ArgumentError(what), user_location())
    extents = [None if n is None or n == -1 else _extent(name, n) for n in sizes]
    return [(normalize_axis(name, a, x.ndim), n) for a, n in zip(axes, extents, strict=True)]


def _complex(name: str, x: Any, plan: Sequence[tuple[int, int | None]], norm: Any, *, inverse: bool) -> Any:
    """The complex transform of `x` along the axes of `plan`."""
    result = _operand(name, x, complex=True)
    for axis, extent in plan:
        result = _resized(result, axis, result.shape[axis] if extent is None else extent)
    axes = tuple(axis for axis, _ in plan)
    if len(set(axes)) < len(axes):  # repeated axes are transformed one after the other
        for axis in axes:
            result = dispatch.emit(ops.fft, result, axes=(axis,), inverse=inverse)
    elif axes:
        result = dispatch.emit(ops.fft, result, axes=axes, inverse=inverse)
    return _scaled(name, result, math.prod(result.shape[a] for a in axes), norm, inverse=inverse)


@public
def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> NDArray:
    """The discrete Fourier transform along an axis.

    The result is complex and has `n` elements along the axis.
    Raises AxisError for an axis out of range, ShapeError for an axis without elements, ArgumentError for
    another `norm`.

    >>> import tracejit as tj
    >>> tj.fft.fft(tj.asarray([1.0, 2.0])).real
    NDArray([ 3., -1.], dtype=float32)
    """
    array = dispatch.as_array("fft", a)
    return _complex("fft", array, _plan("fft", array, [n], [axis]), norm, inverse=False)


@public
def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> NDArray:
    """The inverse of `fft` along an axis.

    The result is complex and has `n` elements along the axis.
    Raises AxisError for an axis out of range, ShapeError for an axis without elements, ArgumentError for
    another `norm`.

    >>> import tracejit as tj
    >>> tj.fft.ifft(tj.asarray([3.0, -1.0])).real
    NDArray([1., 2.], dtype=float32)
    """
    array = dispatch.as_array("ifft", a)
    return _complex("ifft", array, _plan("ifft", array, [n], [axis]), norm, inverse=True)


@public
def fftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> NDArray:
    """The discrete Fourier transform along several axes (None: all, or the last ``len(s)``).

    The result is complex and has the extents `s` along the axes.
    Raises AxisError for an axis out of range, ShapeError for an axis without elements, ArgumentError for
    another `norm` or number of extents.

    >>> import tracejit as tj
    >>> tj.fft.fftn(tj.ones((2, 2))).real
    NDArray([[4., 0.],
             [0., 0.]], dtype=float32)
    """
    array = dispatch.as_array("fftn", a)
    return _complex("fftn", array, _plan("fftn", array, s, axes), norm, inverse=False)


@public
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> NDArray:
    """The inverse of `fftn`.

    The result is complex and has the extents `s` along the axes.
    Raises AxisError for an axis out of range, ShapeError for an axis without elements, ArgumentError for
    another `norm` or number of extents.

    >>> import tracejit as tj
    >>> tj.fft.ifftn(tj.asarray([[4.0, 0.0], [0.0, 0.0]])).real
    NDArray([[1., 1.],
             [1., 1.]], dtype=float32)
    """
    array = dispatch.as_array("ifftn", a)
    return _complex("ifftn", array, _plan("ifftn", array, s, axes), norm, inverse=True)


@public
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> NDArray:
    """`fftn` along two axes.

    The result is complex and has the extents `s` along the axes.
    Raises what `fftn` raises.

    >>> import tracejit as tj
    >>> float(tj.fft.fft2(tj.ones((2, 3)))[0, 0].real)
    6.0
    """
    return fftn(a, s, axes, norm)


@public
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> NDArray:
    """`ifftn` along two axes.

    The result is complex and has the extents `s` along the axes.
    Raises what `ifftn` raises.

    >>> import tracejit as tj
    >>> float(tj.fft.ifft2(tj.ones((2, 3)))[0, 0].real)
    1.0
    """
    return ifftn(a, s, axes, norm)


@public
def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> NDArray:
    """The first half, n // 2 + 1 elements, of the discrete Fourier transform of real numbers along an axis.

    Raises DTypeError for complex numbers, AxisError for an axis out of range, ShapeError for an axis without
    elements, ArgumentError for another `norm`.

    >>> import tracejit as tj
    >>> tj.fft.rfft(tj.asarray([1.0, 2.0, 3.0])).shape
    (2,)
    """
    return rfftn(a, [n], [axis], norm)


@public
def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> NDArray:
    """The inverse of `rfft`: `n` real numbers, 2 (m - 1) of m coefficients by default.

    Raises AxisError for an axis out of range, ShapeError for an axis without elements, ArgumentError for
    another `norm`.

    >>> import tracejit as tj
    >>> tj.fft.irfft(tj.fft.rfft(tj.asarray([1.0, 2.0, 3.0])), 3)
    NDArray([1., 2., 3.], dtype=float32)
    """
    return irfftn(a, [n], [axis], norm)


@public
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> NDArray:
    """The transform of real numbers along several axes: `rfft` along the last, `fft` along the others.

    Raises DTypeError for complex numbers, AxisError for an axis out of range, ShapeError for an axis without
    elements, ArgumentError for another `norm` or number of extents.

    >>> import tracejit as tj
    >>> tj.fft.rfftn(tj.ones((4, 6))).shape
    (4, 4)
    """
    array = _operand("rfft", a, complex=False)
    plan = _plan("rfft", array, s, axes)
    if not plan:
        raise locate(ArgumentError("rfft: give at least one axis"), user_location())
    axis, extent = plan[-1]
    array = _resized(array, axis, array.shape[axis] if extent is None else extent)
    half = _scaled("rfft", dispatch.emit(ops.rfft, array, axis=axis), array.shape[axis], norm, inverse=False)
    return _complex("rfft", half, plan[:-1], norm, inverse=False)


@public
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> NDArray:
    """The inverse of `rfftn`: real numbers, 2 (m - 1) along the last axis of m coefficients by default.

    Raises AxisError for an axis out of range, ShapeError for an axis without elements, ArgumentError for
    another `norm` or number of extents.

    >>> import tracejit as tj
    >>> tj.fft.irfftn(tj.fft.rfftn(tj.ones((4, 6)))).shape
    (4, 6)
    """
    array = _operand("irfft", a, complex=True)
    plan = _plan("irfft", array, s, axes)
    if not plan:
        raise locate(ArgumentError("irfft: give at least one axis"), user_location())
    array = _complex("irfft", array, plan[:-1], norm, inverse=True)
    axis, extent = plan[-1]
    size = _extent("irfft", 2 * (array.shape[axis] - 1) if extent is None else extent)
    array = _resized(array, axis, size // 2 + 1)
    result = dispatch.emit(ops.irfft, array, axis=axis, size=size)
    return _scaled("irfft", result, size, norm, inverse=True)


@public
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> NDArray:
    """`rfftn` along two axes.

    The result is complex, with half of the elements along the last of the axes.
    Raises what `rfftn` raises.

    >>> import tracejit as tj
    >>> tj.fft.rfft2(tj.ones((4, 6))).shape
    (4, 4)
    """
    return rfftn(a, s, axes, norm)


@public
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> NDArray:
    """`irfftn` along two axes.

    The result is real. Raises what `irfftn` raises.

    >>> import tracejit as tj
    >>> tj.fft.irfft2(tj.ones((4, 4))).shape
    (4, 6)
    """
    return irfftn(a, s, axes, norm)


def _swapped(name: str, norm: Any) -> str:
    """Return the norm of the opposite direction."""
    if norm not in SWAPPED:
        what = f'{name}: norm is "backward", "ortho" or "forward", not {norm!r}'
        raise locate(ArgumentError(what), user_location())
    return SWAPPED[norm]


@public
def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> NDArray:
    """The real transform of a Hermitian-symmetric signal, of which `a` is the first half.

    The result has `n` elements along the axis; by default 2 (m - 1) for an `a` of m elements.
    Raises what `irfft` raises.

    >>> import tracejit as tj
    >>> tj.fft.hfft(tj.asarray([1.0, 2.0, 3.0]))
    NDArray([ 8., -2.,  0., -2.], dtype=float32)
    """
    return irfft(conj(dispatch.as_array("hfft", a)), n, axis, _swapped("hfft", norm))


@public
def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> NDArray:
    """The inverse of `hfft`: the first half, n // 2 + 1 elements.

    Raises what `rfft` raises.

    >>> import tracejit as tj
    >>> tj.fft.ihfft(tj.asarray([8.0, -2.0, 0.0, -2.0])).real
    NDArray([1., 2., 3.], dtype=float32)
    """
    return conj(rfft(a, n, axis, _swapped("ihfft", norm)))


@public
def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> NDArray:
    """The frequencies of the elements of a transform of `n` samples with spacing `d`: float32[n].

    In cycles per unit of `d`. Raises ShapeError for no samples, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.fft.fftfreq(4)
    NDArray([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    return _frequencies("fftfreq", n, d, dtype, device)


@public
def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> NDArray:
    """The frequencies of the elements of `rfft` of `n` samples with spacing `d`: float32[n // 2 + 1].

    In cycles per unit of `d`. Raises ShapeError for no samples, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.fft.rfftfreq(4)
    NDArray([0.  , 0.25, 0.5 ], dtype=float32)
    """
    return _frequencies("rfftfreq", n, d, dtype, device)


def _frequencies(name: str, n: Any, d: Any, dtype: Any, device: Any) -> Any:
    result_dtype = promotion.supported(name, "float32" if dtype is None else dtype)
    values = getattr(np.fft, name)(_extent(name, n), 1.0)
    return asarray(values, dtype=result_dtype, device=chosen_device(name, device)) / d


@public
def fftshift(x: Any, axes: Any = None) -> NDArray:
    """Move the frequency 0 to the centre of the axes (None: all axes).

    The shape is unchanged. Raises AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.fft.fftshift(tj.arange(4))
    NDArray([2, 3, 0, 1], dtype=int64)
    """
    return _rolled("fftshift", x, axes, lambda extent: extent // 2)


@public
def ifftshift(x: Any, axes: Any = None) -> NDArray:
    """The inverse of `fftshift`.

    The shape is unchanged. Raises AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.fft.ifftshift(tj.arange(5))
    NDArray([2, 3, 4, 0, 1], dtype=int64)
    """
    return _rolled("ifftshift", x, axes, lambda extent: -(extent // 2))


def _rolled(name: str, x: Any, axes: Any, by: Any) -> Any:
    """Roll `x` along the axes, by the function `by` of each extent."""
    array = dispatch.as_array(name, x)
    along = normalize_axes(name, axes, array.ndim)
    return roll(array, tuple(by(array.shape[a]) for a in along), axis=along) if along else array.copy()


__all__ = names_of(__name__)
