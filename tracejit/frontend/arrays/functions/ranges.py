"""Arrays computed from positions: ranges, grids, diagonals and triangles.

All are based on one operator, `iota`. A grid of indices is a view of its result (`positions`), so it needs no
memory in a kernel.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.axes import integer, new_shape
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.devices import chosen_device
from tracejit.frontend.arrays.functions.creation import asarray, chosen_dtype
from tracejit.frontend.arrays.functions.elementwise import pow
from tracejit.frontend.arrays.functions.manipulation import broadcast_arrays, expand_dims, moveaxis
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import is_number
from tracejit.ir.types import Device, is_floating
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

BOOL, INT64, FLOAT32, FLOAT64 = map(np.dtype, ("bool", "int64", "float32", "float64"))


def positions(shape: tuple[int, ...], axis: int, device: Device) -> Any:
    """Return the index along `axis` of each element of an array of `shape`, int64: a broadcast view."""
    line = dispatch.emit(ops.iota, size=shape[axis], device=device)
    strides = tuple(int(a == axis) for a in range(len(shape)))
    return ArrayCore.new(line._storage, View(0, shape, strides))


def _line(count: int, start: Any, step: Any, dtype: np.dtype, device: Device) -> Any:
    """Return start, start + step, ...; floats are computed in float64 and cast at the end."""
    index = dispatch.emit(ops.iota, size=count, device=device)
    if is_floating(dtype) or isinstance(start, float) or isinstance(step, float):
        index = dispatch.cast(index, FLOAT64)
    if not (type(step) is int and step == 1):
        index = index * step
    if not (type(start) is int and start == 0):
        index = index + start
    return dispatch.cast(index, dtype)


@public
def arange(start: Any, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> NDArray:
    """Evenly spaced numbers from `start` (0 if there is only one bound) up to, but without, `stop`.

    The default dtype is int64 if all arguments are integers, otherwise float32.
    Raises ArgumentError for a step of 0 or bounds that are not numbers, DTypeError for an unsupported dtype,
    DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.arange(2, 8, 2)
    NDArray([2, 4, 6], dtype=int64)
    """
    if stop is None:
        start, stop = 0, start
    for bound in (start, stop, step):
        if not is_number(bound) or isinstance(bound, complex):
            raise locate(
                ArgumentError(f"arange: expected numbers, got {type(bound).__name__} {bound!r}"),
                user_location(),
            )
    if step == 0:
        raise locate(ArgumentError("arange: step must not be 0"), user_location())
    is_integer = all(isinstance(bound, int) for bound in (start, stop, step))
    if is_integer:
        count = len(range(integer("arange", start), integer("arange", stop), integer("arange", step)))
    else:
        count = max(0, math.ceil((stop - start) / step))
    target = chosen_dtype("arange", dtype, INT64 if is_integer else FLOAT32)
    return _line(count, start, step, target, chosen_device("arange", device))


def _check_bounds(name: str, bounds: tuple[Any, ...]) -> None:
    for bound in bounds:
        if not (is_number(bound) or isinstance(bound, ArrayCore | np.ndarray | np.generic | list | tuple)):
            raise locate(
                ArgumentError(f"{name}: expected numbers or arrays, got {type(bound).__name__}"),
                user_location(),
            )


@public
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` evenly spaced numbers from `start` to `stop`, which is excluded without `endpoint` (float32).

    `start` and `stop` may be arrays, which broadcast: the numbers are then along a new axis `axis`, in the
    common floating dtype of the arrays. Integer dtypes round down. With `retstep` the result is a pair of the
    numbers and their spacing.
    Raises ShapeError for a negative `num` and bounds that do not broadcast, ArgumentError for bounds that are
    no numbers or arrays, DTypeError for an unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.linspace(0, 1, 5)
    NDArray([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    _check_bounds("linspace", (start, stop))
    count = integer("linspace: num", num)
    if count < 0:
        raise locate(ShapeError(f"linspace: num must not be negative, got {count}"), user_location())
    intervals = count - 1 if endpoint else count
    index = dispatch.emit(ops.iota, size=count, device=chosen_device("linspace", device))
    if all(is_number(bound) and not isinstance(bound, complex) for bound in (start, stop)):
        default = FLOAT32
    else:
        start, stop, default = _float_arrays(start, stop)
        index = index.reshape((count,) + (1,) * start.ndim)
    step = (stop - start) / intervals if intervals > 0 else math.nan
    line = dispatch.cast(index, FLOAT64)
    line = line * step + start if intervals > 0 else line + start
    if endpoint and count > 1:
        line = dispatch.apply(ops.where, index == intervals, stop * 1.0, line)
    target = chosen_dtype("linspace", dtype, default)
    line = dispatch.cast(dispatch.apply(ops.floor, line) if target.kind in "iu" else line, target)
    result = moveaxis(line, 0, axis) if line.ndim > 1 or axis not in (0, -1) else line
    return (result, step) if retstep else result


def _float_arrays(start: Any, stop: Any) -> tuple[Any, Any, np.dtype]:
    """Return bounds as arrays of one shape in double precision, and the default dtype of the result."""
    bounds = broadcast_arrays(asarray(start), asarray(stop))
    default = promotion.result_type(*(x.dtype for x in bounds), 1.0)
    double = np.dtype("complex128") if default.kind == "c" else FLOAT64
    return dispatch.cast(bounds[0], double), dispatch.cast(bounds[1], double), default


def _precision(*bounds: Any) -> np.dtype:
    """Return the default dtype for bounds: that of the arrays among them, otherwise single precision."""
    dtypes = [asarray(x).dtype for x in bounds if not is_number(x)]
    if dtypes:
        return promotion.result_type(*dtypes, 1.0)
    return np.dtype("complex64") if any(isinstance(x, complex) for x in bounds) else FLOAT32


@public
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> NDArray:
    """`num` powers of `base` with evenly spaced exponents from `start` to `stop`; see `linspace`.

    The default dtype is float32, or that of bounds that are arrays.
    Raises what `linspace` raises.

    >>> import tracejit as tj
    >>> tj.logspace(0, 2, 3)
    NDArray([  1.,  10., 100.], dtype=float32)
    """
    _check_bounds("logspace", (start, stop, base))
    target = chosen_dtype("logspace", dtype, _precision(start, stop, base))
    if not is_number(base):
        start, stop, base = broadcast_arrays(asarray(start), asarray(stop), asarray(base))
        base = expand_dims(base, axis=axis)
    double = np.dtype("complex128") if _precision(start, stop).kind == "c" else FLOAT64
    return dispatch.cast(pow(base, linspace(start, stop, num, endpoint, False, double, axis)), target)


@public
def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> NDArray:
    """`num` numbers from `start` to `stop` with a constant ratio of neighbours; see `linspace`.

    The bounds must have the same sign, and not be 0.
    The default dtype is float32, or that of bounds that are arrays.
    Raises ShapeError for bounds that are 0, and what `linspace` raises.

    >>> import tracejit as tj
    >>> tj.geomspace(1, 8, 4)
    NDArray([1., 2., 4., 8.], dtype=float32)
    """
    _check_bounds("geomspace", (start, stop))
    if any(type(bound) in (int, float, complex) and bound == 0 for bound in (start, stop)):
        raise locate(ShapeError("geomspace: the bounds must not be 0"), user_location())
    target = chosen_dtype("geomspace", dtype, _precision(start, stop))
    first, last, _ = _float_arrays(start, stop)
    sign = dispatch.apply(ops.sign, first)
    exponent = dispatch.apply(ops.log, last / sign) - dispatch.apply(ops.log, first / sign)
    fraction = linspace(0.0, 1.0, num, endpoint, dtype=FLOAT64)
    fraction = fraction.reshape(fraction.shape + (1,) * first.ndim)
    line = first * dispatch.apply(ops.exp, fraction * exponent)
    line = dispatch.apply(ops.where, fraction == 1.0, last, line)
    return dispatch.cast(moveaxis(line, 0, axis), target)


def diagonal_of(name: str, k: Any, shape: tuple[int, ...]) -> int:
    """Return the number of a diagonal, limited to the range for a matrix of this shape."""
    rows, columns = shape
    return min(max(integer(f"{name}: k", k), -rows), columns)


@public
def eye(
    n_rows: int, n_cols: int | None = None, /, k: int = 0, dtype: Any = None, *, device: Any = None
) -> NDArray:
    """Ones on the k-th diagonal and zeros elsewhere (float32 by default).

    The shape is (n_rows, n_cols); the default of n_cols is n_rows.
    Raises ShapeError for a negative extent, ArgumentError for extents that are not integers, DTypeError for
    an unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.eye(2, dtype=tj.int8)
    NDArray([[1, 0],
             [0, 1]], dtype=int8)
    """
    shape = new_shape("eye", (n_rows, n_rows if n_cols is None else n_cols))
    target = chosen_device("eye", device)
    is_diagonal = positions(shape, 1, target) == positions(shape, 0, target) + diagonal_of("eye", k, shape)
    return dispatch.cast(is_diagonal, chosen_dtype("eye", dtype, FLOAT32))


def _triangle(name: str, x: Any, k: int, *, lower: bool) -> Any:
    array = dispatch.as_array(name, x)
    if array.ndim < 2:
        raise locate(
            ShapeError(f"{name}: needs at least 2 dimensions, got shape {array.shape}"), user_location()
        )
    matrix = array.shape[-2:]
    column = positions(matrix, 1, array.device)
    diagonal = positions(matrix, 0, array.device) + diagonal_of(name, k, matrix)
    is_kept = column <= diagonal if lower else column >= diagonal
    return dispatch.apply(ops.where, is_kept, array, False if array.dtype == BOOL else 0)


@public
def tril(x: Any, /, k: int = 0) -> NDArray:
    """The elements of matrices on and below the k-th diagonal, zeros elsewhere.

    x: two or more dimensions; shape and dtype are unchanged.
    Raises ShapeError for fewer dimensions, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.tril(tj.ones((2, 2)))
    NDArray([[1., 0.],
             [1., 1.]], dtype=float32)
    """
    return _triangle("tril", x, k, lower=True)


@public
def triu(x: Any, /, k: int = 0) -> NDArray:
    """The elements of matrices on and above the k-th diagonal, zeros elsewhere.

    x: two or more dimensions; shape and dtype are unchanged.
    Raises ShapeError for fewer dimensions, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.triu(tj.ones((2, 2)))
    NDArray([[1., 1.],
             [0., 1.]], dtype=float32)
    """
    return _triangle("triu", x, k, lower=False)


@public
def meshgrid(
    *arrays: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[NDArray, ...]:
    """Coordinate arrays of a grid from 1-dimensional arrays; ``"xy"`` exchanges the first two dimensions.

    Each result has one dimension for each array, and the dtype of its array. Without `copy` they are
    read-only views; with `sparse` they have extent 1 in all dimensions but their own.
    Raises ShapeError for arrays of more dimensions, ArgumentError for another `indexing`.

    >>> import tracejit as tj
    >>> x, y = tj.meshgrid(tj.arange(3), tj.arange(2))
    >>> y
    NDArray([[0, 0, 0],
             [1, 1, 1]], dtype=int64)
    """
    if indexing not in ("xy", "ij"):
        raise locate(ArgumentError(f'meshgrid: indexing is "xy" or "ij", not {indexing!r}'), user_location())
    lines: list[Any] = [asarray(x) for x in arrays]
    if any(x.ndim > 1 for x in lines):
        raise locate(ShapeError("meshgrid: the arrays must have one dimension each"), user_location())
    axes = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        axes[:2] = 1, 0
    grids: tuple[Any, ...] = tuple(
        line.reshape(tuple(-1 if a == axis else 1 for a in range(len(lines))))
        for line, axis in zip(lines, axes, strict=True)
    )
    if not sparse:
        grids = broadcast_arrays(*grids)
    return tuple(grid.copy() for grid in grids) if copy else grids
