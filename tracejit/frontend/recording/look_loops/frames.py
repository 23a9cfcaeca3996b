"""The frames of a body at a look: which functions are running, and what their instructions have called.

A function that the body calls may look. C code that calls functions, such as `sorted` and `map`, has no
frame, and its state cannot be read. A caller is therefore known to call a function directly only if its code
names that function: ``converged(x)``, ``self.check(x)``. Functions called by other means (an operator, the
result of an expression) are not. For the same reason, the instruction that looks must be one that looks once:
a jump, ``float(x)``, ``max(x, y)``, but not ``x in values`` or ``any(values)``.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from tracejit.frontend.python.bytecode import is_generator
from tracejit.frontend.python.code_positions import (
    Loaded,
    asks_once,
    call_at,
    compared_at,
    continues_for,
    tests_truth,
)
from tracejit.frontend.python.content import GONE, Attributes, inherited
from tracejit.frontend.python.stack import slices_variable
from tracejit.frontend.recording.location import is_ours, runs_body
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.storage import Storage

LOOPS: set[types.CodeType] = set()
"""Functions of this package that call the user's functions in a loop: their variables count as the body's."""

PASSING: set[types.CodeType] = set()
"""Functions of this package that only forward to a function of the user's."""

STAND_INS: dict[types.ModuleType, Mapping[str, Any]] = {}
"""The functions of modules that stand for others in a traced body."""

NUMBERS = (bool, int, float, np.generic, NumberProxy)
"""Classes of numbers."""


def frames_of_body() -> list[types.FrameType]:
    """Return the frames of the traced function, of the user's functions that it is calling, directly or
    through one another, and of loops of this package between them, innermost first. Empty if other code is
    between them.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame) and frame.f_code not in LOOPS:
        frame = frame.f_back
    frames = []
    while frame is not None and not is_generator(frame.f_code):
        frames.append(frame)
        if frame.f_back is not None and runs_body(frame.f_back):
            return frames
        frame = _caller(frame)
    return []


def _caller(frame: types.FrameType) -> types.FrameType | None:
    """Return the frame that called a frame, if it belongs to the body; None if hidden code is between
    them.
    """
    caller = frame.f_back
    if frame.f_code in LOOPS:
        while caller is not None and is_ours(caller):
            caller = caller.f_back
        return caller
    while caller is not None and caller.f_code in PASSING:
        frame, caller = caller, caller.f_back
    if caller is None or (is_ours(caller) and caller.f_code in LOOPS):
        return caller
    return caller if not is_ours(caller) and calls_directly(caller, frame) else None


def frames_at_look(*, asks_equality: bool, has_answer: bool) -> list[types.FrameType]:
    """Return the frames of the body at a look, if bytecode (and not C code) decides how often it looks; else
    an empty list.

    asks_equality: whether the look is at the result of a comparison for equality, as in C code that searches.
    has_answer:    whether the look follows the answer to a question about numbers.
    """
    frames = frames_of_body()
    if not frames:
        return []
    if has_answer:
        is_known = asks_once(frames[0].f_code, frames[0].f_lasti)
    else:
        is_known = frames[0].f_code in LOOPS or _looks_once(frames[0], asks_equality)
    return frames if is_known else []


def positions_of_ours() -> list[tuple[types.CodeType, int]]:
    """Return the positions in functions of this package that the body's innermost frame has called, innermost
    first. (The frames themselves would include the caller's own, a reference cycle.)
    """
    frame: types.FrameType | None = sys._getframe(1)
    positions = []
    while frame is not None and is_ours(frame) and frame.f_code not in LOOPS:
        positions.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return positions


def _looks_once(frame: types.FrameType, asks_equality: bool) -> bool:
    """Whether the current instruction of a frame looks at one value at most."""
    position = frame.f_code, frame.f_lasti
    if tests_truth(*position) or continues_for(*position):  # the latter: see `counters.CountedRange`
        return True
    if slices_variable(*position):  # each bound once, at different places in this package
        return True
    operands = compared_at(*position)
    if operands is not None:
        return not asks_equality or any(_is_single(loaded_value(frame, operand)) for operand in operands)
    call = call_at(*position)
    if call is None:
        return False
    if call.callee is None:  # a method of what an expression computes
        return call.methods[-1:] == tuple(code.co_name for code, _offset in positions_of_ours()[-1:])
    called = loaded_value(frame, call.callee)
    if called is float or called is int or called is bool:
        return True
    if isinstance(called, functools.partial):  # for example the project's replacement of `min`
        called = next(iter(called.args), called.func)
    if called is min or called is max:
        return call.n_positional == 2
    return isinstance(called, types.FunctionType) and str(called.__module__).partition(".")[0] == "tracejit"


def _is_single(value: Any) -> bool:
    """Whether a value is a number or an array, rather than a container whose items are compared."""
    return isinstance(value, NUMBERS) or isinstance(getattr(value, "_storage", None), Storage)


def calls_directly(caller: types.FrameType, callee: types.FrameType) -> bool:
    """Whether the current instruction of `caller` has called the function of `callee`."""
    value = callee_at(caller, caller.f_lasti)
    while isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, types.MethodType | classmethod | staticmethod):
        value = value.__func__
    elif not isinstance(value, types.FunctionType | type):
        value = inherited(type(value), "__call__")
    return isinstance(value, types.FunctionType) and value.__code__ is callee.f_code


def callee_at(frame: types.FrameType, offset: int) -> Any:
    """Return the callee of the call at an instruction, if it is in a variable or an attribute; else
    `GONE`.
    """
    call = call_at(frame.f_code, offset)
    return GONE if call is None else loaded_value(frame, call.callee)


def loaded_value(frame: types.FrameType, loaded: Loaded | None) -> Any:
    """Return the value of an expression in a frame, without running code of the user's; `GONE` if it is none
    of those that only load.
    """
    if loaded is None:
        return GONE
    if loaded.variable is None:
        return loaded.constant
    scopes = frame.f_locals, frame.f_globals, frame.f_builtins
    value = next((scope[loaded.variable] for scope in scopes if loaded.variable in scope), GONE)
    for name in loaded.attributes:
        value = _attribute(value, name)
    return value


def _attribute(holder: Any, name: str) -> Any:
    """Return an attribute of a module, of an object, or of its class, without running code of the user's."""
    if isinstance(holder, types.ModuleType):
        return vars(holder).get(name, STAND_INS.get(holder, {}).get(name, GONE))
    value = GONE if isinstance(holder, type) else Attributes(holder).get(name)
    return inherited(holder if isinstance(holder, type) else type(holder), name) if value is GONE else value
