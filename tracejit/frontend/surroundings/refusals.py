"""Code that cannot be replayed because of the names it uses: the recording is aborted before it runs."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np

from tracejit.frontend.python.bytecode import attributes_after, computed_access, facts, mention
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.surroundings import numpy_module
from tracejit.frontend.surroundings.executed import ExecutedCode
from tracejit.frontend.surroundings.reach import Reach
from tracejit.frontend.surroundings.reads import Reads

INNER = frozenset(
    {"__globals__", "__closure__", "cell_contents", "__code__", "__defaults__", "__kwdefaults__", "__bases__"}
    | {"f_globals", "f_locals", "f_builtins", "getclosurevars"}
    | {"__dict__", "__slots__", "__getattribute__", "__setattr__", "__delattr__"}
    | {"attrgetter", "methodcaller", "getmembers", "getattr_static"}
)
"""Attributes and functions that expose the internals of functions, frames, classes and objects."""


def refuse_type_questions(trace: Trace, code: types.CodeType) -> None:
    """Abort the recording if code may distinguish recorded arrays from NumPy's."""
    if trace.recorded_numpy and (teller := numpy_module.tells(code)):
        what = f"{teller} may distinguish recorded arrays from NumPy's"
        trace.give_up(what, "create them with functions of tj instead of NumPy's")


def refuse_names(
    trace: Trace, code: types.CodeType, namespace: dict[str, Any], executed: ExecutedCode
) -> None:
    """Abort the recording if code accesses values that cannot be determined from the names it mentions."""
    remedy = "refer to the value by its own name"
    names = facts(code)
    if inner := names.attributes & INNER or names.stored & {"__class__"}:
        name = min(inner)
        what = f"the body uses {name}, which a replay cannot follow"
        trace.give_up(what, remedy, line=mention({code}, name))
    if not trace.assumed.generators and _names_default_rng(namespace, names.globals):
        raise Restart(generators=True)
    if "random" in names.attributes:
        imports_numpy = (0, "numpy") in names.imports
        roots = set(executed.names_of(np))
        if not imports_numpy and attributes_after(code, roots, "random") == {"default_rng"}:
            if not trace.assumed.generators and not trace.numbers.concrete:
                raise Restart(generators=True)
        elif imports_numpy or any((name, "random") in names.uses for name in roots):
            what = "numpy.random gives other numbers on every call"
            trace.give_up(what, "use tj.random", line=mention({code}, "random"))
    if accessor := computed_access(code):
        what = f"{accessor} looks up names that the body computes, which a replay cannot follow"
        trace.give_up(what, remedy, line=mention({code}, accessor))


def _names_default_rng(namespace: dict[str, Any], names: frozenset[str]) -> bool:
    """Whether one of these globals is `numpy.random.default_rng`, or another thread's stand-in for it."""
    module: Any = sys.modules.get("numpy.random")
    if module is None:
        return False
    kinds = type(module.default_rng), types.FunctionType  # other values may be stand-ins for numbers
    values: list[Any] = [namespace.get(name) for name in names]
    return any(type(value) in kinds and value.__name__ == "default_rng" for value in values)


def refuse_slots(trace: Trace, reach: Reach, reads: Reads) -> None:
    """Abort the recording if executed code reads a slot that a replay cannot check."""
    for slot in reach.refused:
        if slot.refusal is not None and reads.was_read(slot):
            trace.give_up(*slot.refusal, line=reach.code.line_of(slot))


def refuse_unknown_closure(trace: Trace, code: types.CodeType) -> None:
    """Abort the recording because the function with this code was not reached by name."""
    name = code.co_qualname
    what = f"{name} is a closure that was not reached by name, so the variables it captured cannot be checked"
    trace.give_up(what, "call it by a global or local name of the traced function")
