"""Reductions and scans that ignore nan, by reductions with `where`, or by replacing nan.

Integers and bools, which have no nan, are reduced as usual. Medians and quantiles are in `quantiles`.

>>> import tracejit as tj
>>> tj.nanmean(tj.asarray([1.0, tj.nan, 3.0]))
NDArray(2., dtype=float32)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tracejit import ops
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import normalize_axes, normalize_axis
from tracejit.frontend.arrays.functions import reductions, scans
from tracejit.frontend.arrays.functions.checks import checked
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.elementwise import FUNCTIONS
from tracejit.frontend.arrays.functions.elementwise import where as chosen
from tracejit.frontend.arrays.functions.manipulation import ravel
from tracejit.frontend.arrays.public import public
from tracejit.ir.types import is_inexact

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

isnan = FUNCTIONS["isnan"]


def _can_be_nan(x: Any) -> bool:
    return is_inexact(x.dtype)


def _filled(x: Any, value: float) -> Any:
    """Replace nan in `x` by a number."""
    array: Any = asarray(x)
    return dispatch.cast(chosen(isnan(array), value, array), array.dtype) if _can_be_nan(array) else array


def _present(name: str, x: Any, where: Any) -> Any:
    """Return a mask of the elements that are not nan and for which `where` is true."""
    present = ~isnan(x)
    return present if where is True else present & reductions.mask(name, where, x.shape)


@public
def nansum(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> NDArray:
    """Sum over axes with nan as 0.

    Arguments, dtype and errors are those of `sum`. Raises what that raises.

    >>> import tracejit as tj
    >>> tj.nansum(tj.asarray([1.0, tj.nan, 3.0]))
    NDArray(4., dtype=float32)
    """
    return reductions.sum(_filled(x, 0), axis, dtype, keepdims=keepdims, initial=initial, where=where)


@public
def nanprod(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> NDArray:
    """Product over axes with nan as 1.

    Arguments, dtype and errors are those of `prod`. Raises what that raises.

    >>> import tracejit as tj
    >>> tj.nanprod(tj.asarray([2.0, tj.nan, 3.0]))
    NDArray(6., dtype=float32)
    """
    return reductions.prod(_filled(x, 1), axis, dtype, keepdims=keepdims, initial=initial, where=where)


@public
def nancumsum(x: Any, axis: int | None = None, dtype: Any = None) -> NDArray:
    """Cumulative sums along an axis, or (None) of the flattened array, with nan as 0.

    Dtypes are as for `cumsum`.
    Raises AxisError for an axis out of range, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.nancumsum(tj.asarray([1.0, tj.nan, 3.0]))
    NDArray([1., 1., 4.], dtype=float32)
    """
    return scans.cumsum(_filled(x, 0), axis, dtype)


@public
def nancumprod(x: Any, axis: int | None = None, dtype: Any = None) -> NDArray:
    """Cumulative products along an axis, or (None) of the flattened array, with nan as 1.

    Dtypes are as for `cumprod`.
    Raises AxisError for an axis out of range, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.nancumprod(tj.asarray([2.0, tj.nan, 3.0]))
    NDArray([2., 2., 6.], dtype=float32)
    """
    return scans.cumprod(_filled(x, 1), axis, dtype)


# -- extremes ------------------------------------------------------------------------------------------------


class _Search(NamedTuple):
    """A search for the largest or smallest element that is not nan.

    name:    the public function.
    without: the function that does not ignore nan.
    instead: the number that replaces nan; it is not selected if there is another one.
    """

    name: str
    without: Callable[..., Any]
    instead: float


def _extreme(search: _Search, x: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    """Implement `nanmax` and `nanmin`: nan is replaced, and is the result only if all are nan."""
    name, reduce, instead = search
    array: Any = asarray(x)
    axes = normalize_axes(name, axis, array.ndim)
    if not _can_be_nan(array):
        return reduce(array, axes, keepdims=keepdims, initial=initial, where=where)
    filled = _filled(array, instead)
    result = reduce(filled, axes, keepdims=keepdims, initial=initial, where=where)
    if initial is not None:
        return result
    is_all_nan = reductions.all(isnan(array), axes, keepdims=keepdims)
    return dispatch.cast(chosen(is_all_nan, math.nan, result), array.dtype)


@public
def nanmax(
    x: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = True
) -> NDArray:
    """Largest element over axes that is not nan; nan if all elements are.

    Arguments, dtype and errors are those of `max`. Raises what that raises.

    >>> import tracejit as tj
    >>> tj.nanmax(tj.asarray([1.0, tj.nan, 3.0]))
    NDArray(3., dtype=float32)
    """
    return _extreme(_Search("nanmax", reductions.max, -math.inf), x, axis, keepdims, initial, where)


@public
def nanmin(
    x: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = True
) -> NDArray:
    """Smallest element over axes that is not nan; nan if all elements are.

    Arguments, dtype and errors are those of `min`. Raises what that raises.

    >>> import tracejit as tj
    >>> tj.nanmin(tj.asarray([1.0, tj.nan, 3.0]))
    NDArray(1., dtype=float32)
    """
    return _extreme(_Search("nanmin", reductions.min, math.inf), x, axis, keepdims, initial, where)


def _position(search: _Search, x: Any, axis: Any, keepdims: bool) -> Any:
    """Implement `nanargmax` and `nanargmin`."""
    name, find, instead = search
    array: Any = asarray(x)
    if not _can_be_nan(array):
        return find(array, axis, keepdims=keepdims)
    if axis is None:
        shape = (1,) * array.ndim if keepdims else ()
        return _position(search, ravel(array), 0, False).reshape(shape)
    position = normalize_axis(name, axis, array.ndim)
    filled = _filled(array, instead)
    result = find(filled, position, keepdims=keepdims)
    has_number = reductions.any(~isnan(array), position, keepdims=keepdims)
    what = f"{name}: along axis {position} there is nothing but nan in a row, so no element is found"
    return checked(result, has_number, array.shape[position], what)


@public
def nanargmax(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Position (int64) of the first largest element that is not nan, along an axis or of all elements.

    Raises ShapeError if there are no elements, AxisError for an axis out of range, OutOfBoundsError, when
    the result is computed, if all are nan.

    >>> import tracejit as tj
    >>> tj.nanargmax(tj.asarray([1.0, tj.nan, 3.0]))
    NDArray(2, dtype=int64)
    """
    return _position(_Search("nanargmax", reductions.argmax, -math.inf), x, axis, keepdims)


@public
def nanargmin(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Position (int64) of the first smallest element that is not nan, along an axis or of all elements.

    Raises ShapeError if there are no elements, AxisError for an axis out of range, OutOfBoundsError, when
    the result is computed, if all are nan.

    >>> import tracejit as tj
    >>> tj.nanargmin(tj.asarray([tj.nan, 2.0, 3.0]))
    NDArray(1, dtype=int64)
    """
    return _position(_Search("nanargmin", reductions.argmin, math.inf), x, axis, keepdims)


# -- means ---------------------------------------------------------------------------------------------------


@public
def nanmean(
    x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = True
) -> NDArray:
    """Arithmetic mean over axes of the elements that are not nan; nan if there are none.

    Arguments, dtype and errors are those of `mean`. Raises what that raises.

    >>> import tracejit as tj
    >>> tj.nanmean(tj.asarray([[1.0, tj.nan], [3.0, tj.nan]]), axis=0)
    NDArray([ 2., nan], dtype=float32)
    """
    array = asarray(x)
    if not _can_be_nan(array):
        return reductions.mean(array, axis, dtype, keepdims=keepdims, where=where)
    present = _present("nanmean", array, where)
    return reductions.mean(array, axis, dtype, keepdims=keepdims, where=present)


@public
def nanvar(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    keepdims: bool = False,
    where: Any = True,
    mean: Any = None,
    correction: float | None = None,
) -> NDArray:
    """Variance over axes of the elements that are not nan; nan for at most `ddof` of them.

    Arguments, dtype and errors are those of `var`. Raises what that raises.

    >>> import tracejit as tj
    >>> tj.nanvar(tj.asarray([1.0, tj.nan, 3.0]))
    NDArray(1., dtype=float32)
    """
    array = asarray(x)
    options = {"ddof": ddof, "correction": correction, "keepdims": keepdims, "mean": mean}
    if not _can_be_nan(array):
        return reductions.var(array, axis, dtype, where=where, **options)
    present = _present("nanvar", array, where)
    variance = reductions.var(_filled(array, 0), axis, dtype, where=present, **options)
    reduction = next((c for c in (correction, ddof) if c is not None), 0)
    is_enough = reductions.count_nonzero(present, axis, keepdims=keepdims) > reduction
    return dispatch.cast(chosen(is_enough, variance, math.nan), variance.dtype)


@public
def nanstd(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    keepdims: bool = False,
    where: Any = True,
    mean: Any = None,
    correction: float | None = None,
) -> NDArray:
    """Standard deviation over axes of the elements that are not nan: the square root of `nanvar`.

    Arguments, dtype and errors are those of `var`. Raises what that raises.

    >>> import tracejit as tj
    >>> tj.nanstd(tj.asarray([1.0, tj.nan, 3.0]))
    NDArray(1., dtype=float32)
    """
    options = {"ddof": ddof, "correction": correction, "keepdims": keepdims, "mean": mean}
    return dispatch.apply(ops.sqrt, nanvar(x, axis, dtype, where=where, **options))
