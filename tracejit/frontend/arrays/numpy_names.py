"""The contents of `tracejit.numpy`, under NumPy's names: functions with NumPy's signatures and defaults.

All computation is done by the functions of `tj`. `find` creates the object for a name:

- array creation functions are those of `makers`;
- a function called on numbers only (``np.sqrt(2)``, ``np.prod(shape)``) is NumPy's, so its result is a
number;
- ufuncs and other functions of arrays behave, signatures included, as NumPy's own functions do on NDArrays
  (`interop`). NumPy arrays and lists among their operands are converted to NDArrays;
- dtypes, constants and exceptions are NumPy's.

A name without a counterpart raises AttributeError; it does not fall back to NumPy silently.

>>> from tracejit.frontend.arrays.numpy_names import find
>>> find("add").reduce([[1, 2], [3, 4]], axis=0), find("sqrt")(16.0), find("zeros")(2)
(NDArray([4, 6], dtype=int64), np.float64(4.0), NDArray([0., 0.], dtype=float64))
"""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.frontend.arrays import fft, interop, linalg, namespace, random
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import NAMESPACE, indexers
from tracejit.frontend.arrays.makers import FLOAT64, MAKERS, asarray
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.number import NumberProxy

ARRAYS = frozenset(
    [
        *("a", "a1", "a2", "append", "b", "condition", "fp", "indices", "mask", "p", "prepend"),
        *("repeats", "sorter", "v", "values", "weights", "x", "x1", "x2", "x3", "xp", "y", "z"),
    ]
)
"""Names of the parameters of our functions that are arrays. Lists passed for others are not converted."""
SEQUENCES = frozenset(["arrays", "choicelist", "condlist", "operands", "sequences"])
"""Names of the parameters of our functions that are sequences of arrays."""


def _as_operand(x: Any) -> Any:
    """Convert an operand: NumPy arrays and lists become NDArrays."""
    return asarray(x) if isinstance(x, np.ndarray | list | tuple) else x


def _as_operands(xs: Any) -> Any:
    return [_as_operand(x) for x in xs] if isinstance(xs, list | tuple) else _as_operand(xs)


def _has_arrays(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return any(map(_has_arrays, x))
    return isinstance(x, ArrayCore | np.ndarray) or type(x) is NumberProxy


def _converted(result: Any) -> Any:
    """Convert the arrays in a result that NumPy computed to NDArrays."""
    if isinstance(result, tuple | list):
        parts = map(_converted, result)
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return asarray(result) if isinstance(result, np.ndarray) else result


class Ufunc:
    """A NumPy ufunc on NDArrays, with the methods `reduce`, `accumulate`, `reduceat`, `outer` and `at`.

    Other attributes, such as ``nin``, ``nout`` and ``identity``, are NumPy's.

    >>> from tracejit.frontend.arrays.numpy_names import find
    >>> find("multiply").outer([1, 2], [3, 4]).tolist()
    [[3, 4], [6, 8]]
    """

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc
        self.__name__, self.__doc__ = ufunc.__name__, ufunc.__doc__

    def __call__(self, *operands: Any, **options: Any) -> Any:
        if not any(map(_has_arrays, (*operands, options.get("out")))) and not _has_lists(operands):
            return self._ufunc(*operands, **options)
        return self._call("__call__", operands, options)

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, **options: Any) -> Any:
        """Combine the elements along axes by the function, as in NumPy."""
        return self._call("reduce", (array,), {"axis": axis, "dtype": dtype, "out": out, **options})

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """The running results along an axis, as in NumPy."""
        return self._call("accumulate", (array,), {"axis": axis, "dtype": dtype, "out": out})

    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Reduce segments along an axis, as in NumPy."""
        options = {"indices": indices, "axis": axis, "dtype": dtype, "out": out}
        return self._call("reduceat", (array,), options)

    def outer(self, x1: Any, x2: Any, /, **options: Any) -> Any:
        """Apply the function to all pairs of elements, as in NumPy."""
        return self._call("outer", (x1, x2), options)

    def at(self, array: Any, indices: Any, *operands: Any) -> None:
        """Apply the function in place at `indices`, as in NumPy."""
        interop.call_ufunc(self._ufunc, "at", (array, indices, *map(_as_operand, operands)), {})

    def _call(self, method: str, operands: tuple[Any, ...], options: dict[str, Any]) -> Any:
        inputs, outs = operands[: self._ufunc.nin], operands[self._ufunc.nin :]
        out = outs or options.pop("out", None)
        if out is not None:
            options["out"] = out if isinstance(out, tuple) else (out,)
        options = {name: value for name, value in options.items() if value is not None}
        return interop.call_ufunc(self._ufunc, method, tuple(map(_as_operand, inputs)), options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ufunc, name)

    def __repr__(self) -> str:
        return f"<ufunc {self.__name__!r} of tracejit.numpy>"


def _has_lists(operands: tuple[Any, ...]) -> bool:
    return any(isinstance(x, list | tuple) for x in operands)


def _function(function: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the signature of NumPy's `function` that calls its counterpart `ours`."""
    conversions: interop.Conversions = {}
    for parameter in interop.signature_of(ours).parameters.values():
        if parameter.name in ARRAYS | SEQUENCES:
            is_list = parameter.name in SEQUENCES and parameter.kind is not parameter.VAR_POSITIONAL
            conversions[parameter.name] = _as_operands if is_list else _as_operand

    @functools.wraps(function, assigned=("__name__", "__qualname__", "__doc__"), updated=())
    def call(*args: Any, **options: Any) -> Any:
        if not any(map(_has_arrays, args)) and not any(map(_has_arrays, options.values())):
            return _converted(function(*args, **options))
        return interop.call_function(function, args, options, conversions)

    return call


class _NumPyGrid:
    """`mgrid` or `ogrid`, with NumPy's dtypes."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def __getitem__(self, ranges: Any) -> Any:
        return _converted(self._grid[ranges])


def _space(module: types.ModuleType, ours: types.ModuleType) -> types.SimpleNamespace:
    """Return a namespace of the functions of a NumPy module that have counterparts."""
    functions = {
        name: _function(getattr(module, name), getattr(ours, name))
        for name in module.__all__
        if hasattr(ours, name)
    }
    if module is np.linalg:
        functions["LinAlgError"] = np.linalg.LinAlgError
    return types.SimpleNamespace(**functions)


def _random() -> types.SimpleNamespace:
    """Return NumPy's random functions, on the streams of `tj.random`.

    The numbers are float64, and differ from NumPy's.
    """

    def shape(size: Any) -> Any:
        return () if size is None else size

    def uniform(low: Any = 0.0, high: Any = 1.0, size: Any = None) -> NDArray:
        return random.uniform(low, high, shape(size), FLOAT64)

    def normal(loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> NDArray:
        return random.normal(loc, scale, shape(size), FLOAT64)

    def randint(low: Any, high: Any = None, size: Any = None, dtype: Any = "int64") -> NDArray:
        return random.integers(low, high, shape(size), dtype)

    return types.SimpleNamespace(
        normal=normal,
        rand=lambda *size: uniform(size=size),
        randint=randint,
        randn=lambda *size: normal(size=size),
        random=lambda size=None: uniform(size=size),
        random_sample=lambda size=None: uniform(size=size),
        seed=random.seed,
        standard_normal=lambda size=None: normal(size=size),
        uniform=uniform,
    )


SPECIAL: dict[str, Callable[[], Any]] = {
    "c_": lambda: indexers.c_,
    "fft": lambda: _space(np.fft, fft),
    "fromfunction": lambda: MAKERS["fromfunction"],
    "linalg": lambda: _space(np.linalg, linalg),
    "mgrid": lambda: _NumPyGrid(np.mgrid),
    "ogrid": lambda: _NumPyGrid(np.ogrid),
    "r_": lambda: indexers.r_,
    "random": _random,
    "copyto": lambda: NAMESPACE["copyto"],
    "from_dlpack": lambda: interop.from_dlpack,
    "__array_api_version__": lambda: namespace.VERSION,
}
"""Names with special rules."""
PASSED_THROUGH = frozenset(
    [
        *("bool", "dtype", "e", "euler_gamma", "inf", "nan", "newaxis", "pi", "True_", "False_", "finfo"),
        *("iinfo", "ufunc", "exceptions", "testing"),
        *("errstate", "geterr", "seterr", "get_printoptions", "printoptions", "set_printoptions"),
        *("index_exp", "s_", "ndenumerate", "ndindex"),
        *("base_repr", "binary_repr", "broadcast_shapes", "can_cast", "isdtype", "isscalar"),
        *("issubdtype", "iterable", "min_scalar_type", "promote_types", "result_type", "typename"),
    ]
)
"""Names whose objects are NumPy's: constants, dtypes, settings, and queries about these."""


READERS = frozenset(["frombuffer", "fromfile", "fromiter", "fromstring", "genfromtxt", "loadtxt"])
"""Functions that read arrays from other objects and files, by NumPy."""


def find(name: str) -> Any:
    """Return the object for a NumPy name in `tracejit.numpy`. Raises AttributeError if there is none."""
    if name in SPECIAL:
        return SPECIAL[name]()
    if name in MAKERS:
        return MAKERS[name]
    if name in ("load", "save"):  # imported late: the module for ZIP files takes 4 ms
        return getattr(importlib.import_module("tracejit.frontend.arrays.io"), name)
    numpy_object: Any = getattr(np, name, None)
    if name in PASSED_THROUGH or (isinstance(numpy_object, type) and issubclass(numpy_object, np.generic)):
        return numpy_object
    if name in READERS:
        return lambda *args, **options: _converted(numpy_object(*args, **options))
    if isinstance(numpy_object, np.ufunc) and numpy_object in interop.UFUNCS:
        return Ufunc(numpy_object)
    if name in NAMESPACE and callable(numpy_object):
        return _function(numpy_object, NAMESPACE[name])
    raise AttributeError(f"module 'tracejit.numpy' has no attribute {name!r}")


def names() -> list[str]:
    """Return all names for which `find` returns an object, sorted."""
    available = []
    for name in {*np.__all__, *SPECIAL}:
        try:
            find(name)
        except AttributeError:
            continue
        available.append(name)
    return sorted(available)
