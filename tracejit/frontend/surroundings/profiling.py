"""Events from `sys.setprofile`, on Python 3.11.

Everything that this thread does is reported, code of this package with it: the hook drops that by the
identity of its code.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from tracejit.frontend.python.kinds import OURS, OWNER
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.surroundings.watch import Watcher


def report_to(watcher: Watcher) -> None:
    """Report to the watcher what this thread does."""
    known, users = watcher.known, watcher.users

    def hook(frame: FrameType, event: str, function: Any) -> None:
        if watcher.over:
            stop(watcher)
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

    watcher.before = sys.getprofile(), thread.hook
    thread.hook = hook
    sys.setprofile(hook)


def stop(watcher: Watcher) -> None:
    """Report nothing more to the watcher; this may be done twice."""
    if watcher.before is None:
        return
    profiler, thread.hook = watcher.before
    if isinstance(sys.gettrace(), _Again):
        sys.settrace(None)
    _profile_with(profiler)


class _Again:
    """Sets a hook again as soon as the error that it raised has come to the body: that may have a handler."""

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
