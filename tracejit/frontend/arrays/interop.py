"""Exchange with NumPy and other array libraries: NumPy's two protocols, and DLPack.

NumPy's ufuncs and functions called on an NDArray return NDArrays, computed here. A function without a
counterpart raises `ArgumentError`; there is no silent fallback to NumPy. ``out=`` may be an NDArray or,
outside of traces, a NumPy array, which is then filled before the call returns.

`from_dlpack` shares the exporter's memory: the storage of the array refers to it and keeps the exporter
alive.

>>> import numpy as np, tracejit as tj
>>> np.add(np.ones(2), tj.ones(2))
NDArray([2., 2.], dtype=float64)
>>> shared = np.zeros(3); x = tj.from_dlpack(shared); x += 1
>>> x.wait(); shared
NDArray([1., 1., 1.], dtype=float64)
array([1., 1., 1.])
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import engine, lazy
from tracejit.errors import ArgumentError, TracejitError, locate, message
from tracejit.frontend.arrays import dispatch, dlpack, ufunc_methods
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.devices import as_device
from tracejit.frontend.arrays.functions import NAMESPACE, UFUNCS, elementwise, manipulation
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import unproxied
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.types import DTYPES, ArrayType
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray


signature_of = functools.cache(inspect.signature)


def _refuse(what: str, remedy: str) -> TracejitError:
    return locate(ArgumentError(f"{what}; {remedy}"), user_location())


# -- ufuncs --------------------------------------------------------------------------------------------------

METHODS: dict[str, Callable[..., Any]] = {
    "reduce": ufunc_methods.reduce,
    "accumulate": ufunc_methods.accumulate,
    "reduceat": ufunc_methods.reduceat,
    "outer": ufunc_methods.outer,
    "at": ufunc_methods.at,
}
"""The supported methods of ufuncs."""

WITHOUT_EFFECT = {"casting": "same_kind", "order": "K", "subok": True}
"""Options of ufuncs that are ignored if they have these values, the defaults."""


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Implement `NDArray.__array_ufunc__`."""
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    function = UFUNCS.get(ufunc)
    if function is None or (method != "__call__" and method not in METHODS):
        raise _refuse(f"numpy.{name} has no counterpart for NDArrays", "convert with x.numpy() first")
    options = {k: v for k, v in options.items() if k not in WITHOUT_EFFECT or WITHOUT_EFFECT[k] != v}
    outs = options.pop("out", (None,) * ufunc.nout)
    compute = _call_counterpart if method == "__call__" else METHODS[method]
    where = options.pop("where", True) if method == "__call__" else True
    parameters = signature_of(compute).parameters
    unknown = [k for k in options if k not in parameters]
    if unknown:
        raise _refuse(
            f"numpy.{name} on NDArrays does not take {', '.join(unknown)}",
            "use tj.where, or convert with x.numpy()",
        )
    result = compute(ufunc, function, *inputs, **options)
    if method == "at":
        return None
    if isinstance(result, tuple):
        return tuple([_deliver(name, r, out, where) for r, out in zip(result, outs, strict=True)])
    return _deliver(name, result, outs[0], where)


def _call_counterpart(ufunc: np.ufunc, function: Callable[..., Any], *inputs: Any, dtype: Any = None) -> Any:
    """Call `function`, the counterpart of `ufunc`, computing in `dtype` as NumPy does."""
    if dtype is None:
        return function(*inputs)
    result = function(*_cast(ufunc, inputs, np.dtype(dtype)))
    return result.astype(dtype, copy=False)


def _cast(ufunc: np.ufunc, inputs: tuple[Any, ...], dtype: np.dtype) -> tuple[Any, ...]:
    """Cast `inputs` to the dtypes in which NumPy computes a result of `dtype`.

    Raises TypeError if NumPy has no such loop.
    """
    kinds = [x.dtype if hasattr(x, "dtype") else type(unproxied(x)) for x in inputs]
    signature = (None,) * ufunc.nin + (dtype,) * ufunc.nout
    loop_dtypes = ufunc.resolve_dtypes(
        (*kinds, *[None] * ufunc.nout), signature=signature, casting="same_kind"
    )
    return tuple(
        [
            x.astype(d) if hasattr(x, "dtype") else x
            for x, d in zip(inputs, loop_dtypes[: ufunc.nin], strict=True)
        ]
    )


def _deliver(name: str, result: Any, out: Any, where: Any = True) -> Any:
    """Write `result` into `out`, if there is one, where `where` is true, and return the output.

    Without `out` the other elements are zero; NumPy leaves them undefined.
    """
    if out is None:
        if where is True:
            return result
        return dispatch.cast(elementwise.where(where, result, np.zeros((), result.dtype)), result.dtype)
    if isinstance(out, ArrayCore):
        if where is not True:
            result = elementwise.where(where, result, out)
        dispatch.write(out, result, f"numpy.{name}")
        return out
    if thread.trace is not None:
        thread.trace.refuse_fill(f"numpy.{name}")
    np.copyto(out, result.numpy(), casting="same_kind", where=np.asarray(where))
    return out


# -- functions -----------------------------------------------------------------------------------------------

ADAPTED: dict[Callable[..., Any], Callable[..., Any]] = {
    function: lambda x, *args, f=function, **options: f(x.numpy(), *args, **options)
    for function in (np.array2string, np.array_repr, np.array_str)
}
"""NumPy functions that format arrays as text."""


@functools.cache
def _names_of(module: str) -> dict[str, Any]:
    namespace = lazy.import_module(module)
    return {name: getattr(namespace, name) for name in namespace.__all__}


SPACES: dict[str, Callable[[], dict[str, Any]]] = {
    "numpy.linalg": lambda: _names_of("tracejit.frontend.arrays.linalg"),
    "numpy.fft": lambda: _names_of("tracejit.frontend.arrays.fft"),
    "numpy.lib.stride_tricks": lambda: {"sliding_window_view": manipulation.sliding_window_view},
}
"""NumPy's submodules of functions; each returns the counterparts of its names."""


BUILTINS: dict[Callable[..., Any], Callable[..., None]] = {
    np.can_cast: lambda from_, to, casting="safe": None,
    np.concatenate: lambda arrays, /, axis=0, out=None, *, dtype=None, casting="same_kind": None,
    np.dot: lambda a, b, out=None: None,
    np.empty_like: lambda prototype, /, dtype=None, order="K", subok=True, shape=None, *, device=None: None,
    np.where: lambda condition, x=None, y=None, /: None,
}
"""Substitutes with the signatures of NumPy's builtin functions, which lack signatures before NumPy 2.4."""


Conversions = dict[str, Callable[[Any], Any]]
"""Functions that convert arguments to operands, by the names of parameters."""


def call_function(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    conversions: Conversions | None = None,
) -> Any:
    """Implement `NDArray.__array_function__`, after the `conversions` of arguments."""
    name = function.__name__
    where = getattr(function, "__module__", None) or "numpy"
    names = SPACES[where]() if where in SPACES else NAMESPACE
    ours = ADAPTED.get(function) or names.get(name)
    if ours is None or getattr(sys.modules[where] if where in SPACES else np, name, None) is not function:
        raise _refuse(f"{where}.{name} has no counterpart for NDArrays", "convert with x.numpy() first")
    positional, named = _arranged(name, function, ours, args, options)
    out = named.pop("out", None)
    if conversions:
        positional, named = _converted(ours, positional, named, conversions)
    return _deliver(name, ours(*positional, **named), out)


def _converted(
    ours: Callable[..., Any], positional: list[Any], named: dict[str, Any], conversions: Conversions
) -> tuple[list[Any], dict[str, Any]]:
    """Apply the `conversions` to the arguments of `ours`."""
    bound = signature_of(ours).bind(*positional, **named)
    for name in conversions.keys() & bound.arguments.keys():
        value = bound.arguments[name]
        bound.arguments[name] = (
            tuple(map(conversions[name], value))
            if bound.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            else conversions[name](value)
        )
    return list(bound.args), bound.kwargs


def _is_passed_by_position(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is required or positional-only."""
    if parameter.kind is parameter.POSITIONAL_ONLY:
        return True
    return parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD


def _arranged(
    name: str,
    function: Callable[..., Any],
    ours: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> tuple[list[Any], dict[str, Any]]:
    """Arrange NumPy's arguments for `ours`: required and positional ones in order, all others by name."""
    positional, named = _arrangement(name, function, ours, len(args), tuple(options))
    arguments: dict[Any, Any] = dict(enumerate(args))
    arguments.update(options)
    return (
        [_argument(key, arguments) for key in positional],
        {k: _argument(key, arguments) for k, key in named.items()},
    )


def _argument(key: Any, arguments: dict[Any, Any]) -> Any:
    """Return the argument at a position or with a name; for several keys, a tuple."""
    return tuple([arguments[k] for k in key]) if type(key) is tuple else arguments[key]


@functools.lru_cache(maxsize=1024)
def _arrangement(
    name: str, function: Callable[..., Any], ours: Callable[..., Any], count: int, options: tuple[str, ...]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the keys (see `_argument`) of the arguments of `ours`, positional and by name.

    NumPy's function is called with `count` positional arguments and the named `options`.
    """
    positions, named = range(count), {option: option for option in options}
    parameters = signature_of(ours).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return list(positions), named
    bound = signature_of(BUILTINS.get(function, function)).bind(*positions, **named).arguments
    bound |= bound.pop("kwargs", {})
    first = sum(_is_passed_by_position(p) for p in parameters)
    positional, by_name = list(bound.values())[:first], dict(list(bound.items())[first:])
    named = {k.removeprefix("a_"): v for k, v in by_name.items()}  # a_min, a_max
    known = {p.name for p in parameters} | {"out"}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = [k for k in named if k not in known and not open_ended]
    if unknown:
        raise _refuse(
            f"numpy.{name} on NDArrays does not take {', '.join(unknown)}", f"see help(tj.{ours.__name__})"
        )
    return positional, named


# -- DLPack --------------------------------------------------------------------------------------------------


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> NDArray:
    """An array on the memory of `x`, an array of any library that supports DLPack (NumPy, PyTorch, JAX, ...).

    Writes are visible on both sides. Memory that cannot be shared (read-only or misaligned) is copied; with
    ``copy=False`` it raises ArgumentError, ``copy=True`` always copies.
    The array has the shape and dtype of `x`. It is stored on ``cpu:0``, or copied to `device`.
    Raises ArgumentError for an object without DLPack support or with an unsupported dtype, DeviceError for an
    unknown device.

    >>> import numpy as np, tracejit as tj
    >>> tj.from_dlpack(np.arange(3))
    NDArray([0, 1, 2], dtype=int64)
    """
    if not hasattr(x, "__dlpack__"):
        raise _refuse(f"from_dlpack: {type(x).__name__} has no __dlpack__", "use tj.asarray")
    if device is not None:
        imported: Any = from_dlpack(x, copy=copy)
        target = as_device("from_dlpack", device, imported.device)
        if copy is False and target != imported.device:
            what = f"from_dlpack: memory on {imported.device} cannot be shared with {target}"
            raise _refuse(what, "let it be copied")
        return imported.to(target)
    if isinstance(x, ArrayCore):
        shared: Any = x
        return shared.copy() if copy else shared
    try:
        array = dlpack.read(x)
    except (BufferError, RuntimeError) as error:
        what = f"from_dlpack: {type(x).__name__} cannot be imported ({message(error)})"
        raise _refuse(what, "copy it to a NumPy array") from error
    shareable = (
        array.flags.writeable
        and array.flags.aligned
        and array.dtype in DTYPES
        and _has_element_strides(array)
    )
    if copy is False and not shareable:
        raise _refuse(
            f"from_dlpack: {array.dtype} memory with strides {array.strides} "
            f"({'writable' if array.flags.writeable else 'read-only'}) cannot be shared",
            "use tj.asarray to copy it",
        )
    if copy or not shareable:
        return ArrayCore.from_numpy(array)
    return _array_on(array)


def _has_element_strides(array: np.ndarray) -> bool:
    """Whether all strides are multiples of the element size."""
    return all(stride % array.itemsize == 0 for stride in array.strides)


def _array_on(array: np.ndarray) -> Any:
    """Return an array on the memory of a NumPy array: a view of a storage over the spanned memory."""
    strides = tuple(
        s // array.itemsize if n > 1 else 0 for s, n in zip(array.strides, array.shape, strict=True)
    )
    view = View(0, array.shape, strides)
    if view.is_contiguous():
        view = View.of_shape(array.shape)
    low, high = view.span()
    shape = array.shape if view.is_contiguous() else (high - low,)
    address = array.__array_interface__["data"][0] + low * array.itemsize
    storage = Storage.at(address, ArrayType(shape, array.dtype), array, engine.Variable())
    storage.shared = True
    return ArrayCore.new(storage, View(view.offset - low, view.shape, view.strides))
