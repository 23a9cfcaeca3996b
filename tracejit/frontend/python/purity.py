"""Tables of pure functions of the standard library, NumPy and other packages.

A replay omits calls of Python functions, which is correct only for pure functions. A function that is not in
these tables counts as impure.
"""

from __future__ import annotations

import types
from types import CodeType, FrameType
from typing import Any

from tracejit.frontend.python.kinds import BASES, trusted


def _names(*lines: str) -> frozenset[str]:
    """Split lines into a set of words."""
    return frozenset(" ".join(lines).split())


NO_ARRAY_WORK: dict[CodeType, str] = {}
"""Functions of this package that are not array operations, and their public names. Modules add their own."""
PURE_BUILTINS = _names(
    "abs all any ascii bin callable chr delattr divmod format getattr hasattr hex isinstance",
    "issubclass iter len locals max min oct ord pow repr round setattr sorted sum",
)
PURE_MODULES = _names(
    "math cmath operator _operator _functools functools itertools _collections _abc _struct copy _copy _sre",
    "unicodedata zlib _bisect _heapq numpy _typing",
)
PURE_LIBRARY = _names(
    "abc ast bisect collections contextlib copy copyreg dataclasses enum fractions functools",
    "heapq inspect itertools keyword math numbers numpy operator re reprlib statistics",
    "string textwrap tracejit types typing weakref _collections_abc _weakrefset numba scipy llvmlite",
    "ml_dtypes",
)
"""Modules (including those of other packages) whose functions written in Python have no side effects."""
_RUNS = PURE_LIBRARY | {"builtins"}
EFFECTS = (
    *("numpy.random", "numpy.lib._npyio_impl", "numpy.lib.npyio", "numpy.lib._datasource"),
    *("numpy.lib.format", "numpy.lib._format_impl", "numpy._core.memmap", "numpy._core.arrayprint"),
    *("numpy.lib._utils_impl", "numpy.__config__", "numba.np.ufunc.parallel"),
    *("scipy.stats", "scipy.io", "scipy.datasets"),
)
"""Impure modules of packages in `PURE_LIBRARY`: they draw random numbers, read files, print, or have
settings.
"""
STATEFUL = _names(
    "fromfile numpy._core.records.fromfile statistics.NormalDist.samples weakref.finalize.__init__",
    "copyreg.pickle copyreg.add_extension copyreg.remove_extension copyreg.clear_extension_cache",
    "contextlib._RedirectStream.__enter__ contextlib.chdir.__enter__",
    "inspect.currentframe inspect.stack inspect.trace numpy.polynomial.set_default_printstyle",
    "functools.singledispatch.<locals>.wrapper functools.singledispatchmethod.__get__.<locals>._method",
    *(f"numpy._core._ufunc_config.{name}" for name in ("geterr", "seterr", "geterrcall", "seterrcall")),
    "numpy._core._ufunc_config.getbufsize numpy._core._ufunc_config.setbufsize",
)
"""Impure functions of pure modules."""
OPENING = _names("_io.FileIO _socket.socket mmap.mmap select.epoll sqlite3.Connection")
"""Classes written in C whose constructors open a file, socket or similar resource, which no event reports."""
PURE_TYPES: tuple[type, ...] = (
    *(dict, list, tuple, set, frozenset, range, slice, type),
    *(str, bytes, bytearray, int, float, complex, bool),
    *(type({}.keys()), type({}.values()), type({}.items()), types.MappingProxyType, types.FunctionType),
    *(types.CodeType, types.MethodType, BaseException, type(None), property, types.CellType),
    types.GenericAlias,
)
PURE_OWNERS = frozenset({"numpy", "collections", "itertools", "re", "datetime"})
_CHANGING = _names(
    "__next__ send throw now today utcnow fromtimestamp timestamp astimezone tofile dump __enter__ __exit__"
)


REMEDY = "call it outside, pass its result as an argument, or wrap it in tj.callback or tj.pure"


def impure(function: Any) -> str | None:
    """Return the name of a C function that may have side effects or a varying result; None for a pure one."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", str(function))
    if isinstance(owner, types.ModuleType) or owner is None:
        module = owner.__name__ if owner is not None else getattr(function, "__module__", None) or ""
        if module == "builtins":
            return None if name in PURE_BUILTINS else name
        root = module.partition(".")[0]
        is_pure = root in PURE_MODULES and not module.startswith("numpy.random")
        if is_pure and name not in STATEFUL:
            return None
        kind = getattr(function, "__objclass__", None)
        if kind is None:
            return f"{module}.{name}" if module else name
    else:
        kind = owner if isinstance(owner, type) else type(owner)
    if name not in _CHANGING and (
        kind is object
        or issubclass(kind, PURE_TYPES)
        or (name.startswith("__") and not trusted(kind.__module__))
        or (
            kind.__module__.partition(".")[0] in PURE_OWNERS
            and not kind.__module__.startswith("numpy.random")
        )
    ):
        return None
    return f"{kind.__module__}.{kind.__name__}.{name}".replace("builtins.", "")


def impure_library(frame: FrameType) -> str | None:
    """Return the name of the library function that runs in a frame, or None if it is known to be pure."""
    code, module = frame.f_code, frame.f_globals.get("__name__") or ""
    is_known = module.partition(".")[0] in PURE_LIBRARY and not module.startswith(EFFECTS)
    path = f"{module}.{code.co_qualname}"
    if not is_known or path in STATEFUL:
        return path
    if module == "collections.abc" and code.co_argcount:  # its functions call methods of the object's class
        kind = type(frame.f_locals.get(code.co_varnames[0]))
        if trusted(kind.__module__) and kind.__module__.partition(".")[0] not in _RUNS:
            return f"{kind.__module__}.{kind.__qualname__}.{code.co_name}"
    return None


def opens(value: Any) -> bool:
    """Return whether `value` is a class whose constructor opens a file, a connection or a similar
    resource.
    """
    bases = value.__mro__ if isinstance(value, type) else ()
    return any(f"{base.__module__}.{base.__qualname__}" in OPENING for base in bases)


def runs_library_code(cls: type) -> bool:
    """Return whether methods of a pure library may read attributes of the instances of `cls`."""
    return any(
        trusted(base.__module__)
        and (base not in BASES or base is types.SimpleNamespace)
        and base.__module__.partition(".")[0] in _RUNS
        and base.__module__ not in ("abc", "typing", "enum")
        for base in cls.__mro__
    )
