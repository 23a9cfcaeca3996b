"""Watching the body while it is recorded: calls that a replay would silently leave out.

A replay does not run the body, so whatever the body does besides array work must be known to have no effect
and always the same result. Two events tell what it does:

- a Python function starts. Code of the user's is new surroundings: what it names is visited before it runs.
  A function of Python's library called by code of the user's must be one that is known to be pure.
- code of the user's calls a C function, which must be known to be pure: ``time.time`` and ``print`` are not.

What is not known to be pure aborts the recording before the call is made, and the body runs itself from its
start (see `trace`). What runs inside this package, or in a function vouched for with `tj.pure`, is not
watched.

The events are reported by `monitoring` or `profiling`, as `events` chooses.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import numpy as np

from tracejit import engine
from tracejit.frontend.arrays import random
from tracejit.frontend.python.kinds import OURS, OWNER, USERS
from tracejit.frontend.python.purity import REMEDY, impure, impure_library
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.surroundings.surroundings import Surroundings

NO_ARRAY_WORK = {
    engine.push.__code__: "tj.engine.push",
    engine.wait_all.__code__: "tj.wait_all",
    random.seed.__code__: "tj.random.seed",
}
"""Functions of this package that are no array work."""
LOOKS_INTO = frozenset({"array", "asarray", "asanyarray", "ascontiguousarray", "frombuffer", "fromiter"})
"""NumPy functions that read a captured array's content without a call of the array's methods."""


class Watcher:
    """The receiver of a recording's events: tells the trace and its surroundings what the body calls.

    known:  ids of code of which no start matters any more: this package's, and the user's that has been
            entered. Code of the user's is kept alive by the surroundings, this package's by its modules.
    users:  ids of code of the user's that has been entered.
    over:   the body has ended. If an interrupt comes before the reports have been stopped, the next event
            that is reported stops them.
    before: the former receiver of this thread's events, while they are reported here; else None.
    """

    def __init__(self, trace: Trace, surroundings: Surroundings) -> None:
        self.trace, self.surroundings = trace, surroundings
        self.known: set[int] = set()
        self.users: set[int] = set()
        self.over = False
        self.before: Any = None

    def started(self, frame: FrameType) -> bool:
        """Handle the start of a Python function. Returns whether this code need never be reported again, to
        any watcher.
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
        """Visit what a function of the user's names that starts for the first time."""
        code = frame.f_code
        self.known.add(id(code))
        self.users.add(id(code))
        try:
            self.surroundings.enter(code, frame.f_globals)
        except Restart as restart:
            self.trace.interrupt(restart)

    def _library(self, frame: FrameType, caller: FrameType) -> None:
        """Refuse a call from code of the user's if the function, which is not theirs, may have effects."""
        code = frame.f_code
        if code.co_name == "_find_and_load":
            self.trace.give_up("the body loads a module", "import it outside of the function", later=True)
        self._refuse(NO_ARRAY_WORK.get(code) or impure_library(frame), caller)

    def calls(self, frame: FrameType, function: Any) -> None:
        """Handle a call of a C function from code of the user's, before it is made."""
        if self.trace.vouched:
            return
        name = impure(function)
        if name is not None:
            self._refuse(name, frame)
        if getattr(function, "__name__", "") in LOOKS_INTO and getattr(np, function.__name__) is function:
            for held in self.surroundings.stand_ins.captured.values():
                held.use_as_data()

    def _refuse(self, name: str | None, user: FrameType) -> None:
        """Give up because of a call from a frame of the user's."""
        if name is not None:
            what = f"{name}() may have an effect or give another result on every call"
            self.trace.give_up(what, REMEDY, line=f"{user.f_code.co_filename}:{user.f_lineno}")
