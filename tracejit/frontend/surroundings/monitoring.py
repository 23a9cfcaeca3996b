"""Events from `sys.monitoring`, on Python 3.12 and later.

The start of a function is reported for all code, but only once for code of this package. Calls of C functions
are reported in user code only.
"""

from __future__ import annotations

import os
import sys
from types import BuiltinFunctionType, CodeType, MethodDescriptorType
from typing import Any

from tracejit.errors import ReplayError
from tracejit.forking import make_rlock
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.surroundings.watch import Watcher

_monitoring: Any = getattr(sys, "monitoring", None)  # None on Python 3.11, where this module is not called
_switch = make_rlock()  # reentrant: a signal handler may stop a watcher while this thread starts another
_tools: list[int] = []  # this package's tool identifier, after it has been claimed
_reporting: dict[int, CodeType] = {}  # user code whose calls are reported, by identity

watchers: set[Watcher] = set()
"""The active watchers of all threads; events are reported while there is at least one."""


def report_to(watcher: Watcher) -> None:
    """Report the events of this thread to the watcher."""
    watcher.before = (thread.watcher,)
    with _switch:
        tool = _tools[0] if _tools else _claim()
        watchers.add(watcher)
        _monitoring.set_events(tool, _monitoring.events.PY_START)
    thread.watcher = watcher


def stop(watcher: Watcher) -> None:
    """Stop reporting to the watcher; idempotent."""
    if watcher.before is None:
        return
    with _switch:
        watchers.discard(watcher)
        if not watchers and _tools:
            _monitoring.set_events(_tools[0], 0)
            while _reporting:
                _monitoring.set_local_events(_tools[0], _reporting.popitem()[1], 0)
    if thread.watcher is watcher:
        (thread.watcher,) = watcher.before


def _claim() -> int:
    """Claim a tool identifier that no other tool uses, and return it. Raise `ReplayError` if none is free."""
    free = [number for number in (4, 3, 5, 1, 2, 0) if _monitoring.get_tool(number) is None]
    if not free:
        raise ReplayError(
            "jit: debuggers and profilers have taken all tools of sys.monitoring, so calls of the body "
            "cannot be watched; stop one of them, or set TRACEJIT_JIT=0 to debug"
        )
    _monitoring.use_tool_id(free[0], "tracejit")
    _monitoring.register_callback(free[0], _monitoring.events.PY_START, _on_start)
    _monitoring.register_callback(free[0], _monitoring.events.CALL, _on_call)
    _tools.append(free[0])
    return free[0]


def _forget_other_threads() -> None:
    """In a forked child, drop the watchers of all threads but the one that forked: only that survives."""
    watchers.intersection_update({thread.watcher})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


def _on_start(code: CodeType, _offset: int) -> Any:
    watcher = thread.watcher
    if watcher is None:
        return None
    if watcher.over:
        stop(watcher)
        return None
    if watcher.started(sys._getframe(1)):
        return _monitoring.DISABLE
    if id(code) in watcher.users and id(code) not in _reporting:
        with _switch:
            _reporting[id(code)] = code
            _monitoring.set_local_events(_tools[0], code, _monitoring.events.CALL)
    return None


def _on_call(code: CodeType, _offset: int, function: Any, first: Any) -> None:
    watcher = thread.watcher
    if watcher is None or watcher.over or id(code) not in watcher.users:
        return
    if type(function) is MethodDescriptorType:
        if not isinstance(first, function.__objclass__):
            return  # the call raises
        function = function.__get__(first)
    if type(function) is BuiltinFunctionType:
        watcher.calls(sys._getframe(1), function)
