"""Events from `sys.setprofile`, on Python 3.11.

All calls of this thread are reported, including those in this package's own code: the hook discards these by
the identity of the code object.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from tracejit.frontend.python.kinds import OURS, OWNER
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.surroundings.watch import Watcher


def report_to(watcher: Watcher) -> None:
    """Report the events of this thread to the watcher."""
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
            _Reinstaller.watch(frame)  # CPython removes a hook that raises
            raise

    watcher.before = sys.getprofile(), thread.hook
    thread.hook = hook
    sys.setprofile(hook)


def stop(watcher: Watcher) -> None:
    """Stop reporting to the watcher; idempotent."""
    if watcher.before is None:
        return
    profiler, thread.hook = watcher.before
    if isinstance(sys.gettrace(), _Reinstaller):
        sys.settrace(None)
    _profile_with(profiler)


class _Reinstaller:
    """Trace function that reinstalls a profile hook after the error raised by the hook has reached the body,
    which may handle the error.
    """

    def __init__(self, hook: Any) -> None:
        self.hook = hook

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        sys.settrace(None)
        sys.setprofile(self.hook)

    @classmethod
    def watch(cls, frame: FrameType | None) -> None:
        """Arrange the reinstallation of the current hook, which is about to raise in `frame`."""
        if sys.gettrace() is None:  # else a debugger or a coverage tool owns the trace function
            reinstaller = cls(sys.getprofile())
            while frame is not None and OWNER[frame.f_globals.get("__name__")] != OURS:
                frame.f_trace = reinstaller
                frame = frame.f_back
            sys.settrace(reinstaller)


def _profile_with(profiler: Any) -> None:
    """Restore the previous profiler: a function, None, or an object that wraps a profiler in C."""
    if profiler is None or callable(profiler):
        sys.setprofile(profiler)
    else:
        sys.setprofile(None)
        profiler.enable()  # cProfile
