"""Code that cannot be replayed for what it names: the recording is given up before it runs."""

from __future__ import annotations

import types

import numpy as np

from tracejit.frontend.python.bytecode import computed_access, facts, mention
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
"""Attributes by which functions, frames, classes and objects show what lies behind them."""


def refuse_type_questions(trace: Trace, code: types.CodeType) -> None:
    """Give up if code may tell recorded arrays from those that NumPy would have made."""
    if trace.recorded_numpy and (teller := numpy_module.tells(code)):
        what = f"{teller} may tell the arrays that NumPy would make from recorded ones"
        trace.give_up(what, "make them with functions of tj instead of NumPy's")


def refuse_names(trace: Trace, code: types.CodeType, executed: ExecutedCode) -> None:
    """Give up if code reaches values in a way that names do not tell."""
    remedy = "use what is found there by its own name"
    found = facts(code)
    if inner := found.attributes & INNER or found.stored & {"__class__"}:
        name = min(inner)
        what = f"the body uses {name}, which a replay cannot follow"
        trace.give_up(what, remedy, line=mention({code}, name))
    if "random" in found.attributes:
        imports_numpy = (0, "numpy") in found.imports
        if imports_numpy or any((name, "random") in found.uses for name in executed.names_of(np)):
            what = "numpy.random gives other numbers on every call"
            trace.give_up(what, "use tj.random", line=mention({code}, "random"))
    if accessor := computed_access(code):
        what = f"{accessor} looks up names that the body computes, which a replay cannot follow"
        trace.give_up(what, remedy, line=mention({code}, accessor))


def refuse_slots(trace: Trace, reach: Reach, reads: Reads) -> None:
    """Give up if code that runs reads a slot that a replay cannot check."""
    for slot in reach.refused:
        if slot.refusal is not None and reads.was_read(slot):
            trace.give_up(*slot.refusal, line=reach.code.line_of(slot))


def refuse_unknown_closure(trace: Trace, code: types.CodeType) -> None:
    """Give up because the function with this code was not found by name."""
    what = f"{code.co_qualname} is a closure that was not found by name"
    what += ", so what it captured cannot be watched"
    trace.give_up(what, "call it by a global or local name of the traced function")
