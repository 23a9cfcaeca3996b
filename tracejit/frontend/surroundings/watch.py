"""Watching the body while it is recorded: calls that a replay would silently leave out.

A replay does not run the body, so whatever the body does besides array work must be known to have no effect
and always the same result. Two events tell what it does:

- a Python function starts. Code of the user's is new surroundings: what it names is visited before it runs.
  A function of Python's library called by code of the user's must be one that is known to be pure.
- code of the user's calls a C function, which must be known to be pure: ``time.time`` and ``print`` are not.

What is not known to be pure aborts the recording before the call is made, and the body runs itself from its
start (see `trace`). What runs inside this package, or in a function vouched for with `tj.pure`, is not
watched.

`sys.monitoring` reports the events on Python 3.12 and later: starts of functions everywhere, but no second
time for code of this package, and calls in code of the user's only. `sys.setprofile` reports them on 3.11,
with those of this package among them, which the hook drops by the identity of their code.
"""

from __future__ import annotations

import os
import sys
import types
from types import FrameType
from typing import Any

import numpy as np

from tracejit import engine
from tracejit.errors import ReplayError
from tracejit.forking import make_rlock
from tracejit.frontend.arrays import random
from tracejit.frontend.python.kinds import OURS, OWNER, USERS
from tracejit.frontend.python.purity import REMEDY, impure, impure_library
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.surroundings.changes import Surroundings

NO_ARRAY_WORK = {
    engine.push.__code__: "tj.engine.push",
    engine.wait_all.__code__: "tj.wait_all",
    random.seed.__code__: "tj.random.seed",
}
"""Functions of this package that are no array work."""
LOOKS_INTO = frozenset({"array", "asarray", "asanyarray", "ascontiguousarray", "frombuffer", "fromiter"})
"""NumPy functions that hand a captured array's content to Python without asking the array."""


class Watcher:
    """Tells a trace and its surroundings what the body calls.

    known: ids of code of which no start matters any more: this package's, and the user's that has been
           entered. Code of the user's is kept alive by the surroundings, this package's by its modules.
    users: ids of code of the user's that has been entered.
    over:  the body has ended. An interrupt may come before `stop` has done its work; the next event that is
           reported does it then.
    """

    def __init__(self, trace: Trace, surroundings: Surroundings) -> None:
        self.trace, self.surroundings = trace, surroundings
        self.known: set[int] = set()
        self.users: set[int] = set()
        self.over = False
        self._before: Any = None  # what was told of events, where this watcher is told now

    def start(self) -> None:
        """Be told of the calls of this thread."""
        _start(self)

    def stop(self) -> None:
        """Be told no more; this may be done twice."""
        if self._before is not None:
            _stop(self)

    def started(self, frame: FrameType) -> bool:
        """A Python function starts; whether this code need never be reported again to any watcher."""
        code, namespace = frame.f_code, frame.f_globals
        owner = OWNER[namespace.get("__name__")]
        if owner == OURS and code not in NO_ARRAY_WORK:
            self.known.add(id(code))
            return True
        if self.trace.vouched or id(code) in self.known:
            return False
        if owner == USERS:
            self._enter(frame)
        else:
            caller = frame.f_back
            if caller is not None and id(caller.f_code) in self.users:
                self._library(frame, caller)
        return False

    def _enter(self, frame: FrameType) -> None:
        """A function of the user's starts for the first time."""
        code = frame.f_code
        self.known.add(id(code))
        self.users.add(id(code))
        try:
            self.surroundings.enter(code, frame.f_globals)
        except Restart as restart:
            self.trace.interrupt(restart)

    def _library(self, frame: FrameType, caller: FrameType) -> None:
        """Code of the user's calls a function of Python's library, or one that is no array work."""
        code = frame.f_code
        if code.co_name == "_find_and_load":
            self.trace.give_up("the body loads a module", "import it outside of the function", later=True)
        self._refuse(NO_ARRAY_WORK.get(code) or impure_library(frame), caller)

    def calls(self, frame: FrameType, function: Any) -> None:
        """Code of the user's is about to call a C function."""
        if self.trace.vouched:
            return
        name = impure(function)
        if name is not None:
            self._refuse(name, frame)
        if getattr(function, "__name__", "") in LOOKS_INTO and getattr(np, function.__name__) is function:
            for held in self.surroundings.captured.values():
                held.use_as_data()

    def _refuse(self, name: str | None, user: FrameType) -> None:
        """Give up because of a call from a frame of the user's."""
        if name is not None:
            what = f"{name}() may have an effect or give another result on every call"
            self.trace.give_up(what, REMEDY, line=f"{user.f_code.co_filename}:{user.f_lineno}")


if sys.version_info >= (3, 12):
    _EVENTS = sys.monitoring.events
    _switch = make_rlock()  # a handler of signals may stop a watcher while this thread starts another
    _tools: list[int] = []  # the number by which the interpreter knows this package, once there is one
    _watchers: set[Watcher] = set()  # on all threads; events are reported while there is any
    _reporting: dict[int, types.CodeType] = {}  # by identity: code of users whose calls are reported

    def _start(watcher: Watcher) -> None:
        """Report to the watcher what this thread does."""
        watcher._before = (thread.watcher,)
        with _switch:
            tool = _tools[0] if _tools else _claim()
            _watchers.add(watcher)
            sys.monitoring.set_events(tool, _EVENTS.PY_START)
        thread.watcher = watcher

    def _stop(watcher: Watcher) -> None:
        with _switch:
            _watchers.discard(watcher)
            if not _watchers and _tools:
                sys.monitoring.set_events(_tools[0], 0)
                while _reporting:
                    sys.monitoring.set_local_events(_tools[0], _reporting.popitem()[1], 0)
        if thread.watcher is watcher:
            (thread.watcher,) = watcher._before

    def _claim() -> int:
        """Take a number that no other tool has."""
        free = [number for number in (4, 3, 5, 1, 2, 0) if sys.monitoring.get_tool(number) is None]
        if not free:
            raise ReplayError(
                "jit: debuggers and profilers have taken all tools of sys.monitoring, so calls of the body "
                "cannot be watched; stop one of them, or set TRACEJIT_JIT=0 to debug"
            )
        sys.monitoring.use_tool_id(free[0], "tracejit")
        sys.monitoring.register_callback(free[0], _EVENTS.PY_START, _on_start)
        sys.monitoring.register_callback(free[0], _EVENTS.CALL, _on_call)
        _tools.append(free[0])
        return free[0]

    def _forget_other_threads() -> None:
        """In a forked child: threads that recorded in its parent are gone."""
        _watchers.intersection_update({thread.watcher})

    os.register_at_fork(after_in_child=_forget_other_threads)

    def _on_start(code: types.CodeType, _offset: int) -> Any:
        watcher = thread.watcher
        if watcher is None:
            return None
        if watcher.over:
            watcher.stop()
            return None
        if watcher.started(sys._getframe(1)):
            return sys.monitoring.DISABLE
        if id(code) in watcher.users and id(code) not in _reporting:
            with _switch:
                _reporting[id(code)] = code
                sys.monitoring.set_local_events(_tools[0], code, _EVENTS.CALL)
        return None

    def _on_call(code: types.CodeType, _offset: int, function: Any, first: Any) -> None:
        watcher = thread.watcher
        if watcher is None or watcher.over or id(code) not in watcher.users:
            return
        if type(function) is types.MethodDescriptorType:
            if not isinstance(first, function.__objclass__):
                return  # the call raises
            function = function.__get__(first)
        if type(function) is types.BuiltinFunctionType:
            watcher.calls(sys._getframe(1), function)

else:

    def _start(watcher: Watcher) -> None:
        """Report to the watcher what this thread does."""
        known, users = watcher.known, watcher.users

        def hook(frame: FrameType, event: str, function: Any) -> None:
            if watcher.over:
                watcher.stop()
                return
            try:
                if event == "call":
                    if id(frame.f_code) not in known:
                        watcher.started(frame)
                elif event == "c_call" and id(frame.f_code) in users:
                    watcher.calls(frame, function)
            except BaseException:
                _Again.watch(frame)  # CPython drops a hook that raises
                raise

        watcher._before = sys.getprofile(), thread.hook
        thread.hook = hook
        sys.setprofile(hook)

    def _stop(watcher: Watcher) -> None:
        profiler, thread.hook = watcher._before
        if isinstance(sys.gettrace(), _Again):
            sys.settrace(None)
        _profile_with(profiler)

    class _Again:
        """Sets a hook again as soon as the error that it raised has come to the body: that may have a
        handler.
        """

        def __init__(self, hook: Any) -> None:
            self.hook = hook

        def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
            sys.settrace(None)
            sys.setprofile(self.hook)

        @classmethod
        def watch(cls, frame: FrameType | None) -> None:
            """Called by a hook that is about to raise in `frame`."""
            if sys.gettrace() is None:  # else a debugger or coverage has the events
                again = cls(sys.getprofile())
                while frame is not None and OWNER[frame.f_globals.get("__name__")] != OURS:
                    frame.f_trace = again
                    frame = frame.f_back
                sys.settrace(again)

    def _profile_with(profiler: Any) -> None:
        """Set the profiler that was at work before: a function, None, or an object with a profiler in C."""
        if profiler is None or callable(profiler):
            sys.setprofile(profiler)
        else:
            sys.setprofile(None)
            profiler.enable()  # cProfile
