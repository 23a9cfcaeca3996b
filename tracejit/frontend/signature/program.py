"""Records of the steps of a replay, in their order.

A `ReplayProgram` is built while a call is recorded. Its steps refer to values (`expressions`): variables,
particular objects, literals, and values derived from these. A check is a `Rule` about such values.

    n = program.bind(item(ARGS, 1), "n")                         n0 = args[1]
    program.require(Rule.TYPE, n, Const(float))                  if not (type(n0) is K1): return MISS
    m = program.bind(Compute(MULTIPLY, n, Literal(2)), "m")      m2 = (n0 * (2))

`text` writes the Python on the right; nothing parses it. Each variable
refers to the object that it was in the recorded call, so one description serves the recorded call
(`perform`) and its replays.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field  # records are not frozen: that takes 0.5 ms of each import for each
from datetime import date, time, timedelta
from typing import Any

import numpy as np

from tracejit.frontend.python.interned import Interned
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.expressions import Const, Expr, Literal, Var, Word, attribute
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View

# -- steps ---------------------------------------------------------------------------------------------------


class Rule(enum.Enum):
    """Requirements of checks on their operands; `expression_text` writes each as a condition in Python."""

    IS = enum.auto()
    IS_NOT = enum.auto()
    NOT_AMONG = enum.auto()
    EQUAL = enum.auto()
    EMPTY = enum.auto()
    TYPE = enum.auto()
    OF_TYPE = enum.auto()
    ALIKE = enum.auto()
    SHOWN_ALIKE = enum.auto()
    WITHIN = enum.auto()

    LENGTH = enum.auto()
    KEYS = enum.auto()
    SAME_KEYS = enum.auto()
    KEYS_IN_ANY_ORDER = enum.auto()
    NONE_OF_KEYS = enum.auto()
    NO_ATTRIBUTE = enum.auto()
    SAME_ITEMS = enum.auto()
    SAME_ARRAY = enum.auto()

    FUNCTION = enum.auto()

    STORAGE = enum.auto()
    VIEW = enum.auto()
    VIEW_BUT_OFFSET = enum.auto()
    DTYPE_AND_DEVICE = enum.auto()
    SHAPE_AND_STRIDES = enum.auto()
    SHAPE_AND_DTYPE = enum.auto()
    DEVICE = enum.auto()
    DEVICE_IF_CHOSEN = enum.auto()


@dataclass(eq=False, repr=False)
class Bind:
    """``var = value``."""

    var: Var
    value: Expr


@dataclass(eq=False, repr=False)
class Check:
    """A condition of the signature: a rule about the operands.

    says: a path and the requirement on it, for `explain()`; None if it is not shown.
    """

    rule: Rule
    operands: tuple[Expr, ...]
    says: tuple[str, str] | None = None


@dataclass(eq=False, repr=False)
class ArrayCheck:
    """An NDArray has a storage of this type and this view of it; binds the storage."""

    array: Var
    storage: Var
    type: ArrayType
    view: View
    says: tuple[str, str] | None = None


@dataclass(eq=False, repr=False)
class ManyArrays:
    """A list, tuple or dict contains NDArrays, each with a storage of this type and this view of it."""

    container: Var
    arrays: tuple[Var, ...]
    storages: tuple[Var, ...]
    type: ArrayType
    view: View
    shown: str


@dataclass(eq=False, repr=False)
class Distinct:
    """Objects that were distinct in the recorded call are distinct."""

    vars: tuple[Var, ...]


@dataclass(eq=False, repr=False)
class Separate:
    """Storages do not overlap; binds whether the memory of one is exposed to Python."""

    storages: tuple[Var, ...]


@dataclass(eq=False, repr=False)
class RunSegment:
    """The launch of a segment, and a look at an element, which is a number of the call from then on.

    node:    the segment's node of the trace tree, which paths with a common prefix share; a call runs it
             once.
    results: the storages that it produces; the look is at element 0 of the first.
    number:  the number looked at.
    """

    node: Any
    launch: Launch
    results: tuple[Var, ...]
    number: Var


@dataclass(eq=False, repr=False)
class NumberBlock:
    """A storage whose memory contains Python numbers, eight bytes for each, with their dtypes."""

    storage: Var
    numbers: tuple[Var, ...]
    dtypes: tuple[np.dtype, ...]


@dataclass(eq=False, repr=False)
class RunLoop:
    """The launch of a native loop. Its outputs are numbers, those of the blocks in order, then arrays.
    `counters`: the numbers that are the counters of the launch's random streams after it.
    """

    launch: Launch
    blocks: tuple[NumberBlock, ...]
    arrays: tuple[Var, ...]
    counters: tuple[Var, ...] = ()


@dataclass(eq=False, repr=False)
class LoopTransition:
    """A transition from one state of a loop to another, or several transitions as one launch.

    steps: its checks and computations, and one `RunSegment` or `RunLoop`.
    ends:  the position of the state where it ends, or the variable that contains it.
    after: by the position of each state where it may end: the new values of that state's variables.
    """

    steps: tuple[ProgramStep, ...]
    ends: int | Var
    after: Mapping[int, tuple[Var, ...]]


@dataclass(eq=False, repr=False)
class LoopState:
    """A state of a loop: its variables, and the transitions from it, at most one of which passes its
    checks.

    key:        the same for equal states of all paths.
    values:     all values of the state: its variables, and others that are the same whenever the loop is in
                this state.
    iterations: many transitions as one launch, which is tried first. If none of them passes its checks, the
                launch changes nothing.
    """

    vars: tuple[Var, ...]
    transitions: tuple[LoopTransition, ...]
    key: Interned
    values: tuple[Var, ...]
    iterations: LoopTransition | None = None


@dataclass(eq=False, repr=False)
class StateLoop:
    """A loop over looks: performs transitions until no transition from its present state passes its checks.
    If a path that was tried before has run the same loop, it goes on where that one left it, provided that
    values which this path assumes to be the same whenever it is in that state are what it assumes.

    A path may have a loop and further looks after it, because what follows uses values that are not in the
    loop's states. Another path may perform these looks as transitions. If that one has left the loop in a
    state that this path does not know, this one runs the loop from its start (`repeats`).

    node:   its node of the trace tree, as that of a `RunSegment`.
    states: the loop starts in the first one.
    before: the initial values of the first state's variables.
    ends:   the position of the state in which this path leaves the loop.
    repeats: see above.
    known:  keys of the transitions that this path knows; each path has the same key for one.
    """

    node: Any
    states: tuple[LoopState, ...]
    before: tuple[Var, ...]
    ends: int
    repeats: bool
    known: frozenset[Hashable]


ProgramStep = Bind | Check | ArrayCheck | ManyArrays | Distinct | Separate | RunSegment | RunLoop | StateLoop


# -- results -------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Known:
    """A value that a replay has already: an argument, a constant, a computed number, a shared part."""

    operand: Expr


@dataclass(eq=False, repr=False)
class ArrayOn:
    """A new array: a view of a storage, at `offset` if that is a run-time value."""

    storage: Var
    view: View
    offset: Var | None = None


@dataclass(eq=False, repr=False)
class Container:
    """A new container of a kind; `factory` is that of a defaultdict."""

    kind: type
    keys: tuple[Any, ...]
    parts: tuple[Make, ...]
    factory: Make | None = None


@dataclass(eq=False, repr=False)
class CopyOf:
    """A fresh copy of a NumPy array with the same layout."""

    array: np.ndarray


Make = Known | ArrayOn | Container | CopyOf
"""Descriptions of how a replay creates a value of the result."""


@dataclass(eq=False, repr=False)
class Rebind:
    """The assignment of a value to a slot after the call; `GONE` deletes it."""

    slot: Any
    value: Make | Any


@dataclass(eq=False, repr=False)
class Refill:
    """The replacement of the content of a container of the caller's."""

    container: Var
    value: Make


StateChange = Rebind | Refill


# -- launch --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class StorageAddress:
    """The address of a storage, or of its element `offset`, and the storage's engine variable."""

    storage: Var
    offset: Var | None = None


@dataclass(eq=False, repr=False)
class Drawn:
    """A word of a random stream: its key, or its counter after `drawn` earlier words of this call."""

    stream: int
    drawn: Expr | None = None


@dataclass(eq=False, repr=False)
class Launch:
    """A call into native code: the last one of a path, or that of a segment.

    call, pack: functions of the schedule: `call` takes the argument block that `pack` returns.
    words:      the values to pack, without the addresses of outputs.
    is_awaited: whether effects depend on a launch that may fail, so that the replay waits for its success.
    is_empty:   whether there is nothing to compute, so that the replay does not call.
    draws:      random streams by their position in the call, and the number of words drawn from each.
    storages:   the caller's storages; pending eager operations on one are launched before. None for segments.
    written:    the caller's storages that it writes. None for segments.
    """

    call: Any
    pack: Any
    words: tuple[StorageAddress | Drawn | Expr, ...]
    is_awaited: bool
    is_empty: bool = False
    draws: tuple[tuple[int, Any, Expr], ...] = ()
    storages: tuple[Var, ...] = ()
    written: tuple[Var, ...] = ()


@dataclass(eq=False)
class ReplayProgram:
    """The steps of a replay.

    steps:     bindings, checks, segments and loops, in order.
    copies:    storages that a replay copies from NumPy arrays, after its checks.
    constants: storages that are the same in all replays.
    outputs:   storages that it allocates.
    values:    values created before the launch, to be written back or used more than once.
    launch:    the native computation.
    effects:   writes to the caller's objects after the launch.
    result:    the value that the call returns.
    pinned:    integers that the signature requires, by their `number_key`.
    """

    steps: list[ProgramStep] = field(default_factory=list)
    copies: list[tuple[Var, Expr]] = field(default_factory=list)
    constants: dict[Var, Storage] = field(default_factory=dict)
    outputs: dict[Storage, Var] = field(default_factory=dict)
    values: list[tuple[Var, Make]] = field(default_factory=list)
    launch: Launch | None = None
    effects: list[StateChange] = field(default_factory=list)
    result: Make | None = None
    pinned: dict[Hashable, int] = field(default_factory=dict)

    # -- building --------------------------------------------------------------------------------------------

    def bind(self, value: Expr, prefix: str = "v", *, seen: Any = None, path: str = "") -> Var:
        """Return a new variable for a value, which was the object `seen` in the recorded call."""
        return self.define(Var(prefix, seen, path), value)

    def define(self, var: Var, value: Expr) -> Var:
        """Bind an existing variable."""
        var.bound = True
        self.steps.append(Bind(var, value))
        return var

    def require(self, rule: Rule, *operands: Expr, says: tuple[str, str] | None = None) -> None:
        """Add a condition of the signature: the rule about these operands."""
        self.steps.append(Check(rule, operands, says))

    def same(self, operand: Expr, value: Any, says: tuple[str, str], key: Hashable = None) -> None:
        """Require that a value of a built-in type equals the recorded one, with the same type, and the same
        zero or nan.

        key: the `number_key` of a number, if that is not its path.
        """
        if type(value) is int:
            self.pinned[says[0] if key is None else key] = value
        rule, *operands = _equal(operand, value)
        self.require(rule, *operands, says=says)

    def keys(self, operand: Expr, keys: tuple[Any, ...], says: tuple[str, str]) -> None:
        """Require that a dict has these keys, in this order, of the same types (1 and True are equal)."""
        given = Const(keys)
        if all(type(key) is str for key in keys):
            self.require(Rule.KEYS, operand, given, says=says)
        else:
            self.require(Rule.SAME_KEYS, operand, given, says=says)

    def array(
        self, operand: Var, storage: Storage, view: View, *, window: bool, says: tuple[str, str]
    ) -> Var:
        """Require an NDArray with this view (at any offset, for a window); return the variable of its
        storage.
        """
        kind = storage.type
        var = Var("s", storage, operand.path)
        if window:
            self.require(Rule.TYPE, operand, Word("NDArray"))
            self.define(var, attribute(operand, "_storage"))
            of = self.bind(attribute(var, "type"))
            self.require(Rule.DTYPE_AND_DEVICE, of, Const(kind.dtype), Const(kind.device))
            seen = self.bind(attribute(operand, "_view"))
            given = Const(view.shape), Const(view.strides), Literal(view.writable)
            self.require(Rule.VIEW_BUT_OFFSET, seen, *given, says=says)
        else:
            var.bound = True
            self.steps.append(ArrayCheck(operand, var, kind, view, says))
        return var


def _equal(operand: Expr, value: Any) -> tuple[Any, ...]:
    """Return the rule and operands that require a value of a built-in type to equal the recorded one."""
    kind = type(value)
    if value is None or kind is bool or value is Ellipsis:
        return Rule.IS, operand, Literal(value)
    if kind in (int, str, bytes) or (kind is float and value == value and value != 0):
        return Rule.OF_TYPE, operand, Word(kind.__name__), Literal(value)
    if kind in (float, complex) or isinstance(value, (np.generic, date, time, timedelta)):
        return Rule.SHOWN_ALIKE, operand, Const(value), Literal(repr(value))
    if kind in (range, slice) or isinstance(value, np.dtype):
        return Rule.ALIKE, operand, Const(value)
    return Rule.IS, operand, Const(value)
