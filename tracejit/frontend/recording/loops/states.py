"""The state of a body at a look: when it is the same at two looks, the path is a loop.

``while float(err) > tol:`` looks in every round. If all that the rest of the body can depend on is the same
at two looks, but for what arrays hold and numbers are, then the second round is the first one again, with
other values, and so is every further one, as long as the body's questions have the same answers. A replay
makes a loop of Python's of such rounds (`signature.program.StateLoop`), whose exit is the first new answer.
What leads from state to state: `ways`.

`state_at` collects all that the rest of the body depends on: the places and variables of the traced function
and of those that it calls, its writes into existing arrays, its changes to its surroundings. The state is
None where something may be hidden: C code calls the function that looks (``sorted(x, key=f)``), the look is
inside a comprehension, a ``with`` or a ``for`` (whose iterator cannot be read, unless it is one of
`counters`), a gradient is taken, a variable refers to an object of C code, an expression has a temporary of
which nothing is known. Arrays that are in no variable are temporaries.
"""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracejit.frontend.python.bytecode import collects, enclosing
from tracejit.frontend.python.content import Attributes, is_made_plainly, own_attributes
from tracejit.frontend.python.kinds import is_of_own_class, is_python_class
from tracejit.frontend.recording.loops.frames import frames_at_look, pending, places_of_ours
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.origins import Extent
from tracejit.frontend.recording.sources import Computed, Source
from tracejit.frontend.recording.storage import Storage, Uncounted

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace

OBJECTS: set[type] = set()
"""Classes of this package whose instances have no state but their attributes: arrays and the like."""

SAME = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type, np.dtype, enum.Enum)
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, range)


class State(NamedTuple):
    """The state of a body: `key`, and in its order the arrays and numbers that the rest may use."""

    key: Hashable
    carriers: tuple[Storage, ...]
    sources: tuple[Any, ...]


class Hidden(Exception):
    """Something that the rest of the body may depend on cannot be compared."""


def state_at(
    trace: Trace,
    source: Source,
    looked: Collection[Storage],
    plain: Hashable = (),
    *,
    asks_equality: bool = False,
) -> State | None:
    """The state of a trace that was just cut by a look, whose result is `source`, at the only element of the
    arrays on `looked`; these are not part of it.

    plain:         values that variables had before, and that an expression may have loaded.
    asks_equality: whether the element is the result of a comparison for equality.
    """
    frames, ours = frames_at_look(asks_equality=asks_equality), places_of_ours()
    is_looping = any(enclosing(*place) for place in ours)
    if not frames or is_looping or trace.tapes or sys.exc_info()[0] is not None:
        return None
    walk = Walk(trace)
    walk.sources[source] = 0
    try:
        running = [walk.frame(frame) for frame in frames]
        written = [(id(w.storage), walk.carried(w.value)) for w in trace.written()]
        arguments = [walk.key(copy) for copy in trace.body.containers()]
        changed = [(id(slot.holder), slot.key, walk.key(now)) for slot, now in trace.body.changes()]
        hidden = [s for s in trace.live() if s not in walk.storages and s not in looked]
        temporary = [walk.carried(storage.pending) for storage in hidden]
    except Hidden:
        return None
    numbers = [number for number in trace.numbers.alive() if id(number) not in walk.proxies]
    if not are_known(frames, len(hidden) + len(numbers)):
        return None
    places = ((id(code), offset) for code, offset in ours)
    key = (*places, None, *running, plain, *written, None, *arguments, None, *changed, None, *temporary)
    key += None, *map(walk.key, numbers)
    return State(key, tuple(walk.carriers), tuple(walk.sources))


def are_known(frames: Sequence[types.FrameType], hidden: int) -> bool:
    """Whether the temporaries of frames are known, if so many arrays and numbers are in no variable."""
    found = [pending(frame.f_code, frame.f_lasti) for frame in frames]
    computed, others = 0, 0
    for each in found:
        if each is None:
            return False
        computed, others = computed + each[0], others + each[1]
    return others == 0 or hidden >= computed + others


class Walk:
    """A walk over values that counts arrays and run-time numbers in the order in which they are found."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.carriers: dict[Storage, int] = {}
        self.sources: dict[Any, int] = {}
        self.storages: dict[Storage, int] = {}
        self.proxies: set[int] = set()  # ids of stand-ins for numbers
        self._open: dict[int, int] = {}

    def frame(self, frame: types.FrameType) -> Hashable:
        """The place and the variables of a running function, and the loops around that place."""
        loops = [self.range_around(frame, place) for place in enclosing(frame.f_code, frame.f_lasti)]
        variables = [(name, self.key(value)) for name, value in frame.f_locals.items()]
        return id(frame.f_code), frame.f_lasti, *loops, None, *variables

    def range_around(self, frame: types.FrameType, place: int) -> Hashable:
        """The key of a ``for`` around the look: the numbers of its range."""
        counting = self.trace.looks.ranges.get((id(frame), place))
        known = counting() if counting is not None else None
        if known is None or collects(frame.f_code, place):
            raise Hidden
        return self.key(known.next), self.key(known.stop), known.step, self.key(known.array)

    def carried(self, value: Any) -> Hashable:
        """The key of a value of the graph: its place in the results of an earlier segment."""
        bound = self.trace.looks.carried.get(value)
        if not isinstance(bound, Extent):
            raise Hidden
        if type(bound) is not Extent:
            return "window", id(bound.storage)
        number = self.carriers.setdefault(bound.storage, len(self.carriers))
        looked = self.trace.looks.found.get(value)  # there is no second look at it
        return "carried", number, looked if looked is None else self.number(looked)

    def number(self, source: Computed | Source) -> Hashable:
        """The key of a number that the body has computed or found."""
        return "number", type(source.value), self.sources.setdefault(source, len(self.sources))

    def view(self, array: Any) -> Hashable:
        """The key of an array's view, which is equal for views of the same elements."""
        seen: Hashable = array._view
        return seen

    def key(self, value: Any) -> Hashable:
        """The key of a value. Values have equal keys if they differ in nothing that the body can see but the
        content of arrays and the values of run-time numbers.
        """
        kind = type(value)
        if kind is NumberProxy:
            source = value._source
            if not isinstance(source, Computed | Source):
                return "number", id(source)
            self.proxies.add(id(value))
            return self.number(source)
        storage = getattr(value, "_storage", None)
        if type(storage) is Uncounted:
            number = self.storages.setdefault(storage, len(self.storages))
            return "picked", number, self.key(storage.buffer.content), self.key(storage.buffer.mask)
        if isinstance(storage, Storage):
            if storage.pending is None:
                return "array", id(storage), self.view(value)
            number = self.storages.setdefault(storage, len(self.storages))
            base = self.trace.picks.base_of(storage)
            copied = None if base is None else self.storages.setdefault(base, len(self.storages))
            return "new", number, self.carried(storage.pending), self.view(value), copied
        is_function = kind is types.FunctionType and id(value) not in self._open
        if is_function and self.trace.body.defines(value.__code__):
            return self._function(value)
        if kind is types.BuiltinFunctionType and not isinstance(value.__self__, types.ModuleType | type):
            return "method", value.__name__, self.key(value.__self__)
        if isinstance(value, SAME):
            return "same", id(value)
        if isinstance(value, PLAIN) and not is_of_own_class(value):
            return kind, repr(value)
        if kind not in (list, tuple, dict) and kind not in OBJECTS and not _is_named_tuple(value):
            if self.trace.body.knows(value):  # its attributes are among the changes of the surroundings
                return "same", id(value)
            if not (is_made_plainly(kind) and is_python_class(kind)) or own_attributes(kind) is not None:
                raise Hidden
        if id(value) in self._open:
            return "again", self._open[id(value)]
        self._open[id(value)] = len(self._open)
        if kind is dict:
            return "dict", *((self.key(k), self.key(v)) for k, v in value.items())
        if kind in (list, tuple) or _is_named_tuple(value):
            return kind, *(self.key(each) for each in value)
        held = Attributes(value)
        return kind, *((name, self.key(held[name])) for name in held.names())

    def _function(self, function: types.FunctionType) -> Hashable:
        """The key of a function that the body has made, maybe anew in each round: its closure and attributes
        may change. Changes to other functions are changes of the surroundings.
        """
        self._open[id(function)] = len(self._open)
        cells = [self._cell(cell) for cell in function.__closure__ or ()]
        held = function.__defaults__, function.__kwdefaults__, vars(function)
        return "function", id(function.__code__), id(function.__globals__), *cells, None, *map(self.key, held)

    def _cell(self, cell: types.CellType) -> Hashable:
        """The key of a variable that functions share, if several capture it."""
        if id(cell) in self._open:
            return "again", self._open[id(cell)]
        self._open[id(cell)] = len(self._open)
        return None if cell == types.CellType() else self.key(cell.cell_contents)


def _is_named_tuple(value: Any) -> bool:
    """Whether a value is a named tuple, and nothing but its items."""
    return isinstance(value, tuple) and hasattr(type(value), "_fields") and not hasattr(value, "__dict__")
