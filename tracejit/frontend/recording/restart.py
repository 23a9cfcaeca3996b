"""How a recording ends before its body does: it starts again (`Restart`), or never (`Unreplayable`).

A body is recorded as if nothing spoke against stand-ins for its numbers, copies of its containers, and so on
(`Assumptions`). When something does, the body is aborted, what it did is taken back, and it is recorded again
from its start, with the assumption corrected. Where no assumption helps, the call runs piecewise.

>>> assumed = Assumptions()
>>> Restart(concrete=True).correct(assumed)
>>> assumed.concrete
True
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracejit.frontend.python.bytecode import Mentions
from tracejit.frontend.recording.sources import OF_LOOPS, number_key
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.types import CPU, Device

RETURN = "return arrays, numbers and containers of them"


@dataclass
class Assumptions:
    """Assumptions under which a call is recorded: the first ones, corrected by what recordings found out.

    concrete: the body gets numbers themselves and NumPy's arrays, which are guarded: code compares types.
    numpy:    the body finds functions of ours for those of NumPy's that make arrays. None: it need not yet.
    counted:  what counts rounds is a run-time number (see `loops.counters`). None: it need not be yet.
    math:     functions of `math` compute with run-time numbers.
    functions: those that the body finds by name, and only calls, have `float` and the like of ours.
    picks:    numbers that the body finds in arrays, or counts rounds with, index as arrays do (see `picks`).
    required: the numbers that other traces of the function require, by their `number_key`.
    reached:  ids of containers among the arguments, and of NumPy arrays, that the body gets themselves, as it
              also finds them by name.
    aliased:  storages that enter the trace whole, though arguments view parts of them: the body uses other
              parts, too, or may compare the argument with what it finds by name.
    unrolled: places of `tj.range` where all rounds are recorded: why, and the line. None: everywhere.
    rolled:   a few rounds of loops over Python's `range` stand for all: recording all has become long.
    place:    the device on which the body has NumPy arrays among the arguments.
    stores:   what code of the body assigns, where one of it read a number before another one was known to
              assign it. None: that has not been so.
    """

    concrete: bool = False
    numpy: bool | None = None
    counted: bool | None = None
    math: bool = False
    functions: bool = True
    picks: bool = True
    reached: set[int] = field(default_factory=set)
    aliased: set[Storage] = field(default_factory=set)
    unrolled: dict[Any, tuple[str, str]] | None = field(default_factory=dict)
    rolled: bool = False
    place: Device = CPU
    stores: Mentions | None = None
    required: Sequence[Mapping[Hashable, int]] = ()

    def has_varied(self, source: Any, value: int) -> bool:
        """Whether another trace requires another value of a number."""
        if not self.required or type(source) in OF_LOOPS:
            return False
        key = number_key(source)
        return any(known.get(key, value) != value for known in self.required)


class Restart(BaseException):
    """The body has to be recorded again, from the start; the arguments say what is assumed then.

    reached:  a container, or an array of NumPy's.
    unrolled: a place, and (why, the line).
    """

    def __init__(
        self,
        *,
        concrete: bool | None = None,
        numpy: bool | None = None,
        counted: bool | None = None,
        math: bool | None = None,
        functions: bool | None = None,
        picks: bool | None = None,
        rolled: bool | None = None,
        place: Device | None = None,
        stores: Mentions | None = None,
        reached: Any = None,
        aliased: Collection[Storage] = (),
        unrolled: tuple[Any, tuple[str, str]] | None = None,
    ):
        super().__init__("recording starts again")
        self._found: dict[str, Any] = {
            "concrete": concrete,
            "numpy": numpy,
            "counted": counted,
            "math": math,
            "functions": functions,
            "picks": picks,
            "rolled": rolled,
            "place": place,
            "stores": stores,
        }
        self._reached, self._aliased, self._unrolled = reached, aliased, unrolled

    def correct(self, assumed: Assumptions) -> None:
        """Correct the assumptions of the recording that was aborted."""
        for name, found in self._found.items():
            if found is not None:
                setattr(assumed, name, found)
        if self._reached is not None:
            assumed.reached.add(id(self._reached))
        assumed.aliased.update(self._aliased)
        if self._unrolled is not None and assumed.unrolled is not None:
            place, why = self._unrolled
            assumed.unrolled[place] = why


class Unreplayable(BaseException):
    """The call cannot be replayed: the recording is aborted, and the body has to run itself, from the start.

    While the body runs, `Trace.give_up` raises this, and `Trace.interrupt` a `Restart`: the trace keeps what
    ended it, as the body may catch the exception. Before and after, they are raised as any other exception.

    remedy: what the user can do, may be empty.
    line:   the line that is the reason; None: where the function begins.
    later:  whether later calls can be replayed, so that this is no error of a strict function.
    """

    def __init__(self, reason: str, remedy: str, line: str | None, *, later: bool = False) -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self.line, self.later = line, later
