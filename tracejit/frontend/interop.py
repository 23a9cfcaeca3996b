"""Exchange with NumPy and other array libraries: NumPy's two protocols, and DLPack.

NumPy's ufuncs and functions called on an NDArray give NDArrays, computed here; what does not exist here
raises `ArgumentError` rather than fall back to NumPy silently. ``out=`` may be an NDArray or, outside of
traces, a NumPy array, which is then filled at once.

`from_dlpack` shares the exporter's memory: the array's storage lies on it and keeps the exporter alive.

>>> import numpy as np, tracejit as tj
>>> np.add(np.ones(2), tj.ones(2))
NDArray([2., 2.], dtype=float64)
>>> shared = np.zeros(3); x = tj.from_dlpack(shared); x += 1
>>> x.wait(); shared
NDArray([1., 1., 1.], dtype=float64)
array([1., 1., 1.])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import engine
from tracejit.errors import ArgumentError, locate
from tracejit.frontend import dispatch
from tracejit.frontend.array import ArrayCore, refuse_trace
from tracejit.frontend.functions import NAMESPACE, elementwise, linear, reductions
from tracejit.frontend.location import user_location
from tracejit.frontend.storage import Storage
from tracejit.ir.types import DTYPES, ArrayType
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.ndarray import NDArray


def _refuse(what: str, remedy: str) -> ArgumentError:
    return locate(ArgumentError(f"{what}; {remedy}"), user_location())  # type: ignore[return-value]


# -- ufuncs --------------------------------------------------------------------------------------------------

UFUNCS: dict[np.ufunc, Callable[..., Any]] = elementwise.UFUNCS | {np.matmul: linear.matmul, np.vecdot: linear.vecdot}

REDUCTIONS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: reductions.sum,
    np.multiply: reductions.prod,
    np.maximum: reductions.max,
    np.minimum: reductions.min,
    np.logical_and: reductions.all,
    np.logical_or: reductions.any,
}


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What `NDArray.__array_ufunc__` does."""
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    out = options.pop("out", (None,))[0]
    dtype = options.pop("dtype", None)
    if method == "__call__":
        function = UFUNCS.get(ufunc)
    elif method == "reduce":
        function = REDUCTIONS.get(ufunc)
        axis = options.pop("axis", 0)
        options = {k: v for k, v in options.items() if k != "keepdims" or v}
        keepdims = options.pop("keepdims", False)
    else:
        function = None
    if function is None:
        raise _refuse(f"numpy.{name} has no counterpart for NDArrays", "convert with x.numpy() first")
    if options:
        raise _refuse(
            f"numpy.{name} on NDArrays does not take {', '.join(options)}", "use tj.where, or convert with x.numpy()"
        )
    result = function(*inputs) if method == "__call__" else function(*inputs, axis=axis, keepdims=keepdims)
    return _deliver(name, result if dtype is None else result.astype(dtype, copy=False), out)


def _deliver(name: str, result: Any, out: Any) -> Any:
    """`result`, written into `out` if there is one."""
    if out is None:
        return result
    if isinstance(out, ArrayCore):
        dispatch.write(out, result, f"numpy.{name}")
        return out
    refuse_trace(f"numpy.{name} writing into a NumPy array (make it an NDArray with tj.asarray)")
    np.copyto(out, result.numpy(), casting="same_kind")
    return out


# -- functions -----------------------------------------------------------------------------------------------

OTHER_NAMES = {
    "a": "x",
    "arr": "x",
    "ary": "x",
    "array": "x",
    "m": "x",
    "a_min": "min",
    "a_max": "max",
    "newshape": "shape",
}
"""NumPy's names of parameters -> ours."""

ALIASES = {
    "amax": "max",
    "amin": "min",
    "around": "round",
    "concatenate": "concat",
    "cumsum": "cumulative_sum",
}
"""NumPy's names of functions -> ours, where they differ."""


def _cumsum(x: Any, axis: Any = None, **options: Any) -> Any:
    """NumPy's cumsum: flattened where no axis is given."""
    array = dispatch.as_array("cumsum", x)
    return reductions.cumulative_sum(array.ravel() if axis is None else array, axis=axis or 0, **options)


ATTRIBUTES: dict[Callable[..., Any], Callable[..., Any]] = {
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x, axis=None: x.size if axis is None else x.shape[axis],
    np.copy: lambda x: x.copy(),
    np.cumsum: _cumsum,
    np.array_equal: lambda a1, a2: np.array_equal(np.asarray(a1), np.asarray(a2)),
}
"""NumPy functions answered without one of our own of that name."""


def call_function(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What `NDArray.__array_function__` does."""
    name = function.__name__
    ours = ATTRIBUTES.get(function) or NAMESPACE.get(ALIASES.get(name, name))
    if ours is None or getattr(np, name, None) is not function:
        where = getattr(function, "__module__", None) or "numpy"
        raise _refuse(f"{where}.{name} has no counterpart for NDArrays", "convert with x.numpy() first")
    options = {OTHER_NAMES.get(k, k): v for k, v in options.items()}
    out = options.pop("out", None)
    positional, named = _arranged(name, function, ours, args, options)
    out = named.pop("out", out)
    return _deliver(name, ours(*positional, **named), out)


def _arranged(
    name: str, function: Callable[..., Any], ours: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """NumPy's arguments as `ours` takes them: those it has no positional place for go by their NumPy name."""
    parameters = list(inspect.signature(ours).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return list(args), options
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = _parameter_names(function)
    positional: list[Any] = []
    named = dict(options)
    for index, value in enumerate(args):
        given = OTHER_NAMES.get(names[index], names[index]) if index < len(names) else None
        if index < len(places) and (index == 0 or given is None or given == places[index].name or _by_place(places, index)):
            positional.append(value)
        elif given is not None:
            named[given] = value
    for place in places[len(positional) :]:
        if place.kind is place.POSITIONAL_ONLY and place.name in named:
            positional.append(named.pop(place.name))
    known = {p.name for p in parameters}
    unknown = [k for k, v in named.items() if k not in known and k != "out" and v is not None]
    if unknown:
        raise _refuse(
            f"numpy.{name} on NDArrays does not take {', '.join(unknown)}", f"see help(tj.{ours.__name__})"
        )
    return positional, {k: v for k, v in named.items() if k in known or k == "out"}
