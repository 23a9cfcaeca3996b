"""Ctrl-C at a place of the test's choice.

`interrupted` runs a call and raises `KeyboardInterrupt` before its n-th bytecode instruction, among those of
this package and of replays; tests do so for every n there is. CPython looks for signals at fewer places
(where a function is entered, after the call of a C function, at backward jumps): `checks` are only those.

From Python 3.12 on instructions are reported by `sys.monitoring`, before by `sys.settrace`.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import os
import sys
import threading

import tracejit as tj

PACKAGE = os.path.dirname(tj.__file__)
REPLAYS = "<tracejit replay"
ENTERED, NOWHERE = -1, None


@functools.cache
def _looks(code):
    """Offsets of instructions at whose end CPython looks for signals."""
    return {
        i.offset
        for i in dis.get_instructions(code)
        if (i.opname.startswith(("CALL", "RESUME")) or "BACKWARD" in i.opname)
        and not i.opname.startswith("CALL_INTRINSIC")
    }


@functools.cache
def _handlers(code):
    """Offsets at which handlers begin: CPython does not look for signals where a call has raised."""
    return {i.offset for i in dis.get_instructions(code) if i.opname == "PUSH_EXC_INFO"}


class _Countdown:
    """Counts the places that instructions come to; `fired` when the interrupt has been raised."""

    def __init__(self, number, checks, within):
        self.left, self.checks, self.within, self.fired = number, checks, within, False
        self.last = {}  # by frame: the instruction before

    def enter(self, frame):
        """A Python function is called: on its return CPython does not look for signals."""
        if id(frame.f_back) in self.last and frame.f_code.co_name != "__init__":
            self.last[id(frame.f_back)] = NOWHERE

    def step(self, frame, offset):
        """An instruction comes next; raise the interrupt if this is the place."""
        if self.fired:
            return
        before, self.last[id(frame)] = self.last.get(id(frame), ENTERED), offset
        looks = before == ENTERED or (
            before in _looks(frame.f_code) and offset not in _handlers(frame.f_code)
        )
        if not self.checks or looks:
            if self.left == 0:
                self.fired = True
                raise KeyboardInterrupt
            self.left -= 1

    def leave(self, frame):
        self.last.pop(id(frame), None)


@contextlib.contextmanager
def _traced(count):
    """Have `count` told of instructions by `sys.settrace`."""

    def at_instruction(frame, event, arg):
        if event == "return":
            count.leave(frame)
        elif event == "opcode":
            count.step(frame, frame.f_lasti)
        return at_instruction

    def at_call(frame, event, arg):
        if count.fired or not frame.f_code.co_filename.startswith(count.within):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count.enter(frame)
        return at_instruction

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        yield
    finally:
        sys.settrace(before)


TOOL = 5
"""Of `sys.monitoring`; debuggers, coverage, profilers and the package itself have others."""


@contextlib.contextmanager
def _monitored(count):
    """Have `count` told of this thread's instructions by `sys.monitoring`."""
    monitoring, events, this = sys.monitoring, sys.monitoring.events, threading.get_ident()

    def concerns(code):
        return code.co_filename.startswith(count.within) and threading.get_ident() == this

    def started(code, offset):
        if concerns(code):
            monitoring.set_local_events(TOOL, code, events.INSTRUCTION)
            count.enter(sys._getframe(1))

    def at_instruction(code, offset):
        if concerns(code):
            count.step(sys._getframe(1), offset)

    def left(code, offset, value):
        if concerns(code):
            count.leave(sys._getframe(1))

    callbacks = {
        events.PY_START: started,
        events.INSTRUCTION: at_instruction,
        events.PY_RETURN: left,
        events.PY_UNWIND: left,
    }
    monitoring.use_tool_id(TOOL, "interrupting")
    try:
        for event, callback in callbacks.items():
            monitoring.register_callback(TOOL, event, callback)
        monitoring.set_events(TOOL, events.PY_START | events.PY_RETURN | events.PY_UNWIND)
        yield
    finally:
        monitoring.set_events(TOOL, 0)
        for event in callbacks:
            monitoring.register_callback(TOOL, event, None)
        monitoring.free_tool_id(TOOL)


_told = _traced if sys.version_info < (3, 12) else _monitored


def interrupted(call, number, *, checks=False, within=(PACKAGE, REPLAYS)):
    """Run `call`, interrupted at the place of that number, in files `within`; whether there was one."""
    count = _Countdown(number, checks, within)
    try:
        with _told(count):
            call()
    except KeyboardInterrupt:
        if not count.fired:
            raise
        return True
    assert not count.fired, "the interrupt was lost"
    return False
