"""Watching the body while it is recorded: calls that a replay would silently leave out.

A replay does not run the body, so whatever the body does besides array work must be known to have no effect
and always the same result. While recording, `sys.setprofile` reports every call: builtins and methods of
builtin types known to be pure pass; any other C function (``time.time``, ``print``, ``next``,
``random.random``) makes the trace piecewise; Python functions the surroundings did not find by name are
followed now.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tracejit.frontend.surroundings import Surroundings, names_in, trusted
from tracejit.frontend.trace import Trace

PURE_BUILTINS = frozenset(
    {
        *("abs", "all", "any", "ascii", "bin", "callable", "chr", "delattr", "dir", "divmod", "format"),
        *("getattr", "globals", "hasattr", "hash", "hex", "id", "isinstance", "issubclass", "iter", "len"),
        *("locals", "max", "min", "oct", "ord", "pow", "repr", "round", "setattr", "sorted", "sum", "vars"),
        *("__build_class__", "__import__"),
    }
)
PURE_MODULES = frozenset(
    {
        *("math", "cmath", "operator", "_operator", "_functools", "functools", "itertools", "_collections"),
        *(
            "_abc",
            "_struct",
            "_weakref",
            "copy",
            "_copy",
            "_thread",
            "_sre",
            "unicodedata",
            "zlib",
            "_bisect",
        ),
        *("_heapq", "numpy", "gc", "sys", "_typing", "_warnings"),
    }
)
PURE_TYPES: tuple[type, ...] = (
    dict, list, tuple, str, bytes, bytearray, int, float, complex, bool, set, frozenset, range, slice, type,
    type({}.keys()), type({}.values()), type({}.items()), types.MappingProxyType, types.FunctionType,
    types.CodeType, types.MethodType, BaseException, type(None), property, types.CellType,
    types.GenericAlias,
)  # fmt: skip
_ITERATORS = frozenset({"__next__", "send", "throw"})


def impure(function: Any) -> str | None:
    """The name of a C function that may have effects or a changing result; None for those known to be
    pure."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", str(function))
    if isinstance(owner, types.ModuleType) or owner is None:
        module = owner.__name__ if owner is not None else getattr(function, "__module__", None) or ""
        if module == "builtins":
            return None if name in PURE_BUILTINS else name
        root = module.partition(".")[0]
        if module in PURE_MODULES or (root in PURE_MODULES and not module.startswith("numpy.random")):
            return None
        objclass = getattr(function, "__objclass__", None)
        if objclass is not None and issubclass(objclass, PURE_TYPES):
            return None
        return f"{module}.{name}" if module else name
    kind = owner if isinstance(owner, type) else type(owner)
    if name in _ITERATORS:
        return f"{kind.__name__}.{name}"
    if owner is object or isinstance(owner, PURE_TYPES) or issubclass(kind, PURE_TYPES):
        return None
    if name.startswith("__") or (
        trusted(kind.__module__) and kind.__module__ in ("numpy", "collections", "re")
    ):
        return None
    return f"{kind.__module__}.{kind.__name__}.{name}".replace("builtins.", "")


@contextmanager
def watching(trace: Trace, surroundings: Surroundings) -> Iterator[None]:
    """Report calls of this thread to the trace while its body runs."""
    known: dict[int, tuple[Any, bool]] = {}

    def follow(frame: Any) -> None:
        code = frame.f_code
        if code in surroundings.codes or trusted(frame.f_globals.get("__name__")):
            return
        surroundings.codes.add(code)
        surroundings.names |= names_in(code)
        surroundings.globals(frame.f_globals, names_in(code))
        if code.co_freevars:
            trace.give_up(
                f"{code.co_qualname} is a closure that was not found by name, so what it captured "
                "cannot be watched",
                "call it by a global or local name of the traced function",
            )

    def profile(frame: Any, event: str, argument: Any) -> None:
        if trace.piecewise:
            stop()
            return
        if event == "call":
            entry = known.get(id(frame.f_code))
            if entry is None:
                known[id(frame.f_code)] = (frame.f_code, True)
                follow(frame)
        elif event == "c_call" and not trusted(frame.f_globals.get("__name__")):
            found = impure(argument)
            if found is not None:
                trace.give_up(
                    f"{found}() may have an effect or give another result on every call",
                    "call it outside, pass its result as an argument, or wrap it in tj.callback or tj.pure",
                )

    before, collecting = sys.getprofile(), gc.isenabled()

    def stop() -> None:
        sys.setprofile(before)
        if collecting:
            gc.enable()

    gc.disable()  # what the collector calls (finalizers, gc.callbacks) would look like calls of the body
    sys.setprofile(profile)
    try:
        yield
    finally:
        stop()
