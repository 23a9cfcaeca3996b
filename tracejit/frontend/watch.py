"""Watching the body while it is recorded: calls that a replay would silently leave out.

A replay does not run the body, so whatever the body does besides array work must be known to have no effect
and always the same result. While recording, `sys.setprofile` reports every call: builtins and methods of
builtin types known to be pure pass; any other C function (``time.time``, ``print``, ``next``) makes the trace
piecewise, and so does a function of Python's library outside the modules known to be pure (``random.gauss``,
``logging.info``). Python functions that the surroundings did not find by name are followed now.

The lines that run are noted, too: names on other lines need no guards. What is inside a function vouched for
with `tj.pure` is not watched.
"""

from __future__ import annotations

import collections
import gc
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracejit import engine
from tracejit.frontend import random
from tracejit.frontend.kinds import trusted
from tracejit.frontend.surroundings import Surroundings
from tracejit.frontend.trace import Trace

PURE_BUILTINS = frozenset(
    {
        *(
            "abs",
            "all",
            "any",
            "ascii",
            "bin",
            "callable",
            "chr",
            "delattr",
            "dir",
            "divmod",
            "format",
            "getattr",
        ),
        *("hasattr", "hash", "hex", "isinstance", "issubclass", "iter", "len", "locals", "max", "min", "oct"),
        *("ord", "pow", "repr", "round", "setattr", "sorted", "sum", "__build_class__", "__import__"),
    }
)
PURE_MODULES = frozenset(
    {
        *("math", "cmath", "operator", "_operator", "_functools", "functools", "itertools", "_collections"),
        *("_abc", "_struct", "copy", "_copy", "_sre", "unicodedata", "zlib", "_bisect", "_heapq", "numpy"),
        *("_typing", "gc"),
    }
)
PURE_LIBRARY = frozenset(
    {
        *(
            "abc",
            "ast",
            "bisect",
            "collections",
            "contextlib",
            "copy",
            "copyreg",
            "dataclasses",
            "decimal",
            "dis",
        ),
        *("enum", "fractions", "functools", "genericpath", "heapq", "importlib", "inspect", "itertools"),
        *("keyword", "math", "numbers", "numpy", "operator", "re", "reprlib", "statistics", "string"),
        *("textwrap", "tracejit", "types", "typing", "weakref", "_collections_abc", "_weakrefset", "numba"),
        *("scipy", "llvmlite"),
    }
)
"""Modules (also of other packages) whose functions, if written in Python, have no effects."""
NUMPY_EFFECTS = ("numpy.random", "numpy.lib._npyio_impl", "numpy.lib.npyio", "numpy._core.memmap")
PURE_TYPES: tuple[type, ...] = (
    *(
        dict,
        list,
        tuple,
        str,
        bytes,
        bytearray,
        int,
        float,
        complex,
        bool,
        set,
        frozenset,
        range,
        slice,
        type,
    ),
    *(type({}.keys()), type({}.values()), type({}.items()), types.MappingProxyType, types.FunctionType),
    *(types.CodeType, types.MethodType, BaseException, type(None), property, types.CellType),
    types.GenericAlias,
)
PURE_OWNERS = frozenset({"numpy", "collections", "re", "decimal", "fractions", "datetime"})
_CHANGING = frozenset(
    {
        *("__next__", "send", "throw", "now", "today", "utcnow", "fromtimestamp", "tofile", "dump"),
        *("__enter__", "__exit__"),
    }
)
OURS = {
    engine.push.__code__: "tj.engine.push",
    engine.wait_all.__code__: "tj.wait_all",
    random.seed.__code__: "tj.random.seed",
}
"""Functions of this package that are no array work."""
LOOKS_INTO = frozenset({"array", "asarray", "asanyarray", "ascontiguousarray", "frombuffer", "fromiter"})
"""NumPy functions that hand a captured array's content to Python without asking the array."""

REMEDY = "call it outside, pass its result as an argument, or wrap it in tj.callback or tj.pure"


def impure(function: Any) -> str | None:
    """The name of a C function that may have effects or a changing result; None for a pure one."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", str(function))
    if isinstance(owner, types.ModuleType) or owner is None:
        module = owner.__name__ if owner is not None else getattr(function, "__module__", None) or ""
        if module == "builtins":
            return None if name in PURE_BUILTINS else name
        root = module.partition(".")[0]
        if module in PURE_MODULES or (root in PURE_MODULES and not module.startswith("numpy.random")):
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


def _impure_library(frame: Any) -> str | None:
    """The name of a library function written in Python that is not known to be pure."""
    code, module = frame.f_code, frame.f_globals.get("__name__") or ""
    if code in OURS:
        return OURS[code]
    if module.startswith(NUMPY_EFFECTS) or module.partition(".")[0] not in PURE_LIBRARY:
        return f"{module}.{code.co_qualname}"
    return None


@contextmanager
def watching(trace: Trace, surroundings: Surroundings) -> Iterator[None]:
    """Report calls of this thread to the trace while its body runs."""

    def called(frame: Any) -> None:
        code = frame.f_code
        if code in surroundings.executed:
            return
        if trusted(frame.f_globals.get("__name__")):
            caller = frame.f_back
            if caller is not None and not trusted(caller.f_globals.get("__name__")):
                name = _impure_library(frame)
                if name is not None:
                    trace.give_up(f"{name}() may have an effect or give another result on every call", REMEDY)
            return
        known = surroundings.enter(code, frame.f_globals)
        surroundings.executed[code] = set()
        trace.captured = list(surroundings.held.values())
        if not known:
            trace.give_up(
                f"{code.co_qualname} is a closure that was not found by name, so what it captured cannot be "
                "watched",
                "call it by a global or local name of the traced function",
            )

    def called_c(frame: Any, function: Any) -> None:
        if trusted(frame.f_globals.get("__name__")):
            return
        name = impure(function)
        if name is not None:
            trace.give_up(f"{name}() may have an effect or give another result on every call", REMEDY)
            return
        owner = getattr(function, "__self__", None)
        if isinstance(owner, (list, dict, set, collections.deque)):
            surroundings.touched.add(id(owner))
        elif getattr(function, "__name__", "") in LOOKS_INTO and getattr(np, function.__name__) is function:
            for held in surroundings.held.values():
                held.is_data = True

    def profile(frame: Any, event: str, argument: Any) -> None:
        if trace.piecewise:
            stop()
        elif trace.vouched:
            return
        elif event == "call":
            called(frame)
        elif event == "c_call":
            called_c(frame, argument)

    def enter(frame: Any, event: str, argument: Any) -> Any:
        return None if trace.vouched or trusted(frame.f_globals.get("__name__")) else note_line

    def note_line(frame: Any, event: str, argument: Any) -> Any:
        if event == "line":
            surroundings.executed.setdefault(frame.f_code, set()).add(frame.f_lineno)
        return note_line

    before, collecting = sys.getprofile(), gc.isenabled()
    lines = sys.gettrace() is None  # else a debugger or coverage needs it, and all lines count as executed

    def stop() -> None:
        sys.setprofile(before)
        if lines:
            sys.settrace(None)
        if collecting:
            gc.enable()

    gc.disable()  # what the collector calls (finalizers, gc.callbacks) would look like calls of the body
    sys.setprofile(profile)
    if lines:
        sys.settrace(enter)
    try:
        yield
    finally:
        stop()
