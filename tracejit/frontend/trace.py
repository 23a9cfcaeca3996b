"""A trace: the recording of one call of a traced function.

Nothing is computed while a trace is recorded. It notes which numbers the body looked at (guards), which
random numbers it drew and which NumPy arrays came in. When the body does something that cannot be replayed
(it looks at an array's value, for example), the trace becomes *piecewise*: what was recorded so far is
launched, and from there on the trace is an eager recording, so the body still runs exactly once and its
result is right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.errors import ReadOnlyError, ReplayError, locate
from tracejit.frontend.eager import EagerRecording
from tracejit.frontend.location import user_location
from tracejit.frontend.number import NumberProxy
from tracejit.frontend.recording import Number, Overlap, Recording, Window
from tracejit.frontend.storage import Storage
from tracejit.ir.graph import Value
from tracejit.ir.view import View

UINT64 = np.dtype("uint64")


class Trace(EagerRecording):
    """The recording of one call. See the module."""

    marks_storages = False

    def __init__(self, name: str, *, strict: bool, dry: bool = False) -> None:
        super().__init__()
        self.name = name
        self.strict = strict
        self.dry = dry  # nothing may be computed: `warm`, `graph`, ...
        self.guards: dict[str, Any] = {}
        self.draws: list[tuple[Any, int]] = []  # (stream, total drawn from it)
        self.imports: list[tuple[Storage, np.ndarray]] = []
        self.read_only: dict[Storage, str] = {}  # storages of NumPy arguments -> their path
        self.callbacks: list[Any] = []
        self.piecewise: list[tuple[str, str | None]] = []  # (reason, user line)
        self.parents: dict[Storage, Storage] = {}  # window storage -> the storage it is a part of
        self.aliased: set[Storage] = set()  # storages that must enter whole next time

    # -- numbers ---------------------------------------------------------------------------------------------

    def guard(self, source: str, value: Any) -> None:
        """The body looked at the number `source`: the trace holds only where it is `value` again."""
        self.guards.setdefault(source, value)

    def proxy(self, value: Any, source: str) -> NumberProxy:
        """A run-time number of the call."""
        return NumberProxy(value, source, self.guard)

    def literal(self, number: Any, dtype: np.dtype) -> Value:
        """A number written in the program: part of the graph, unless the trace runs piecewise."""
        if self.piecewise:
            return super().literal(number, dtype)
        return Recording.literal(self, number, dtype)

    def draw(self, stream: Any, count: int) -> tuple[Value, Value]:
        """Key and counter for `count` random numbers; replays take them from the stream as it is then."""
        if self.piecewise:
            start = stream.advance(count)
            key, counter = stream.key, start
            names = (key, counter)
        else:
            index = next((i for i, (s, _) in enumerate(self.draws) if s is stream), len(self.draws))
            if index == len(self.draws):
                self.draws.append((stream, 0))
            drawn = self.draws[index][1]
            self.draws[index] = (stream, drawn + count)
            key, counter = stream.key, (stream.counter + drawn) % (1 << 64)
            names = (f"key{index}", f"((counter{index} + {drawn}) & {(1 << 64) - 1})")
        return (
            self.number(Number(key, names[0]), UINT64),
            self.number(Number(counter, names[1]), UINT64),
        )

    # -- storages --------------------------------------------------------------------------------------------

    def imported(self, storage: Storage, array: np.ndarray) -> None:
        """A NumPy array was brought in by the body."""
        self.imports.append((storage, array))

    def range_for(self, storage: Storage, wanted: View) -> tuple[int, int]:
        """Traces bring storages in whole: windows of arguments are storages of their own (see `parents`)."""
        return 0, storage.type.size

    def window(self, storage: Storage, wanted: View, *, write: bool) -> Window:
        """As in eager code; a storage that is also a window of an argument ends the trace."""
        if self.parents and not self.piecewise:
            root = self.parents.get(storage, storage)
            if any(w is not storage and self.parents.get(w, w) is root for w in self.windows):
                self._aliases(root)
        try:
            return Recording.window(self, storage, wanted, write=write)
        except Overlap:
            self._aliases(storage)
            self.flush()
            return Recording.window(self, storage, wanted, write=write)

    def write(self, storage: Storage, wanted: View, new: Value) -> None:
        """As in eager code; NumPy arguments were copied in, so a write to one would be lost."""
        path = self.read_only.get(storage)
        if path is not None:
            raise locate(
                ReadOnlyError(
                    f"assignment: {path} is a NumPy array, which a traced function gets as a copy; "
                    "writing to it would be lost. Pass tj.asarray(...) and read the result from that"
                ),
                user_location(),
            )
        super().write(storage, wanted, new)

    def _aliases(self, storage: Storage) -> None:
        self.aliased.add(storage)
        self.give_up("an argument and another array the body uses share memory", remedy="", keep_entry=False)

    # -- piecewise -------------------------------------------------------------------------------------------

    def look(self, array: Any, what: str) -> None:
        """The body looks at an array's value."""
        self.give_up(
            f"{what} looks at the value of an array of shape {array.shape}",
            remedy="keep it in arrays (tj.where), return it and look outside, or use tj.callback",
        )

    def give_up(self, reason: str, remedy: str, *, keep_entry: bool = True) -> None:
        """Go on piecewise: launch what was recorded; from here on this is an eager recording."""
        line = user_location()
        text = f"{reason}; {remedy}" if remedy else reason
        if self.dry or (self.strict and keep_entry):
            raise locate(ReplayError(f"{self.name}: {text}"), line)
        if not self.piecewise:
            self.piecewise.append((text, line))
            for stream, total in self.draws:
                stream.advance(total)
            self.flush()
            self.marks_storages = True
        elif (text, line) not in self.piecewise:
            self.piecewise.append((text, line))

    def release(self, storage: Storage) -> None:
        """Others can have a storage of a piecewise trace; of any other trace only what is returned."""
        if self.piecewise:
            super().release(storage)
        else:
            Recording.release(self, storage)
