"""Watching the body while it is recorded: calls that a replay would silently leave out.

A replay does not run the body, so whatever the body does besides array work must be known to have no effect
and always the same result. While recording, `sys.setprofile` reports every call: builtins and methods of
builtin types known to be pure pass; any other C function (``time.time``, ``print``, ``next``) makes the trace
piecewise, and so does a function of Python's library outside the modules known to be pure (``random.gauss``,
``logging.info``). Python functions that the surroundings did not find by name are followed now.

The lines that run are noted, too: names on other lines need no guards. What is inside a function vouched for
with `tj.pure` is not watched.

What this package does is not watched either, as reports of its calls would take five times as long as its
work. The watcher *rests* from the moment code of ours is entered until it is left, as `sys.settrace` reports.
In between only calls of Python functions are reported, so code of the user's that ours calls (a loss
function, an operator of a class, a callback, a generator) wakes it:

    tj.grad(loss)(w)     called: rest     loss(w) called: wake     w * w called: rest, left: wake     ...

So it is awake whenever code of the user's runs. Handlers of signals are no part of the body, and not watched.
Sections of a trace that call nobody else (`Trace.alone`) do without reports altogether.
"""

from __future__ import annotations

import builtins
import collections
import dis
import functools
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, cast

import numpy as np

from tracejit import collector, engine
from tracejit.frontend import random
from tracejit.frontend.bytecode import facts, read_at
from tracejit.frontend.captured import Watched
from tracejit.frontend.content import content_of
from tracejit.frontend.kinds import FIXED, PLAIN, trusted
from tracejit.frontend.number import NumberProxy
from tracejit.frontend.purity import REMEDY, impure, impure_library
from tracejit.frontend.surroundings import Surroundings
from tracejit.frontend.trace import Restart, Trace, never

NO_ARRAY_WORK = {
    engine.push.__code__: "tj.engine.push",
    engine.wait_all.__code__: "tj.wait_all",
    random.seed.__code__: "tj.random.seed",
}
"""Functions of this package that are no array work."""
CONTAINERS = (list, dict, set, collections.deque)
CHANGERS = frozenset({"_heapq", "_bisect", "_operator"})
"""Modules whose C functions may change containers given to them."""
LOOKS_INTO = frozenset({"array", "asarray", "asanyarray", "ascontiguousarray", "frombuffer", "fromiter"})
"""NumPy functions that hand a captured array's content to Python without asking the array."""

SWITCHES = sys.version_info < (3, 12)
"""Whether the watcher rests. From Python 3.12 on, each switch would make all code be instrumented anew."""

USERS, OURS, LIBRARY = 0, 1, 2


class _Whose(dict[Any, int]):
    """By a module's name: whose code it is. Asked at every call, so answers are kept."""

    def __missing__(self, module: str | None) -> int:
        whose = USERS
        if trusted(module):
            whose = OURS if str(module).partition(".")[0] == "tracejit" else LIBRARY
        self[module] = whose
        return whose


WHOSE = _Whose()


class Watcher:
    """Tells a trace and its surroundings what the body calls. Callbacks of the interpreter are methods with
    its arguments: a frame, an event, and what the event is about.

    rests:   whether code of this package runs, so that calls into C need not be reported.
    handler: the frame of a handler of signals that interrupted the body, of which it is no part.
    """

    def __init__(self, trace: Trace, surroundings: Surroundings) -> None:
        self.trace, self.surroundings = trace, surroundings
        self.rests = False
        self.handler: FrameType | None = None
        self._handlers: set[Any] | None = None  # code of the handlers of signals there are
        self._profiler = sys.getprofile()
        # Else a debugger or coverage needs the events: all lines count as executed, and nothing rests.
        self._traces = sys.gettrace() is None

    def start(self) -> None:
        """Watch this thread from now on."""
        self.trace.can_start_again = self.can_start_again
        sys.setprofile(self.profile)
        if self._traces:
            self.trace.tracing = self.enter if SWITCHES else None
            sys.settrace(self.enter)

    def stop(self) -> None:
        """Watch no more."""
        self.trace.can_start_again = never
        _profile_with(self._profiler)
        if self._traces:
            self.trace.tracing = None
            sys.settrace(None)

    # -- events ----------------------------------------------------------------------------------------------

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """A function was called or left, unless this rests."""
        if self.handler is not None:
            self.leave_handler(frame, event, argument)
        elif self.trace.piecewise:
            self.stop()
            collector.wake()  # the body may run for long
        elif self.trace.vouched:
            return
        elif event == "call":
            if self.interrupts(frame):  # a debugger has the other events
                self.handler = frame
            else:
                self.called(frame)
        elif event == "c_call":
            self.called_c(frame, argument)
        elif event == "return" and frame.f_code in self.surroundings.cached:
            self.check_cached([argument])
            if not isinstance(argument, (*PLAIN, *FIXED, type)):
                self.later("functools.lru_cache keeps what this call made")

    def enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        """A Python function was called; gives what is told of its lines, or of its end."""
        whose = WHOSE[frame.f_globals.get("__name__")]
        if (whose and self.rests) or self.handler is not None or self.trace.vouched:
            return None
        if whose != OURS and self.interrupts(frame):
            self.handler = frame
            return self.leave_handler
        if whose == OURS:
            return self.rest(frame)
        self.wake()
        return self.note_line if not whose else None

    def interrupts(self, frame: FrameType) -> bool:
        """Whether a handler of signals was called, as Python calls it: with the signal and the frame in which
        it came. What happens there is no work of the body's.
        """
        code = frame.f_code
        if code in self.surroundings.executed or frame.f_back is None:
            return False
        if self._handlers is None:
            self._handlers = _handlers()
        if code not in self._handlers:
            return False
        given = _given(frame)  # who asks for it sets the variables of closures back to what they were
        return len(given) >= 2 and given[-1] is frame.f_back

    def leave_handler(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Something happened while a handler of signals runs."""
        if event == "return" and frame is self.handler:
            self.handler = None
        return self.leave_handler

    def note_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        """A line of the user's code is about to run, or an error has come to it."""
        if event == "line":
            self.surroundings.executed.setdefault(frame.f_code, set()).add(frame.f_lineno)
            if self.surroundings.refused and not self.trace.piecewise:
                self.look_for_refused(frame)
        elif event == "exception" and isinstance(argument[1], TypeError | AttributeError):
            numbers = self.trace.numbers
            if not (numbers.plain or numbers.closed) and NumberProxy.__name__ in str(argument[1].args):
                self.trace.interrupt(Restart())  # the body may show it to somebody
        return self.note_line

    def look_for_refused(self, frame: FrameType) -> None:
        """Give up before an iterator is moved on, say: a body that starts again could not move it back."""
        code = frame.f_code
        names = frozenset().union(*read_at(code, {frame.f_lineno})) | facts(code).strings
        for slot, name in self.surroundings.refused:
            if slot.refusal is not None and (name in names or name in code.co_varnames):
                self.trace.give_up(*slot.refusal, line=f"{code.co_filename}:{frame.f_lineno}")

    def can_start_again(self) -> bool:
        """Whether the body can be broken off: what it did can be taken back, and nothing of it notices."""
        return self._traces and self.surroundings.can_be_taken_back() and not _is_caught(sys._getframe())

    # -- rest ------------------------------------------------------------------------------------------------

    def rest(self, frame: FrameType) -> Any:
        """Code of this package was called: report only Python functions, until `frame` is left."""
        if not SWITCHES or frame.f_code in NO_ARRAY_WORK:
            return None
        self.rests = True
        sys.setprofile(None)
        frame.f_trace_lines = False
        return self.leave

    def leave(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Something happened in the frame that is this package's door."""
        if event == "return":
            self.wake()
        return self.leave

    def wake(self) -> None:
        """Report everything again."""
        if self.rests:
            self.rests = False
            sys.setprofile(self.profile)

    # -- calls -----------------------------------------------------------------------------------------------

    def called(self, frame: FrameType) -> None:
        """A Python function was called."""
        code, surroundings = frame.f_code, self.surroundings
        if code in surroundings.cached and not code.co_freevars:  # see `interrupts`
            self.check_cached(_given(frame))
        if code in surroundings.executed:
            return
        if trusted(frame.f_globals.get("__name__")):
            caller = frame.f_back
            if caller is not None and not trusted(caller.f_globals.get("__name__")):
                if code.co_name == "_find_and_load":
                    self.later("the body loads a module")
                    return
                self._give_up(NO_ARRAY_WORK.get(code) or impure_library(frame), caller)
                surroundings.touched.update(id(x) for x in _given(frame) if isinstance(x, CONTAINERS))
            return
        try:
            known = surroundings.enter(code, frame.f_globals)
        except Restart as restart:
            self.trace.interrupt(restart)
        surroundings.executed[code] = set()
        self.trace.captured = list(surroundings.held.values())
        if not known and not _made_by_dataclass(code):
            self.trace.give_up(
                f"{code.co_qualname} is a closure that was not found by name, so what it captured cannot be "
                "watched",
                "call it by a global or local name of the traced function",
            )

    def later(self, reason: str) -> None:
        """What the body uses can be found by later calls only: this one is not replayed."""
        self.trace.transient = True
        self.trace.give_up(reason, remedy="", strict=False)

    def check_cached(self, values: Iterable[Any]) -> None:
        """What `functools.lru_cache` keeps must hold no stand-ins: they are of this call only."""
        if not self.trace.numbers.plain and any(map(_holds_stand_in, values)):
            self.trace.interrupt(Restart())

    def called_c(self, frame: FrameType, function: Any) -> None:
        """A C function was called."""
        if trusted(frame.f_globals.get("__name__")):
            return
        name = impure(function)
        if name is not None:
            self._give_up(name, frame)
            return
        if function is builtins.__build_class__:
            self.trace.makes_classes = True
            if not self.trace.numbers.plain:
                self.trace.interrupt(Restart())  # a class keeps what is in it, also stand-ins
        owner = getattr(function, "__self__", None)
        if isinstance(owner, CONTAINERS):
            self.surroundings.touched.add(id(owner))
        elif getattr(function, "__module__", None) in CHANGERS or (
            isinstance(function, types.MethodDescriptorType | types.WrapperDescriptorType)
            and issubclass(function.__objclass__, CONTAINERS)
        ):
            self.surroundings.touches = True
        elif getattr(function, "__name__", "") in LOOKS_INTO and getattr(np, function.__name__) is function:
            for held in self.surroundings.held.values():
                held.is_data = True

    def _give_up(self, name: str | None, user: FrameType) -> None:
        """Give up because of a call from a frame of the user's."""
        if name is not None:
            what = f"{name}() may have an effect or give another result on every call"
            self.trace.give_up(what, REMEDY, line=f"{user.f_code.co_filename}:{user.f_lineno}")


@functools.lru_cache(maxsize=4096)
def _handled(code: types.CodeType) -> tuple[tuple[int, int], ...]:
    """Where instructions of `code` lie for which there is an ``except``, ``finally`` or ``with``."""
    return tuple([(entry.start, entry.end) for entry in cast(Any, dis.Bytecode(code)).exception_entries])


def _is_caught(frame: FrameType | None) -> bool:
    """Whether an error in `frame` comes by such a place before it leaves the body."""
    while frame is not None and (name := frame.f_globals.get("__name__")) != "tracejit.frontend.tracer":
        at = frame.f_lasti
        if WHOSE[name] != OURS and any(start <= at < end for start, end in _handled(frame.f_code)):
            return True
        frame = frame.f_back
    return False


def _profile_with(profiler: Any) -> None:
    """Set the profiler that was at work before: a function, None, or an object with a profiler in C."""
    if profiler is None or callable(profiler):
        sys.setprofile(profiler)
    else:
        sys.setprofile(None)
        profiler.enable()  # cProfile, before Python 3.12


def _given(frame: FrameType) -> list[Any]:
    """The arguments of a call that begins; those of ``*args`` come last."""
    code = frame.f_code
    named = code.co_argcount + code.co_kwonlyargcount
    given = [frame.f_locals[name] for name in code.co_varnames[:named] if name in frame.f_locals]
    if code.co_flags & inspect.CO_VARARGS:
        given += frame.f_locals[code.co_varnames[named]]
    return given


def _holds_stand_in(value: Any) -> bool:
    """Whether `value` stands for a number or NumPy array, or is a container of what does."""
    pending, seen = [value], {id(value)}
    for part in pending:
        if type(part) in (NumberProxy, Watched):
            return True
        if not isinstance(part, (*CONTAINERS, tuple, frozenset)):
            continue
        held = content_of(part)
        for each in (*held, *held.values()) if isinstance(held, dict) else held:
            if id(each) not in seen:  # a container may hold itself
                seen.add(id(each))
                pending.append(each)
    return False


def _handlers() -> set[Any]:
    """The code of all handlers of signals. A body that sets another one is not replayed."""
    signal = sys.modules.get("_signal")  # asks without making enumerations, as `signal` does
    return set() if signal is None else {_code_of(signal.getsignal(n)) for n in range(1, signal.NSIG)}


def _code_of(handler: Any) -> Any:
    """The code of a handler of signals; None if it is none written in Python."""
    if handler is None or isinstance(handler, int):
        return None
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not isinstance(handler, types.FunctionType | types.MethodType):
        handler = inspect.getattr_static(type(handler), "__call__", None)
    return getattr(handler, "__code__", None)


def _made_by_dataclass(code: types.CodeType) -> bool:
    """Whether a closure was written by `dataclasses`: what it captured are constants, bound once."""
    return code.co_filename == "<string>" and code.co_qualname.startswith("__create_fn__.<locals>.")


@contextmanager
def watching(trace: Trace, surroundings: Surroundings) -> Iterator[None]:
    """Report calls of this thread to the trace while its body runs."""
    watcher = Watcher(trace, surroundings)
    try:
        watcher.start()
        yield
    finally:
        watcher.stop()
