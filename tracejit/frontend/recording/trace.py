"""A trace: the recording of one call of a traced function.

Nothing that exists is changed while a trace is recorded. It notes which numbers the body looked at (guards),
which random numbers it drew and which NumPy arrays came in. Where the body looks at the value of one element,
what was recorded so far is computed (see `segments`), and the value is a number of the call from then on.
When the body is about to do something that cannot be replayed (it looks at many values, for example, or
calls `print`), the trace *gives up*: the recording is aborted there, all that the body did is taken back,
and the body runs itself, from its start: with values themselves, not with stand-ins for numbers and copies
of containers. The same is done where the reason shows only when the body has run.

Handlers of the body (``finally``, ``with``, ``except BaseException``) run while the recording is aborted.
They are watched like the rest of it: what cannot be replayed raises there, too, before it happens, and what
they change is taken back.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any, NoReturn

import numpy as np

from tracejit.errors import ReadOnlyError, ReplayError, locate
from tracejit.frontend.recording.draws import Draws
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.loops.ahead import run_ahead
from tracejit.frontend.recording.loops.counters import CountedRange, count_in, may_count
from tracejit.frontend.recording.loops.induction import follow, value_of
from tracejit.frontend.recording.loops.states import State, frames_of_body
from tracejit.frontend.recording.loops.ways import StateGraph
from tracejit.frontend.recording.number import Numbers
from tracejit.frontend.recording.numpy_views import Captured
from tracejit.frontend.recording.recording import (
    Bound,
    Extent,
    Literal,
    Recording,
    RuntimeNumber,
    Window,
    in_operation,
    thread,
)
from tracejit.frontend.recording.restart import Assumptions, GivenUp, Restart
from tracejit.frontend.recording.segments import Cut, Segment, Segments, cut
from tracejit.frontend.recording.sources import OF_LOOPS, Moving, Source, Varying
from tracejit.frontend.recording.storage import Computed, Storage
from tracejit.ir.graph import Graph, Value
from tracejit.ir.op import Op, Trait
from tracejit.ir.types import CPU, Device
from tracejit.ir.view import View

SEGMENTS = 256
"""Most different segments of a path. To plan one takes some 6 ms, more than many replays of it save."""

MOST = 1 << 17
"""Most operations of a recording. Planning takes some 0.1 ms for each, and two bits for a pair of tasks."""

UINT64 = np.dtype("uint64")


class Trace(Recording):
    """The recording of one call. See the module."""

    marks_storages = False

    def __init__(
        self,
        name: str,
        assumed: Assumptions,
        *,
        strict: bool,
        dry: bool = False,
        segments: Segments | None = None,
    ) -> None:
        self.cuts: list[Cut] = []  # the looks at values so far
        self.segments_found: set[Segment] = set()  # those that they ended
        self.carried: dict[Value, Bound | Literal] = {}  # values of earlier segments: where they are found
        super().__init__()
        self.unrolled = assumed.unrolled  # places of `tj.range` that are Python's, and why; None: all are
        self.open_ranges: list[Any] = []  # loops whose rounds are being recorded
        self.moving: dict[Value, Moving | Varying] = {}
        self.segments: Any = segments  # of all paths of the function; None: a look gives up
        self.changes: Callable[[], Iterable[tuple[Any, Any]]] = tuple  # what the body has rebound so far
        self.containers: Callable[[], Iterable[Any]] = (
            tuple  # the arguments' containers, as the body has them
        )
        self.executed: Collection[types.CodeType] = ()  # code of the user's that ran
        self.recorded_numpy = assumed.numpy  # whether what NumPy makes is recorded; None: not yet
        self.makes_arrays = False  # whether code that ran names functions of NumPy's that make arrays
        self.name = name
        self.strict = strict
        self.dry = dry  # nothing may be computed: `warm`, `graph`, ...
        self.numbers: Numbers = Numbers(plain=assumed.plain, refuse=self._refuse_digits)
        self.numbers.follow = follow
        self.numbers.recount = lambda: self.interrupt(Restart(counted=False))
        self.counted = assumed.counted  # whether what counts rounds is a run-time number
        self.names_math = False  # whether code that ran names `math`, or functions of it
        self.computes_math = assumed.math
        self.counting: dict[tuple[int, int], weakref.ref[CountedRange]] = {}  # by frame and place: loops
        self.looked_at: dict[Value, Source] = {}  # by value of one element: the number that it is
        self.visited: dict[tuple[int, ...], Any] = {}  # by place: the state at the last look there
        self.draws = Draws()
        self.looks = StateGraph(self.cuts, self.numbers, self.draws)
        self.used_parts: dict[Storage, tuple[Storage, ...]] = {}  # by the storage that they are parts of
        self.imports: dict[Storage, np.ndarray] = {}  # NumPy arrays the body brought in
        self.captured: list[Captured] = []  # NumPy arrays it may bring in that a replay finds again
        self.callbacks: list[Any] = []  # functions given to `tj.callback`
        self.rules: list[str | None] = []  # lines of functions with a gradient of their own
        self.read_only: dict[Storage, str] = {}  # storages of NumPy arguments -> their path
        self.reasons: list[tuple[str, str | None]] = []  # why it cannot be replayed, and the user's line
        self.interruption: BaseException | None = None  # what aborted the body, which may have caught it
        self.device = thread.device  # at the call
        self.uses_device = False  # whether the body made arrays there without naming a device
        self.vouched = 0  # how many `tj.pure` functions are running
        self.uncounted: list[weakref.ref[Any]] = []  # storages of what masks pick, and nobody has counted
        self.places: weakref.WeakKeyDictionary[Storage, Any] = weakref.WeakKeyDictionary()  # by mask

    def draw(self, stream: Any, count: int) -> tuple[Value, Value]:
        """Key and counter for `count` random numbers."""
        key, counter = self.draws.draw(stream, count)
        return self.number(key, UINT64), self.number(counter, UINT64)

    def gpu(self) -> Device | None:
        """A GPU on which the body has an array."""
        made = (value.type for node in self.nodes for value in node.outputs if not value.type.on_host)
        devices = (kind.device for kind in (*(storage.type for storage in self.windows), *made))
        return next((device for device in devices if device.kind != CPU.kind), None)

    def note_device(self) -> None:
        """Note that the call's own device is used, not one that the body has named."""
        self.uses_device |= thread.device is self.device

    # -- storages --------------------------------------------------------------------------------------------

    def imported(self, storage: Storage, array: np.ndarray) -> Storage:
        """A NumPy array was brought in by the body: one that it made or worked out is kept as it is now."""
        kept = any(held.holds(array) for held in self.captured)
        self.imports[storage] = array if kept else array.copy()
        return storage

    def range_for(self, storage: Storage, wanted: View) -> tuple[int, int]:
        """Traces bring storages in whole: windows of arguments are storages of their own (see `parents`)."""
        return 0, storage.type.size

    def window(self, storage: Storage, wanted: View, *, write: bool) -> Window:
        """Open a window; memory that two storages share cannot be replayed.

        Parts of one storage are recorded again, as views of it. Other storages share memory that Python sees.
        """
        known = self.windows.get(storage)
        if known and len(known) == 1:  # it is all of the storage
            self._mark(storage)
            return known[0]
        if not known:
            self._mark(storage)
            others = [s for s in self._candidates(storage) if self.windows.get(s) and self.share(s, storage)]
            if others:
                self._refuse_shared(storage, *others)
            return self._new_window(storage, wanted, self.windows.setdefault(storage, []))
        return super().window(storage, wanted, write=write)

    def _refuse_shared(self, *storages: Storage) -> NoReturn:
        """Begin again with storages that share memory as views of one, or give up."""
        parts = {self.parents[s] for s in storages if s in self.parents}
        if parts:
            self.interrupt(Restart(whole=parts))
        what = "an argument and another array the body uses share memory"
        self.give_up(what, remedy="", later=True)

    def _candidates(self, storage: Storage) -> Iterable[Storage]:
        """The storages in use that may share the memory of one that is used from now on."""
        root = self.parents.get(storage, storage)
        used_parts = self.used_parts.get(root, ())
        if root is not storage:
            self.used_parts[root] = (*used_parts, storage)
        if storage.shared:
            return self.windows  # wherever Python sees it
        return used_parts if root is storage else (root, *used_parts)

    def _mark(self, storage: Storage) -> None:
        """Mark a storage; a launch of pending eager code, and its compilation, are no part of the
        body.
        """
        if type(storage) is Computed:
            storage.settle()
        if type(storage) is Storage and storage.recording is None and storage.failure is None:
            return  # nothing is pending
        watcher, thread.watcher = thread.watcher, None
        try:
            super()._mark(storage)
        finally:
            thread.watcher = watcher

    def write(self, storage: Storage, wanted: View, new: Value) -> None:
        """Record a write; NumPy arguments were copied in, so a write to one would be lost and is refused."""
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

    def end_operation(self) -> None:
        """Refuse a recording that takes too long to plan."""
        if len(self.nodes) > MOST:
            self.give_up(
                f"the body records more than {MOST:,} operations",
                remedy="decorate a function that it calls: one round of its loop, for example",
            )

    # -- NumPy's numbers -------------------------------------------------------------------------------------

    def refuse_number(self, what: str) -> NoReturn:
        """What an array without dimensions does, a number of NumPy's would do otherwise, and it may stand for
        one, since the trace records what NumPy makes.
        """
        self.give_up(
            f"{what}, and NumPy's numbers would not do that",
            remedy="make the arrays with functions of tj instead of NumPy's",
        )

    # -- numbers that move -----------------------------------------------------------------------------------

    def differ(self, op: Op) -> None:
        """A place that moves asks for different operators: all rounds are recorded."""
        self.open_ranges[-1].unroll(f"the place of {op.name} moves to where another one is needed")

    def number(self, number: RuntimeNumber, dtype: np.dtype) -> Value:
        """A run-time number: an input on the host, or of a loop."""
        if type(number.source) in OF_LOOPS:
            return value_of(self, number, dtype)
        return super().number(number, dtype)

    def unroll(self, site: Any, reason: str, line: str) -> NoReturn:
        """Record the call again: all rounds of the `tj.range` at a place of the body."""
        if self.interruption is not None:
            raise self.interruption
        self.interrupt(Restart(unrolled=(site, (reason, line))))

    def count_rest(self) -> None:
        """The body has run: what masks picked, and is still alive, gets its extent."""
        for found in self.uncounted:
            storage = found()
            if storage is not None:
                storage.settle()
        self.places.clear()

    # -- looks at values -------------------------------------------------------------------------------------

    def element(self, array: Any, what: str) -> Any:
        """The only element of an array, as a number of the call; what was recorded so far is launched."""
        reason = self._no_cut(array, what)
        if reason is not None:
            self.look(array, what, reason)
        content = self._content(array)
        if content in self.looked_at:
            return self.numbers.proxy(self.looked_at[content])
        looked = [array._storage]
        if array.device.kind != "cpu":
            array = array.to(CPU)  # by a copy in the graph
            looked.append(array._storage)
        location = user_location()
        if self.counted:
            for frame in frames_of_body():
                count_in(frame, self.numbers)
        watcher, thread.watcher = thread.watcher, None
        if thread.hook is not None:
            sys.setprofile(None)
        thread.trace = None  # compiling is no part of the body
        try:
            value = self.read(array._storage, array._view)
            source = Source(f"{what} of line {str(location).rpartition(':')[2]}")
            made = cut(self, value, source, looked)
            self.cuts.append(made)
            self.segments_found.add(made.segment)
            self.numbers.find(source, made)
            self.looks.note(made)
            run_ahead(self)
        finally:
            thread.trace, thread.watcher = self, watcher
            if thread.hook is not None:
                sys.setprofile(thread.hook)
        if self.counted is None:
            self._consider_counting(made.state)
        if content is not None:
            self.looked_at[content] = source
        return self.numbers.proxy(source)

    def _content(self, array: Any) -> Value | None:
        """The value of an array that this recording has made, if the array is all of it."""
        storage, view = array._storage, array._view
        made = storage.pending if storage.recording is self else None
        return made if made is not None and view.is_whole(made.type.shape) else None

    def _consider_counting(self, state: State | None) -> None:
        """Begin again with counters if the body looks here again, in another state."""
        frames = frames_of_body()
        place = tuple(frame.f_lasti for frame in frames)
        key = state.key if state is not None else None
        is_other = place in self.visited and (key is None or key != self.visited[place])
        if is_other and any(may_count(frame.f_code) for frame in frames):
            self.interrupt(Restart(counted=True))
        if frames:
            self.visited[place] = key

    def _no_cut(self, array: Any, what: str) -> str | None:
        """Why a look cannot end a segment; None if it can."""
        if self.segments is None or self.dry or in_operation() or self.vouched:
            return ""
        if self.segments.ended:
            return f"which led to another path again and again ({self.segments.ended} paths)"
        if len(self.segments_found) >= SEGMENTS:
            return f"after {SEGMENTS} looks that each follow other operations"
        if array.dtype.kind not in "biuf" or self.numbers.plain:
            return ""
        if array._storage.recording not in (None, self) and array._storage.pending is not None:
            return ""
        if any(Trait.ORDERED in node.op.traits for node in self.nodes):
            return "after tj.callback"
        return None

    def _refuse_digits(self, path: str) -> NoReturn:
        """The body wants all digits of a number that it found in an array: no other call has the same."""
        if self.names_math and not self.computes_math and self.interruption is None:
            self.interrupt(Restart(math=True))
        self.give_up(
            f"the value of {path} is used in a way that arrays, arithmetic and comparisons do not cover",
            remedy="keep it in arrays (tj.where), return it and look outside, or use tj.callback",
        )

    def begin_segment(self) -> None:
        """Forget what was recorded, but for what arrays hold (see `carried`), and gradients need."""
        for tape in self.tapes:
            tape.flushed()
        self.inputs, self.nodes, self.bound = [], [], []
        self.defined, self.scalars = set(), {}
        self.draws.counters = []
        self.bytes = 0
        for windows in self.windows.values():
            for window in windows:
                self.carried.setdefault(window.input, window)

    def adopt(self, value: Value) -> None:
        """Make a value of an earlier segment an input of this one."""
        bound = self.carried.get(value)
        if isinstance(bound, Literal):
            self._append_literal(value, bound)
        elif bound is not None:
            self._add_input(value, bound)
        elif self.cuts:
            self.give_up("a value from before a look is used that was not kept for it", remedy="")
        else:
            super().adopt(value)

    def defines(self, code: types.CodeType) -> bool:
        """Whether a function with this code is made by code that ran."""
        return any(code in maker.co_consts for maker in self.executed)

    def forget_functions(self) -> None:
        """The recording has ended: nothing that leads back to it is kept, so that it goes at once."""
        self.numbers.refuse = self.numbers.follow = self.numbers.recount = None
        self.open_ranges.clear()
        self.moving.clear()
        self.changes = self.containers = tuple

    def carrier(self, storage: Storage) -> Storage | None:
        """Where what `storage` holds was computed as a whole by an earlier segment; None elsewhere."""
        bound = self.carried.get(storage.pending) if storage.pending is not None else None
        return bound.storage if type(bound) is Extent else None

    def finish(self, outputs: list[Value]) -> Graph:
        """The graph of the last segment, with these outputs and an effect for every written window."""
        for value in (*outputs, *(v for w in self.written() for v in (w.input, w.value))):
            self.known(value)
        graph = super().finish(outputs)
        if self.unrolled:
            graph.notes["ranges"] = dict(self.unrolled.values())
        return graph

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.carried = {}

    # -- giving up -------------------------------------------------------------------------------------------

    def look(self, array: Any, what: str, when: str = "") -> NoReturn:
        """The body looks at an array's value; maybe (`when` gives no other reason against a cut) because it
        stores it in an array of NumPy's.
        """
        if not when:
            self._record_numpy()
        when = f" {when}" if when else ""
        self.give_up(
            f"{what} looks at the value of an array of shape {array.shape}{when}",
            remedy="keep it in arrays (tj.where), return it and look outside, or use tj.callback",
        )

    def fill(self, what: str) -> NoReturn:
        """The body writes recorded values into an array of NumPy's."""
        self._record_numpy()
        self.give_up(f"{what} writes into a NumPy array", remedy="make it an NDArray with tj.asarray")

    def _record_numpy(self) -> None:
        """Start again, with recorded arrays in place of those that NumPy makes, where that may help."""
        if self.makes_arrays and self.recorded_numpy is None:
            self.interrupt(Restart(numpy=True))

    def interrupt(self, error: BaseException) -> NoReturn:
        """Abort the body. It may catch the error and go on, so that is remembered."""
        self.interruption = error
        raise error

    def give_up(self, reason: str, remedy: str, *, line: str | None = None, later: bool = False) -> NoReturn:
        """Abort the recording: the call cannot be replayed. A strict trace raises an error instead, unless
        `later` calls can be replayed.
        """
        if self.interruption is not None:
            raise self.interruption  # the body has caught it, and goes on
        line = line or user_location()
        text = f"{reason}; {remedy}" if remedy else reason
        if self.dry or (self.strict and not later):
            self.interrupt(locate(ReplayError(f"{self.name}: {text}"), line))
        self.reasons.append((text, line))
        self.interrupt(GivenUp())
