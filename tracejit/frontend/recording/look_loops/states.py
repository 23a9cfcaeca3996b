"""The state of a body at a look. When two looks of a path have equal states, the path contains a loop.

``while float(err) > tol:`` looks in each iteration. Suppose that everything the rest of the body can depend
on is equal at two looks, but for the content of arrays and the values of run-time numbers. Then the second
iteration repeats the first one with other values, and so does each later one, as long as the body's questions
have the same answers. A replay executes such iterations in a loop (`signature.program.StateLoop`), which ends
at the first new answer. `state_graph` has the transitions between states.

`state_at` collects what the rest of the body depends on: the positions and variables of the traced function
and of the functions that it is calling, its writes into existing arrays, its changes to its surroundings. The
state is unknown (None) where something may be hidden: C code calls the function that looks (``sorted(x,
key=f)``); the look is inside a comprehension, a ``with`` or a ``for`` whose iterator cannot be read (those of
`counters` can); a gradient is taken; a variable refers to an object implemented in C; an expression has a
temporary of unknown content. Arrays that no variable refers to are temporaries.
"""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracejit.frontend.python.code_loops import collects, enclosing
from tracejit.frontend.python.content import Attributes, is_made_plainly, own_attributes
from tracejit.frontend.python.identity import Identity
from tracejit.frontend.python.kinds import is_of_own_class, is_python_class
from tracejit.frontend.python.liveness import live_after
from tracejit.frontend.python.stack import names_on_stack, pending
from tracejit.frontend.recording.location import is_of_ours
from tracejit.frontend.recording.look_loops.frames import frames_at_look, positions_of_ours
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.origins import StorageRange
from tracejit.frontend.recording.sources import Computed, Source
from tracejit.frontend.recording.storage import Storage, Uncounted

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace

OBJECTS: set[type] = set()
"""Classes of this package whose entire state is in their attributes, such as arrays."""

BY_IDENTITY = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type, np.dtype, enum.Enum)
BY_VALUE = (bool, int, float, complex, str, bytes, type(None), np.generic, range)


class State(NamedTuple):
    """The state of a body: its key, and the arrays and run-time numbers that the rest of the body may use, in
    the order in which the key refers to them.

    The key is a nested tuple. It contains storages that are older than the trace, the `Identity` of other
    objects, and `Local` objects; everything else in it is compared by value.
    """

    key: Hashable
    arrays: tuple[Storage, ...]
    numbers: tuple[Any, ...]


class Local(NamedTuple):
    """The id of an object of one trace, which no other trace can refer to."""

    id: int


class Hidden(Exception):
    """Something that the rest of the body may depend on cannot be compared. The state is unknown."""


def state_at(
    trace: Trace,
    source: Source,
    looked: Collection[Storage],
    literals: Hashable = (),
    *,
    asks_equality: bool = False,
    answer: Any = None,
) -> State | None:
    """Return the state of a trace that was just cut by a look, or None if it is unknown.

    source:        the number looked at.
    looked:        the storages of the array looked at, which are not part of the state.
    literals:      values that variables had before they became counters; an expression may have loaded them.
    asks_equality: whether the element is the result of a comparison for equality.
    answer:        the answer to a question about numbers that the body has just asked, if any.
    """
    frames = frames_at_look(asks_equality=asks_equality, has_answer=answer is not None)
    ours = positions_of_ours()
    is_looping = any(enclosing(*position) for position in ours)
    if not frames or is_looping or trace.tapes or sys.exc_info()[0] is not None:
        return None
    walk, unread = Walk(trace), Walk(trace)
    walk.numbers[source] = 0
    try:
        running = [walk.frame(frame, unread) for frame in frames]
        written = [(_outside(w.storage), walk.origin(w.value)) for w in trace.written()]
        arguments = [walk.key(copy) for copy in trace.body.containers()]
        changed = [(Identity(slot.holder), slot.key, walk.key(now)) for slot, now in trace.body.changes()]
        known = {*walk.storages, *unread.storages, *looked}
        hidden = [storage for storage in trace.live() if storage not in known]
        temporary = [walk.origin(storage.pending) for storage in hidden]
    except Hidden:
        return None
    proxies = walk.proxies | unread.proxies
    numbers = [number for number in trace.numbers.alive() if id(number) not in proxies]
    if not are_known(frames, len(hidden) + len(numbers)):
        return None
    positions = ((Identity(code), offset) for code, offset in ours)
    own = *running, literals, repr(answer)
    key = (*positions, None, *own, *written, None, *arguments, None, *changed, None, *temporary)
    key += None, *map(walk.key, numbers)
    return State(key, tuple(walk.arrays), tuple(walk.numbers))


def are_known(frames: Sequence[types.FrameType], hidden: int) -> bool:
    """Whether the temporaries of the frames are known, if `hidden` arrays and numbers are in no variable.

    Temporaries of an expression (``return -x.sum(), bool(done)``) are on a frame's stack, which cannot be
    read. The code determines what they are (`python.stack`), except for results of calls, which must be
    arrays or numbers of the call that are alive and in no variable: in ``rate(k) * float(x)``, ``rate`` may
    return a literal from another branch.
    """
    computed, others = 0, 0
    for frame in frames:
        temporaries = pending(frame.f_code, frame.f_lasti)
        if temporaries is None:
            return False
        computed, others = computed + temporaries[0], others + temporaries[1]
    return others == 0 or hidden >= computed + others


class Walk:
    """A walk over values, which numbers arrays and run-time numbers in the order in which it visits them."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.arrays: dict[Storage, int] = {}
        self.numbers: dict[Any, int] = {}
        self.storages: dict[Storage, int] = {}
        self.proxies: set[int] = set()  # ids of stand-ins for numbers
        self._open: dict[int, int] = {}

    def frame(self, frame: types.FrameType, unread: Walk) -> Hashable:
        """The key of a running function: its position, the loops around it, and the variables that it may
        still read. `unread` visits the others.
        """
        code, offset = frame.f_code, frame.f_lasti
        loops = [self.range_around(frame, begin) for begin in enclosing(code, offset)]
        live, dead, variables = live_after(code, offset), set[str](), []
        if live is not None:
            dead = {*code.co_varnames} - {*code.co_cellvars} - live - names_on_stack(code, offset)
        for name, value in frame.f_locals.items():
            if name in dead:
                unread.key(value)
            else:
                variables.append((name, self.key(value)))
        return Identity(code), offset, *loops, None, *variables

    def range_around(self, frame: types.FrameType, offset: int) -> Hashable:
        """The key of a ``for`` around the look: the numbers of its range."""
        reference = self.trace.looks.ranges.get((id(frame), offset))
        known = reference() if reference is not None else None
        if known is None or collects(frame.f_code, offset):
            raise Hidden
        return self.key(known.next), self.key(known.stop), known.step, self.key(known.array)

    def origin(self, value: Any) -> Hashable:
        """The key of a graph value: its storage among the results of earlier segments."""
        origin = self.trace.looks.origins.get(value)
        if not isinstance(origin, StorageRange):
            raise Hidden
        if type(origin) is not StorageRange:
            return "window", Local(id(origin.storage))
        number = self.arrays.setdefault(origin.storage, len(self.arrays))
        looked = self.trace.looks.sources.get(value)  # a second look at it ends no segment
        return "result", number, looked if looked is None else self.number(looked)

    def number(self, source: Computed | Source) -> Hashable:
        """The key of a number that the body has computed or looked at."""
        return "number", type(source.value), self.numbers.setdefault(source, len(self.numbers))

    def base(self, copy: Storage) -> Hashable:
        """The key of the storage whose elements another one copies (see `recording.picks`), if there is
        one.
        """
        base = self.trace.picks.base_of(copy)
        return None if base is None else self.storages.setdefault(base, len(self.storages))

    def view(self, array: Any) -> Hashable:
        """The key of an array's view, which is equal for views of the same elements."""
        seen: Hashable = array._view
        return seen

    def key(self, value: Any) -> Hashable:
        """The key of a value. Values have equal keys if the body can observe no difference between them other
        than the content of arrays and the values of run-time numbers.
        """
        kind = type(value)
        if kind is NumberProxy:
            source = value._source
            if not isinstance(source, Computed | Source):
                return "number", Identity(source)
            self.proxies.add(id(value))
            return self.number(source)
        storage = getattr(value, "_storage", None)
        if type(storage) is Uncounted:
            number = self.storages.setdefault(storage, len(self.storages))
            return "picked", number, self.base(storage), *map(self.key, storage.buffer.key_parts())
        if isinstance(storage, Storage):
            if storage.pending is None:
                return "array", storage, self.view(value)
            number = self.storages.setdefault(storage, len(self.storages))
            key = "new", number, self.origin(storage.pending), self.view(value), self.base(storage)
            return (*key, "number") if storage in self.trace.numpy_numbers else key
        if kind is types.FunctionType:
            if id(value) in self._open:
                return "again", self._open[id(value)]
            if self.trace.body.defines(value.__code__) or _is_wrapper_of_ours(value):
                return self._function(value)
        if kind is types.BuiltinFunctionType and not isinstance(value.__self__, types.ModuleType | type):
            return "method", value.__name__, self.key(value.__self__)
        is_unlisted = kind is types.ModuleType and sys.modules.get(value.__name__) is not value
        if is_unlisted and not self.trace.body.knows(value):  # the body has created it
            raise Hidden
        if isinstance(value, BY_IDENTITY):
            return "same", Identity(value)
        if isinstance(value, BY_VALUE) and not is_of_own_class(value):
            return kind, repr(value)
        if kind not in (list, tuple, dict) and kind not in OBJECTS and not _is_named_tuple(value):
            if self.trace.body.knows(value):  # its attributes are among the changes of the surroundings
                return "same", Identity(value)
            if not (is_made_plainly(kind) and is_python_class(kind)) or own_attributes(kind) is not None:
                raise Hidden
        if id(value) in self._open:
            return "again", self._open[id(value)]
        self._open[id(value)] = len(self._open)
        if kind is dict:
            return "dict", *((self.key(k), self.key(v)) for k, v in value.items())
        if kind in (list, tuple) or _is_named_tuple(value):
            return kind, *(self.key(each) for each in value)
        attributes = Attributes(value)
        return kind, *((name, self.key(attributes[name])) for name in attributes.names())

    def _function(self, function: types.FunctionType) -> Hashable:
        """The key of a function that the body has created, maybe again in each iteration: its closure and
        attributes may differ. Changes to other functions are changes of the surroundings.
        """
        self._open[id(function)] = len(self._open)
        cells = [self._cell(cell) for cell in function.__closure__ or ()]
        state = function.__defaults__, function.__kwdefaults__, vars(function)
        return (
            "function",
            Identity(function.__code__),
            Identity(function.__globals__),
            *cells,
            None,
            *map(self.key, state),
        )

    def _cell(self, cell: types.CellType) -> Hashable:
        """The key of a closure cell, which several functions may share."""
        if id(cell) in self._open:
            return "again", self._open[id(cell)]
        self._open[id(cell)] = len(self._open)
        return None if cell == types.CellType() else self.key(cell.cell_contents)


def _outside(storage: Storage) -> Hashable:
    """The key of a storage that the body has written."""
    return storage if storage.pending is None else Local(id(storage))


def _is_wrapper_of_ours(function: types.FunctionType) -> bool:
    """Whether a function of this package wraps others, such as the result of `tj.grad`."""
    return bool(function.__closure__) and is_of_ours(function.__globals__)


def _is_named_tuple(value: Any) -> bool:
    """Whether a value is a named tuple, and nothing but its items."""
    return isinstance(value, tuple) and hasattr(type(value), "_fields") and not hasattr(value, "__dict__")
