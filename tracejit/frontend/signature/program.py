"""Records of what a replay does, in the order in which it does it.

A `ReplayProgram` is made while a call is recorded. Its steps are about values (`expressions`): variables, the
very object, numbers written down, and what is derived from these. A check is a `Rule` about such values.

    n = program.bind(item(ARGS, 1), "n")                         n0 = args[1]
    program.require(Rule.TYPE, n, Const(float))                  if not (type(n0) is K1): return MISS
    m = program.bind(Compute(MULTIPLY, n, Literal(2)), "m")      m2 = (n0 * (2))

The Python on the right is written by `text`, and nowhere else; nothing reads it. Each variable knows the
object that it was in the recorded call, so one description serves the call that is recorded (`perform`) and
the calls that are replayed.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field  # records are not frozen: that takes 0.5 ms of each import for each
from datetime import date, time, timedelta
from typing import Any

import numpy as np

from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.expressions import Const, Expr, Literal, Var, Word, attribute
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View

# -- steps ---------------------------------------------------------------------------------------------------


class Rule(enum.Enum):
    """The requirements of checks on their operands; `conditions` has each as a condition in Python."""

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
    """The call is of this signature only if a rule holds.

    says: a path and what is required there, for `explain()`; None if nothing is told.
    """

    rule: Rule
    operands: tuple[Expr, ...]
    says: tuple[str, str] | None = None


@dataclass(eq=False, repr=False)
class ArrayCheck:
    """An NDArray lies as a whole on a storage of this type and has this view; binds the storage."""

    array: Var
    storage: Var
    type: ArrayType
    view: View
    says: tuple[str, str] | None = None


@dataclass(eq=False, repr=False)
class ManyArrays:
    """A list, tuple or dict holds NDArrays that lie as wholes on storages of this type and have this view."""

    container: Var
    arrays: tuple[Var, ...]
    storages: tuple[Var, ...]
    type: ArrayType
    view: View
    shown: str


@dataclass(eq=False, repr=False)
class Distinct:
    """Objects that were different ones are."""

    vars: tuple[Var, ...]


@dataclass(eq=False, repr=False)
class Separate:
    """Storages that were apart are apart; binds whether Python can see the memory of one."""

    storages: tuple[Var, ...]


@dataclass(eq=False, repr=False)
class RunSegment:
    """A segment of the call is launched, and an element looked at: a number of the call from then on.

    place: what the paths that begin alike share, by identity; a call runs it once.
    made:  the storages that it makes; element 0 of the first is looked at.
    found: the number.
    """

    place: Any
    launch: Launch
    made: tuple[Var, ...]
    found: Var


@dataclass(eq=False, repr=False)
class Transition:
    """A way from one state of a loop to another: the checks that must hold, computations and launches.

    steps: checks and computations, the `RunSegment` whose number the next state's checks ask for, or many
           rounds as one, and what else that makes.
    ends:  the number of the state where it ends, or the variable that has it.
    after: by the number of each state where it may end, what the variables of that state become.
    """

    steps: tuple[Step, ...]
    ends: int | Var
    after: Mapping[int, tuple[Var, ...]]


@dataclass(eq=False, repr=False)
class Standing:
    """A state of a loop: its variables, and the ways from it; at most one has checks that hold."""

    vars: tuple[Var, ...]
    ways: tuple[Transition, ...]


@dataclass(eq=False, repr=False)
class StateLoop:
    """Ways from state to state are gone as long as there is one whose checks hold, maybe none.

    place:  as that of a `RunSegment`.
    states: the first one is that where it begins; its variables hold `before` then.
    ends:   the number of the state where this path leaves it.
    """

    place: Any
    states: tuple[Standing, ...]
    before: tuple[Var, ...]
    ends: int


Step = Bind | Check | ArrayCheck | ManyArrays | Distinct | Separate | RunSegment | StateLoop


# -- results -------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Known:
    """A value that a replay has already: an argument, a constant, a computed number, something shared."""

    operand: Expr


@dataclass(eq=False, repr=False)
class ArrayOn:
    """A new array: a view of a storage, from `offset` on where that is a run-time value."""

    storage: Var
    view: View
    offset: Var | None = None


@dataclass(eq=False, repr=False)
class Container:
    """A new container of `kind`; a defaultdict with its factory."""

    kind: type
    keys: tuple[Any, ...]
    parts: tuple[Make, ...]
    factory: Make | None = None


@dataclass(eq=False, repr=False)
class CopyOf:
    """A copy of a NumPy array that no one else has, laid out as it is."""

    array: np.ndarray


Make = Known | ArrayOn | Container | CopyOf
"""The ways to make a value of the result."""


@dataclass(eq=False, repr=False)
class Rebind:
    """The value of a slot after the call; `GONE` removes it."""

    slot: Any
    value: Make | Any


@dataclass(eq=False, repr=False)
class Refill:
    """A container of the caller's gets other keys, or another length."""

    container: Var
    value: Make


Effect = Rebind | Refill


# -- launch --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class StorageAddress:
    """The address of a storage, or of its element `offset`, and its variable of the engine."""

    storage: Var
    offset: Var | None = None


@dataclass(eq=False, repr=False)
class Drawn:
    """A word of a random stream: its key, or its counter after `drawn` others of this call."""

    stream: int
    drawn: Expr | None = None


@dataclass(eq=False, repr=False)
class Launch:
    """The one call into native code.

    call, pack: functions of the schedule; the call takes what the other one packs.
    storages:   of the caller; pending eager code that touches one is launched before.
    words:      what is packed, but for the outputs' addresses.
    draws:      random streams by their numbers in the call, and how many words it draws of each.
    written:    storages of the caller that it writes.
    is_awaited: it may fail, and effects depend on its success: the call waits until it cannot any more.
    """

    call: Any
    pack: Any
    storages: tuple[Var, ...]
    words: tuple[StorageAddress | Drawn | Expr, ...]
    draws: tuple[tuple[int, Any, Expr], ...]
    written: tuple[Var, ...]
    is_awaited: bool


@dataclass(eq=False)
class ReplayProgram:
    """The steps of a replay.

    steps:   variables and checks, in order.
    copies:  storages that a replay makes from NumPy arrays, after its checks.
    constants: storages that stay the same in all replays.
    outputs: storages that it makes.
    values:  what is made before the launch, to be written back or used more than once.
    launch:  what is computed.
    effects: what is written back after it.
    result:  what the call returns.
    pinned:  integers that the call must have again, by their `number_key`.
    """

    steps: list[Step] = field(default_factory=list)
    copies: list[tuple[Var, Expr]] = field(default_factory=list)
    constants: dict[Var, Storage] = field(default_factory=dict)
    outputs: dict[Storage, Var] = field(default_factory=dict)
    values: list[tuple[Var, Make]] = field(default_factory=list)
    launch: Launch | None = None
    effects: list[Effect] = field(default_factory=list)
    result: Make | None = None
    pinned: dict[Hashable, int] = field(default_factory=dict)

    # -- building --------------------------------------------------------------------------------------------

    def bind(self, value: Expr, prefix: str = "v", *, seen: Any = None, path: str = "") -> Var:
        """A new variable for a value, which was `seen` in the recorded call."""
        return self.define(Var(prefix, seen, path), value)

    def define(self, var: Var, value: Expr) -> Var:
        """Bind a variable that was made before."""
        var.bound = True
        self.steps.append(Bind(var, value))
        return var

    def require(self, rule: Rule, *operands: Expr, says: tuple[str, str] | None = None) -> None:
        """The call is of this signature only if the rule holds for these operands."""
        self.steps.append(Check(rule, operands, says))

    def same(self, operand: Expr, value: Any, says: tuple[str, str], key: Hashable = None) -> None:
        """Require that a plain value is what it was: equal, of the same type, and the same zero or nan.

        key: the `number_key` of a number, if that is not its path.
        """
        if type(value) is int:
            self.pinned[says[0] if key is None else key] = value
        rule, *operands = _equal(operand, value)
        self.require(rule, *operands, says=says)

    def keys(self, operand: Expr, keys: tuple[Any, ...], says: tuple[str, str]) -> None:
        """Require that a dict has these keys, in this order, and not just equal ones, as 1 and True are."""
        given = Const(keys)
        if all(type(key) is str for key in keys):
            self.require(Rule.KEYS, operand, given, says=says)
        else:
            self.require(Rule.SAME_KEYS, operand, given, says=says)

    def array(
        self, operand: Var, storage: Storage, view: View, *, window: bool, says: tuple[str, str]
    ) -> Var:
        """Require an NDArray with this view (any offset, for a window); gives the variable of its storage."""
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

    # -- asking ----------------------------------------------------------------------------------------------

    def requirements(self) -> dict[str, str]:
        """Requirements by path, for people."""
        found: dict[str, str] = {}
        for step in self.steps:
            if isinstance(step, ManyArrays):
                found.update(dict.fromkeys([array.path for array in step.arrays], step.shown))
            elif isinstance(step, Check | ArrayCheck) and step.says is not None:
                found.update([step.says])
        return found


def _equal(operand: Expr, value: Any) -> tuple[Any, ...]:
    """Rule and operands by which a plain value is what it was."""
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
