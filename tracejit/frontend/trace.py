"""A trace: the recording of one call of a traced function.

Nothing is computed while a trace is recorded. It notes which numbers the body looked at (guards), which
random numbers it drew and which NumPy arrays came in. When the body is about to do something that cannot be
replayed (it looks at an array's value, for example, or calls `print`), the trace *gives up*: the body is
broken off, all that it did is taken back, and it runs itself, from the start: with values themselves, not
with stand-ins for numbers and copies of containers.

That is only done where nothing has happened yet that cannot be taken back, and where nobody would notice: no
``except``, ``finally`` or ``with`` of the body is in the way (`Trace.can_start_again`). Else, and where the
reason turns out when the body has run, the trace becomes *piecewise*: what was recorded so far is launched,
and from there on it is an eager recording, so the body runs once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tracejit.errors import ReadOnlyError, ReplayError, locate
from tracejit.frontend.captured import Held
from tracejit.frontend.eager import EagerRecording
from tracejit.frontend.location import user_location
from tracejit.frontend.number import Numbers
from tracejit.frontend.recording import Number, Recording, Window, in_operation
from tracejit.frontend.storage import Storage
from tracejit.ir.graph import Value
from tracejit.ir.view import View

UINT64 = np.dtype("uint64")
WORD = 1 << 64


class Draw:
    """A counter of random numbers: that of stream number `stream` (see `Trace.draws`) at the launch, plus
    `drawn`.
    """

    def __init__(self, number: Number, stream: int, drawn: int):
        self.number, self.stream, self.drawn = number, stream, drawn


class Restart(BaseException):
    """The body has to be recorded again, from the start.

    container: one among the arguments that is also reached by name, or a NumPy array: the body has to get it
               itself.
    aliased:   storages of which an argument views a part, and which the body also uses, or of which it may
               compare that argument with what it finds by name: they enter whole.

    Neither: code compares types, or keeps numbers or NumPy arrays in a cache or a class: stand-ins for them
    will not do.
    """

    def __init__(self, container: Any = None, aliased: set[Storage] | None = None):
        super().__init__("recording starts again")
        self.container = container
        self.aliased = aliased or set()


def never() -> bool:
    """What is not watched cannot start again."""
    return False


class GivenUp(BaseException):
    """The body has to run itself, from the start."""

    def __init__(self) -> None:
        super().__init__("the body runs itself")


class Trace(EagerRecording):
    """The recording of one call. See the module."""

    marks_storages = False

    def __init__(self, name: str, *, strict: bool, dry: bool = False, plain: bool = False) -> None:
        super().__init__()
        self.name = name
        self.strict = strict
        self.dry = dry  # nothing may be computed: `warm`, `graph`, ...
        self.numbers: Numbers = Numbers(plain=plain)
        self.draws: list[tuple[Any, int]] = []  # (stream, total drawn from it)
        self.counters: list[Draw] = []
        self.taken: list[tuple[Any, int, int]] = []  # (stream, where it was, how many were taken)
        self.makes_classes = False  # whether the body defines classes
        self.imports: dict[Storage, np.ndarray] = {}  # NumPy arrays the body brought in
        self.captured: list[Held] = []  # NumPy arrays it may bring in that a replay finds again
        self.callbacks: list[Any] = []  # functions given to `tj.callback`
        self.read_only: dict[Storage, str] = {}  # storages of NumPy arguments -> their path
        self.reasons: list[tuple[str, str | None]] = []  # why it cannot be replayed, and the user's line
        self.interruption: BaseException | None = None  # what broke the body off, which may have caught it
        self.piecewise = False  # an eager recording from now on
        self.can_start_again: Callable[[], bool] = never  # see `watch`
        self.transient = False  # for a reason that later calls need not have
        self.vouched = 0  # how many `tj.pure` functions are running
        self.tracing: Any = None  # what `sys.settrace` reports to while the body runs, see `watch`

    def alone(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """As in every recording; nothing in it is reported to the watcher."""
        tracing = self.tracing
        if tracing is None or self.piecewise:  # another thread can be here, too, once it is piecewise
            return function(*args, **kwargs)
        self.tracing = None
        sys.settrace(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.settrace(tracing)
            self.tracing = tracing

    # -- numbers ---------------------------------------------------------------------------------------------

    def literal(self, number: Any, dtype: np.dtype) -> Value:
        """A number written in the program: part of the graph, unless the trace runs piecewise."""
        if self.piecewise:
            return super().literal(number, dtype)
        return Recording.literal(self, number, dtype)

    def draw(self, stream: Any, count: int) -> tuple[Value, Value]:
        """Key and counter for `count` random numbers; replays take them from the stream as it is then."""
        if self.piecewise:
            start = stream.advance(count)
            return (
                self.number(Number(stream.key, stream.key), UINT64),
                self.number(Number(start, start), UINT64),
            )
        index = next((i for i, (s, _) in enumerate(self.draws) if s is stream), len(self.draws))
        if index == len(self.draws):
            self.draws.append((stream, 0))
        drawn = self.draws[index][1]
        self.draws[index] = (stream, drawn + count)
        key = Number(stream.key, f"key{index}")
        counter = Number((stream.counter + drawn) % WORD, f"((counter{index} + {drawn}) & {WORD - 1})")
        self.counters.append(Draw(counter, index, drawn))
        return self.number(key, UINT64), self.number(counter, UINT64)

    def take_draws(self) -> None:
        """Take the numbers drawn so far from their streams; threads that share one get other positions."""
        self.taken = []
        for stream, total in self.draws:
            self.taken.append((stream, stream.advance(total), total))
        for draw in self.counters:
            draw.number.value = (self.taken[draw.stream][1] + draw.drawn) % WORD
        self.draws, self.counters = [], []

    def give_back_draws(self) -> None:
        """Give the numbers back that were taken: nothing has been launched."""
        for stream, start, total in self.taken:
            stream.give_back(start, total)

    # -- storages --------------------------------------------------------------------------------------------

    def imported(self, storage: Storage, array: np.ndarray) -> None:
        """A NumPy array was brought in by the body: one that it made or worked out is kept as it is now."""
        kept = any(held.holds(array) for held in self.captured)
        self.imports[storage] = array if kept else array.copy()

    def range_for(self, storage: Storage, wanted: View) -> tuple[int, int]:
        """Traces bring storages in whole: windows of arguments are storages of their own (see `parents`)."""
        return 0, storage.type.size

    def window(self, storage: Storage, wanted: View, *, write: bool) -> Window:
        """As in eager code, but memory that two storages share cannot be replayed.

        Parts of one storage are recorded again, as views of it. Other storages share memory that Python sees.
        """
        if not self.piecewise and not self.windows.get(storage):
            others = [s for s in self.windows if self.windows[s] and self.share(s, storage)]
            parts = {self.parents[s] for s in (storage, *others) if s in self.parents}
            if others and parts:
                self.interrupt(Restart(aliased=parts))
            if others:
                self.transient = True
                what = "an argument and another array the body uses share memory"
                self.give_up(what, remedy="", strict=False)
        if self.piecewise:
            return super().window(storage, wanted, write=write)
        return Recording.window(self, storage, wanted, write=write)

    def write(self, storage: Storage, wanted: View, new: Value) -> None:
        """As in eager code; NumPy arguments were copied in, so a write to one would be lost."""
        path = self.read_only.get(storage)
        if path is not None:
            raise locate(
                ReadOnlyError(
                    f"assignment: {path} is a NumPy array, which a traced function gets as a copy; writing "
                    "to it would be lost. Pass tj.asarray(...) and read the result from that"
                ),
                user_location(),
            )
        super().write(storage, wanted, new)

    # -- piecewise -------------------------------------------------------------------------------------------

    def look(self, array: Any, what: str) -> None:
        """The body looks at an array's value."""
        self.give_up(
            f"{what} looks at the value of an array of shape {array.shape}",
            remedy="keep it in arrays (tj.where), return it and look outside, or use tj.callback",
        )

    def interrupt(self, error: BaseException) -> NoReturn:
        """Break the body off. It may catch the error and go on, so that is remembered."""
        self.interruption = error
        raise error

    def refuse(self, reason: str, remedy: str, *, line: str | None = None, strict: bool = True) -> None:
        """Note why the call cannot be replayed. A strict trace raises, unless later calls can be
        (``strict=False``).
        """
        line = line or user_location()
        text = f"{reason}; {remedy}" if remedy else reason
        if self.dry or (self.strict and strict):
            self.interrupt(locate(ReplayError(f"{self.name}: {text}"), line))
        self.transient = self.transient and not strict
        if (text, line) not in self.reasons:
            self.reasons.append((text, line))

    def give_up(self, reason: str, remedy: str, *, line: str | None = None, strict: bool = True) -> None:
        """Break the body off, which then runs itself; or go on piecewise. See `refuse` and the module."""
        if self.interruption is not None:
            raise self.interruption  # the body has caught it, and goes on
        self.refuse(reason, remedy, line=line, strict=strict)
        if not self.piecewise and self.can_start_again():
            self.interrupt(GivenUp())
        self.go_on()

    def go_on(self) -> None:
        """Launch what was recorded; from here on this is an eager recording."""
        if not self.piecewise:
            self.piecewise = True
            self.numbers.closed = True
            self.take_draws()
            self.marks_storages = True
            if in_operation():  # a finalizer, or a handler of signals, in the middle of an operator
                self.due = True
            else:
                self.flush()

    def release(self, storage: Storage) -> None:
        """Others can have a storage of a piecewise trace; of any other trace only what is returned."""
        if self.piecewise:
            super().release(storage)
        else:
            Recording.release(self, storage)
