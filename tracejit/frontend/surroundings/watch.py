"""The watch on a body while it is recorded: it detects calls that a replay would silently omit.

A replay does not run the body, so everything the body does besides array operations must be known to have no
side effect and always the same result. Two events are observed:

- A Python function starts. If it is user code, the values that it names are visited before it runs. If it is
  a function of the standard library called by user code, it must be known to be pure.
- User code calls a C function, which must be known to be pure: ``time.time`` and ``print`` are not.

A call that is not known to be pure aborts the recording before the call happens, and the body runs unrecorded
from its start (see `trace`). Calls inside this package, or in a function vouched for with `tj.pure`, are not
watched.

The events are reported by `monitoring` or `profiling`, as selected by `events`.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import numpy as np

from tracejit import engine
from tracejit.frontend.python.kinds import OURS, OWNER, USERS
from tracejit.frontend.python.purity import NO_ARRAY_WORK, REMEDY, impure, impure_library
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.surroundings.surroundings import Surroundings

NO_ARRAY_WORK[engine.push.__code__] = "tj.engine.push"
NO_ARRAY_WORK[engine.wait_all.__code__] = "tj.wait_all"
LOOKS_INTO = frozenset({"array", "asarray", "asanyarray", "ascontiguousarray", "frombuffer", "fromiter"})
"""NumPy functions that read a captured array's content without a call of the array's methods."""


class Watcher:
    """The receiver of a recording's events: it notifies the trace and its surroundings of the body's calls.

    known:  ids of the code objects whose start needs no more handling: those of this package, and user code
            that has been entered. The surroundings keep user code alive, the modules that of this package.
    users:  ids of the user code that has been entered.
    over:   whether the body has ended. If an interrupt prevents the reports from being stopped then, the
            next reported event stops them.
    before: the previous receiver of this thread's events while this watcher receives them, else None.
    """

    def __init__(self, trace: Trace, surroundings: Surroundings) -> None:
        self.trace, self.surroundings = trace, surroundings
        self.known: set[int] = set()
        self.users: set[int] = set()
        self.over = False
        self.before: Any = None

    def started(self, frame: FrameType) -> bool:
        """Handle the start of a Python function. Return whether the start of this code need not be reported
        again to any watcher.
        """
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
        """Visit the values named by a user function that starts for the first time."""
        code = frame.f_code
        self.known.add(id(code))
        self.users.add(id(code))
        try:
            self.surroundings.enter(code, frame.f_globals)
        except Restart as restart:
            self.trace.interrupt(restart)

    def _library(self, frame: FrameType, caller: FrameType) -> None:
        """Refuse a call from user code to a library function that may have side effects."""
        code = frame.f_code
        if code.co_name == "_find_and_load":
            self.trace.give_up("the body loads a module", "import it outside of the function", later=True)
        self._refuse(NO_ARRAY_WORK.get(code) or impure_library(frame), caller)

    def calls(self, frame: FrameType, function: Any) -> None:
        """Handle a call of a C function from user code, before the function runs."""
        if self.trace.vouched:
            return
        name = impure(function)
        if name is not None:
            self._refuse(name, frame)
        if getattr(function, "__name__", "") in LOOKS_INTO and getattr(np, function.__name__) is function:
            for captured in self.surroundings.stand_ins.captured.values():
                captured.use_as_data()

    def _refuse(self, name: str | None, user: FrameType) -> None:
        """Abort the recording because of a call from a frame of user code."""
        if name is not None:
            what = f"{name}() may have an effect or return another result on every call"
            self.trace.give_up(what, REMEDY, line=f"{user.f_code.co_filename}:{user.f_lineno}")
