"""A trace: the recording of one call of a traced function.

Recording changes no object that existed before. The trace notes which numbers the body looks at (guards),
which random numbers it draws and which NumPy arrays it uses. If the body looks at the value of a single
element, the operations recorded so far are executed (see `segments`), and the value is a number of the call
from then on. If the body is about to do something that cannot be replayed (it looks at many values, for
example, or calls `print`), the trace *aborts* the recording there, all changes that the body has made are
undone, and the body itself runs from its start, with real values instead of proxies of numbers and copies of
containers. The same happens if the reason is only known when the body has returned.

Handlers of the body (``finally``, ``with``, ``except BaseException``) run while the recording is aborted.
They are watched like the rest of the body: an operation that cannot be replayed raises there, too, before it
happens, and changes are undone.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tracejit import ops
from tracejit.errors import ReadOnlyError, locate
from tracejit.frontend.recording.draws import Draws
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.look_loops.counters import LONG_RUN, SHORT_RUN, count
from tracejit.frontend.recording.look_loops.frames import frames_of_body
from tracejit.frontend.recording.look_loops.number_loops import NumberLoops
from tracejit.frontend.recording.looks import Looks, look_at, look_at_number
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.numpy_views import Captured
from tracejit.frontend.recording.origins import ConstantOrigin, RuntimeNumber, StorageRange, Window
from tracejit.frontend.recording.picks import Picks
from tracejit.frontend.recording.ranges import builtin_range
from tracejit.frontend.recording.ranges.induction import value_of
from tracejit.frontend.recording.ranges.ranges import Nest
from tracejit.frontend.recording.recording import Recording, thread, unwatched
from tracejit.frontend.recording.restart import Assumptions, Restart, Unreplayable
from tracejit.frontend.recording.segments import Segments
from tracejit.frontend.recording.sources import OF_LOOPS
from tracejit.frontend.recording.storage import ComputedStorage, Storage
from tracejit.frontend.recording.trace_numbers import Numbers
from tracejit.ir.graph import Graph, Value
from tracejit.ir.op import Op
from tracejit.ir.types import Device
from tracejit.ir.view import View

MAX_EQUAL_BYTES = 1 << 16  # of NumPy arrays that are compared
MAX_OPERATIONS = 1 << 17
"""The maximum number of operations in a recording. Planning takes about 0.1 ms for each, and two bits for
each pair of tasks.
"""

UINT64 = np.dtype("uint64")


@dataclass(eq=False, repr=False)
class Body:
    """Facts about the running body, provided by its surroundings.

    changes:      returns the rebindings so far.
    containers:   returns the containers among the arguments, as the body has them.
    executed:     code objects of the user that have run.
    knows:        whether an object was recorded before it could change, so that its changes are reported.
    makes_arrays: whether that code names functions of NumPy that create arrays.
    takes_lists:  whether that code names functions of NumPy that may be called with lists of arrays.
    names_math:   whether that code names `math`, or functions of it.
    """

    changes: Callable[[], Iterable[tuple[Any, Any]]] = tuple
    containers: Callable[[], Iterable[Any]] = tuple
    executed: Collection[types.CodeType] = ()
    knows: Callable[[Any], bool] = lambda value: False
    makes_arrays: bool = False
    takes_lists: bool = False
    names_math: bool = False

    def defines(self, code: types.CodeType) -> bool:
        """Whether code that has run defines a function with this code."""
        return any(code in outer.co_consts for outer in self.executed)


class Masks:
    """The selections by masks: arrays whose extents depend on values (see `arrays.selection`).

    uncounted: storages whose extent has not been needed.
    places:    by the storage of a mask: its content, and the positions that it selects.
    """

    def __init__(self) -> None:
        self.uncounted: list[weakref.ref[Any]] = []
        self.places: weakref.WeakKeyDictionary[Storage, Any] = weakref.WeakKeyDictionary()

    def gather_remaining(self) -> None:
        """Materialise the selections that are still alive when the body has returned."""
        for reference in self.uncounted:
            storage = reference()
            if storage is not None:
                storage.initialise()
        self.places.clear()


ARRAY_MAKERS = frozenset({ops.copy, ops.full, ops.empty, ops.view})
"""Operators whose results without dimensions may be arrays in NumPy."""


class Trace(Recording):
    """The recording of one call; see the module.

    assumed:  the assumptions under which the call is recorded.
    numbers:  run-time numbers, and the body's questions about them.
    draws:    random numbers.
    looks:    looks at values of arrays; each ends a segment.
    nest:     loops over `tj.range` that are being recorded.
    body, masks, picks: see `Body`, `Masks` and `Picks`.
    has_numbers: whether the body is code for NumPy: it makes arrays with NumPy, or gets NumPy arrays.
    numpy_numbers: storages of results that are numbers in NumPy, if the body is code for NumPy.
              Numbers are immutable, so in-place operators return new arrays.
    imports:  NumPy arrays that the body used as operands.
    captured: NumPy arrays that the body accesses by name, so that a replay can access them again.
    read_only: storages of NumPy arguments, and their paths.
    used_parts: by storage: the parts of it that are used as storages of their own.
    callbacks: functions passed to `tj.callback`.
    rules:    lines of functions with a custom gradient.
    vouched:  the number of `tj.pure` functions that are running.
    device:   the thread's device at the call.
    uses_device: whether the body created arrays on that device without naming one.
    dry:      whether execution is disallowed: `warm`, `graph`, ...
    interruption: the exception that aborted the body, which may have caught it.
    """

    marks_storages = False
    assumed: Assumptions

    def __init__(
        self, name: str, assumed: Assumptions, *, dry: bool = False, segments: Segments | None = None
    ) -> None:
        self.name, self.assumed, self.dry = name, assumed, dry
        self.recorded_numpy, self.unrolled = assumed.numpy, assumed.unrolled
        self.has_numbers = bool(assumed.numpy)
        self.numpy_numbers: weakref.WeakSet[Storage] = weakref.WeakSet()
        self.numbers: Numbers = Numbers(
            concrete=assumed.concrete,
            refuse=self._refuse_exact_value,
            recount=self._recount,
            after_question=NumberLoops(self).after_question,
            need_float=self._spare_guard,
            many=self._count_numbers,
            limit=SHORT_RUN if assumed.counted else LONG_RUN,
        )
        self.draws = Draws()
        self.looks = Looks(segments, self.numbers)
        self._slice_capacities: dict[Hashable, int] = {}
        self.nest, self.body, self.masks = Nest(), Body(), Masks()
        self.picks = Picks(lambda: self.interrupt(Restart(picks=False)))
        self.imports: dict[Storage, np.ndarray] = {}
        self._operands: dict[Hashable, Storage] = {}
        self.captured: list[Captured] = []
        self.read_only: dict[Storage, str] = {}
        self.used_parts: dict[Storage, tuple[Storage, ...]] = {}
        self.callbacks: list[Any] = []
        self.rules: list[str | None] = []
        self.vouched = 0
        self.device, self.uses_device = thread.device, False
        self.interruption: BaseException | None = None
        super().__init__()

    def draw(self, stream: Any, count: int) -> tuple[Value, Value]:
        """Return the key and the counter for `count` random numbers."""
        key, counter = self.draws.draw(stream, count)
        return self.number(key, UINT64), self.number(counter, UINT64)

    def accelerator(self) -> Device | None:
        """Return a device that the host cannot address and on which the body has an array, or None."""
        results = (value.type for node in self.nodes for value in node.outputs if not value.type.on_host)
        devices = (type.device for type in (*(storage.type for storage in self.windows), *results))
        return next((device for device in devices if not device.is_addressable), None)

    def note_device(self) -> None:
        """Note that an array was created on the thread's device. It is the call's own device unless the body
        has named another.
        """
        self.uses_device |= thread.device is self.device

    # -- storages --------------------------------------------------------------------------------------------

    def imported(self, storage: Storage, array: np.ndarray) -> Storage:
        """Note a NumPy array that the body uses as an operand. An array that is not accessed by name is
        copied.
        """
        self.imports[storage] = array if self._is_captured(array) else array.copy()
        return storage

    def _is_captured(self, array: np.ndarray) -> bool:
        return any(captured.holds(array) for captured in self.captured)

    def imported_operand(self, array: np.ndarray, create: Callable[[], Storage]) -> Storage:
        """Return the storage of a NumPy array that an operator only reads, from `create` if there is none.

        Equal small arrays have one storage: a loop that uses an array of NumPy's in each iteration has equal
        iterations, and is rolled.
        """
        if array.nbytes > MAX_EQUAL_BYTES or self._is_captured(array):
            return create()
        key = array.dtype, array.shape, array.tobytes()
        storage = self._operands.get(key)
        if storage is None:
            storage = self._operands[key] = create()
        return storage

    def range_for(self, storage: Storage, region: View) -> tuple[int, int]:
        """Return the range of the entire storage: windows of arguments are storages of their own (see
        `parents`).
        """
        return 0, storage.type.size

    def window(self, storage: Storage, region: View, *, write: bool) -> Window:
        """Open a window. Memory that two storages share cannot be replayed.

        If the storages are parts of one storage, the call is recorded again with views of that storage. Other
        storages share memory that Python can see.
        """
        windows = self.windows.get(storage)
        if windows and len(windows) == 1:  # it covers the entire storage
            self._mark(storage)
            return windows[0]
        if not windows:
            self._mark(storage)
            if storage.shared or storage in self.parents or storage in self.used_parts:
                others = [
                    s for s in self._candidates(storage) if self.windows.get(s) and self.share(s, storage)
                ]
                if others:
                    self._refuse_shared(storage, *others)
            return self._new_window(storage, region, self.windows.setdefault(storage, []))
        return super().window(storage, region, write=write)

    def _new_window(self, storage: Storage, region: View, windows: list[Window]) -> Window:
        """Make an entire storage an input, in the shape of `region` if that view covers all elements in
        order.
        """
        if windows or region.shape != storage.type.shape:
            return super()._new_window(storage, region, windows)
        value = Value(storage.type)
        window = Window(storage, 0, storage.type.size, value)
        self._add_input(value, window)
        windows.append(window)
        return window

    def _refuse_shared(self, *storages: Storage) -> NoReturn:
        """Restart with storages that share memory as views of one, or give up."""
        parts = {self.parents[s] for s in storages if s in self.parents}
        if parts:
            self.interrupt(Restart(aliased=parts))
        what = "an argument and another array the body uses share memory"
        self.give_up(what, remedy="", later=True)

    def _candidates(self, storage: Storage) -> Iterable[Storage]:
        """Return the storages in use that may share the memory of a storage whose use begins."""
        root = self.parents.get(storage, storage)
        used_parts = self.used_parts.get(root, ())
        if root is not storage:
            self.used_parts[root] = (*used_parts, storage)
        if storage.shared:
            return self.windows  # Python may see the memory through any of them
        return used_parts if root is storage else (root, *used_parts)

    def _mark(self, storage: Storage) -> None:
        """Mark a storage. Launching pending eager code, and compiling it, is not part of the body."""
        if type(storage) is ComputedStorage:
            storage.initialise()
        if type(storage) is Storage and storage.recording is None and storage.failure is None:
            return  # nothing is pending
        with unwatched():
            super()._mark(storage)

    def write(self, storage: Storage, region: View, new: Value) -> None:
        """Record a write. A NumPy argument was copied in, so a write to it would be lost and is refused."""
        path = self.read_only.get(storage)
        if path is not None:
            raise locate(
                ReadOnlyError(
                    f"assignment: {path} is a NumPy array, which a traced function gets as a copy; writing "
                    "to it would be lost. Pass tj.asarray(...) and read the result from that"
                ),
                user_location(),
            )
        self.picks.check_write(storage)
        super().write(storage, region, new)

    def end_operation(self) -> None:
        """Restart with a few iterations per loop if the recording is long (see `ranges.builtin_range`). Give
        up if it is too long to plan.
        """
        nodes, nest = self.nodes, self.nest
        if len(nodes) > builtin_range.LONG_RECORDING and nest.has_builtin:
            self.interrupt(Restart(rolled=True))
        if len(nodes) > nest.next_check:
            nest.next_check *= 2
            if builtin_range.should_count(self):
                self.interrupt(Restart(counted=True, rolled=False))
        if len(nodes) > MAX_OPERATIONS:
            self.give_up(
                f"the body records more than {MAX_OPERATIONS:,} operations",
                remedy="decorate a function that it calls: one iteration of its loop, for example",
            )

    # -- NumPy's numbers -------------------------------------------------------------------------------------

    def refuse_number(self, what: str) -> NoReturn:
        """Give up because of an operation (`what`) of an array without dimensions. The array may represent a
        NumPy number, as the trace records NumPy's functions, and that number would behave differently.
        """
        self.give_up(
            f"{what}, and NumPy's numbers would not do that",
            remedy="make the arrays with functions of tj instead of NumPy's",
        )

    # -- NumPy's numbers -------------------------------------------------------------------------------------

    def new(self, value: Value) -> Storage:
        """Return a new storage with the content `value`. The result of an operator without dimensions is a
        number in NumPy, unless the operator creates or copies an array.
        """
        storage = super().new(value)
        if self.has_numbers and value.type.shape == () and self.nodes:
            last = self.nodes[-1]
            if value in last.outputs and last.op not in ARRAY_MAKERS:
                self.numpy_numbers.add(storage)
        return storage

    def is_pick(self, storage: Storage) -> bool:
        """Whether a storage contains a copy of elements of another one (see `picks`)."""
        return self.picks.is_copy(storage)

    def note_number(self, storage: Storage) -> None:
        """Note that the only element of a storage would be a number in NumPy."""
        if self.has_numbers:
            self.numpy_numbers.add(storage)

    # -- numbers ---------------------------------------------------------------------------------------------

    def varies(self, number: Any) -> bool:
        """Whether an integer differs between calls: it depends on an array, counts iterations, or an earlier
        trace required a different value of it.
        """
        if not (self.assumed.picks and type(number) is NumberProxy and type(number._value) is int):
            return False
        source = number._source
        return self.numbers.is_recomputed(source) or self.assumed.has_varied(source, number._value)

    def slice_capacity(self, site: Hashable, length: int) -> int:
        """Return `Segments.slice_capacity`. The recording starts again if it has increased, so that all
        iterations of a loop are equal.
        """
        if self.looks.segments is None:
            return 0
        capacity: int = self.looks.segments.slice_capacity(site, length)
        if self._slice_capacities.setdefault(site, capacity) != capacity:
            self.interrupt(Restart())
        return capacity

    def number(self, number: RuntimeNumber, dtype: np.dtype) -> Value:
        """Return the value of a run-time number: an input on the host, or a value of a loop."""
        if type(number.source) in OF_LOOPS:
            return value_of(self, number, dtype)
        return super().number(number, dtype)

    def differ(self, op: Op) -> None:
        """Unroll a loop, as a moving view needs different operators in its iterations."""
        self.nest.loops[-1].unroll(f"the position of {op.name} moves to where another operator is needed")

    def _spare_guard(self) -> None:
        """Restart with functions of `math` that compute run-time numbers, or with recorded arrays in place
        of those that NumPy creates, if that may help: the body needs the exact value of a float, perhaps to
        store it in an array. If it still needs one with recorded arrays, they were of no use.
        """
        if self.body.names_math and not self.assumed.math:
            self.interrupt(Restart(math=True))
        if self.recorded_numpy and self.assumed.spares_guards:
            self.interrupt(Restart(numpy=False))
        self.record_numpy(spares_guards=True)

    def _refuse_exact_value(self, path: str) -> NoReturn:
        """Give up because the body needs the exact value of a number that depends on an array and differs
        between calls.
        """
        self.give_up(
            f"the value of {path} is used in a way that arrays, arithmetic and comparisons do not cover",
            remedy="keep it in arrays (tj.where), return it and look outside, or use tj.callback",
        )

    # -- segments --------------------------------------------------------------------------------------------

    def element(self, array: Any, what: str, used_up: Sequence[Storage] = ()) -> Any:
        """Launch the operations recorded so far. Return the only element of an array, as a number of the
        call. For `used_up` see `looks.look_at`.
        """
        return look_at(self, array, what, used_up)

    def look_at_number(self, number: NumberProxy, answer: Any = None) -> None:
        """Launch the operations recorded so far, so that the present state is one between two segments.
        `answer`: that of the question which the body has just asked, if any.
        """
        look_at_number(self, number, answer)

    def begin_segment(self) -> None:
        """Discard the recording, except for values of arrays (see `Looks.origins`) and those of gradients."""
        for tape in self.tapes:
            tape.flushed()
        self.inputs, self.nodes, self.copied, self.origins = [], [], [], []
        self.defined, self.scalars = set(), {}
        self.draws.counters = []
        self.bytes = 0
        for windows in self.windows.values():
            for window in windows:
                self.looks.origins.setdefault(window.input, window)

    def adopt(self, value: Value) -> None:
        """Make a value of an earlier segment an input of this one."""
        origin = self.looks.origins.get(value)
        if isinstance(origin, ConstantOrigin):
            self._append_literal(value, origin)
        elif origin is not None:
            self._add_input(value, origin)
        elif self.looks.cuts:
            self.give_up("a value from before a look is used that was not kept for it", remedy="")
        else:
            super().adopt(value)

    def forget_functions(self) -> None:
        """Break the reference cycles of a recording that has ended, so that it is freed immediately."""
        numbers = self.numbers
        numbers.refuse = numbers.recount = numbers.after_question = numbers.need_float = numbers.many = None
        self.picks.refuse = lambda: None
        self.nest, self.body = Nest(), Body()

    def carrier(self, storage: Storage) -> Storage | None:
        """Return the storage produced by an earlier segment whose content `storage` has; None if there is
        none.
        """
        origin = self.looks.origins.get(storage.pending) if storage.pending is not None else None
        return origin.storage if type(origin) is StorageRange else None

    def finish(self, outputs: list[Value]) -> Graph:
        """The graph of the last segment, with these outputs and an effect for every written window."""
        for value in (*outputs, *(v for w in self.written() for v in (w.input, w.value))):
            self.known(value)
        graph = super().finish(outputs)
        if self.unrolled:
            graph.notes["ranges"] = dict(self.unrolled.values())
        return graph

    def reset(self) -> None:
        """Discard everything."""
        super().reset()
        self.looks.origins = {}

    # -- giving up -------------------------------------------------------------------------------------------

    def refuse_look(self, array: Any, what: str, when: str = "") -> NoReturn:
        """Give up because of a look at an array's value. `when` is a reason why the look cannot end a
        segment. If the body creates NumPy arrays, it may store the value in one, or depend on their
        elements: the call is recorded again with recorded arrays instead. So it is if the array may be in a
        list, and, if the body calls functions of `math`, with functions that look at elements.
        """
        if what == "float()" and array.size == 1 and self.body.names_math and not self.assumed.math:
            self.interrupt(Restart(math=True))
        if what == "__array__" and self.body.takes_lists and self.recorded_numpy is None:
            self.interrupt(Restart(numpy=True))
        self.record_numpy()
        when = f" {when}" if when else ""
        self.give_up(
            f"{what} looks at the value of an array of shape {array.shape}{when}",
            remedy="keep it in arrays (tj.where), return it and look outside, or use tj.callback",
        )

    def refuse_fill(self, what: str) -> NoReturn:
        """Give up because the body writes recorded values into a NumPy array."""
        self.record_numpy()
        self.give_up(f"{what} writes into a NumPy array", remedy="make it an NDArray with tj.asarray")

    def _count_numbers(self) -> None:
        """Count iterations, as the body, which looks at values, has computed many numbers without a look: a
        loop may compute them, whose condition asks only for its own counter, ``while n < 5000``.
        """
        if self.tapes or not self.looks.cuts:
            return
        if self.assumed.counted is None:
            self.interrupt(Restart(counted=True))
        if self.assumed.counted:
            count(self, frames_of_body())

    def _recount(self) -> NoReturn:
        """Restart without counters, as the body asks for the value of one; with functions of `math` that
        compute run-time numbers, if it may have called one; with recorded arrays, if it may have indexed a
        NumPy array.
        """
        if self.body.names_math and not self.assumed.math:
            self.interrupt(Restart(math=True))
        self.record_numpy()
        self.interrupt(Restart(counted=False))

    def record_numpy(self, *, spares_guards: bool = False) -> None:
        """Restart with recorded arrays in place of those that NumPy creates, if that may help.
        For `spares_guards` see `Assumptions`.
        """
        if self.body.makes_arrays and self.recorded_numpy is None:
            self.interrupt(Restart(numpy=True, spares_guards=spares_guards))

    def interrupt(self, error: BaseException) -> NoReturn:
        """Abort the body. If it catches the exception and continues, it is aborted again with the same
        exception.
        """
        if self.interruption is None:
            self.interruption = error
        raise self.interruption

    def give_up(self, reason: str, remedy: str, *, line: str | None = None, later: bool = False) -> NoReturn:
        """Abort the recording, as the call cannot be replayed; see `Unreplayable`."""
        self.interrupt(Unreplayable(reason, remedy, line or user_location(), later=later))
