"""Early ends of a recording: it starts again with other assumptions (`Restart`), or the call cannot be
replayed (`Unreplayable`).

A body is first recorded under optimistic `Assumptions`: that it works with proxies of its numbers, with
copies of its containers, and so on. When an assumption proves wrong, the body is aborted, its changes are
undone, and it is recorded again from its start with the assumption corrected. Where no assumption helps, the
call runs piecewise.

>>> assumed = Assumptions()
>>> Restart(concrete=True).correct(assumed)
>>> assumed.concrete
True
"""

from __future__ import annotations

import types
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracejit.frontend.python.bytecode import Mentions
from tracejit.frontend.recording.sources import OF_LOOPS, number_key
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.types import Device

RETURN = "return arrays, numbers and containers of them"


CodePosition = tuple[types.CodeType, int]
"""A position in code: the code object, and the offset of the instruction."""


@dataclass(eq=False, repr=False)
class Assumptions:
    """Assumptions under which a call is recorded: the initial ones, corrected by the results of earlier
    recordings.

    concrete: the body receives numbers themselves and NumPy's arrays, which are guarded, because code
              compares types.
    numpy:    functions of this package replace NumPy's functions that create arrays. None: not needed so far.
    spares_guards: `numpy` is meant to need no guard on a float; without it, the call can be recorded,
              too.
    counted:  iteration counters are run-time numbers (see `look_loops.counters`). None: not needed so far.
    stepped:  each iteration of a loop with such a counter has a look, because the recording of all is long.
              None: not needed so far. False: the state of the body would be unknown at these looks.
    math:     functions of `math` compute with run-time numbers.
    generators: `numpy.random.default_rng` returns generators whose numbers are constants of the trace.
    functions: `float` and the like are replaced in functions that the body accesses by name, and only calls.
    picks:    numbers that the body reads from arrays, or counts iterations with, index as arrays do (see
              `picks`).
    required: the numbers that other traces of the function require, by their `number_key`.
    reached:  ids of containers among the arguments, and of NumPy arrays, that the body gets themselves
              instead of copies or views, as it also accesses them by name.
    aliased:  storages that are inputs as a unit, although arguments are views of parts of them: the body uses
              other parts, too, or may compare the argument with an object that it accesses by name.
    unrolled: call sites of `tj.range` at which all iterations are recorded, with the reason and the line.
              None: all call sites.
    rolled:   loops over Python's `range` are recorded with a few iterations, because the recording of all is
              long.
    place:    the device to which NumPy arrays among the arguments are copied. None: that of the arrays among
              the arguments.
    unasked:  positions of questions that are followed by no looks (see `look_loops.number_loops`).
    stores:   the names that code of the body assigns. Set if code has read a number before other code was
              known to assign it. None: this has not happened.
    """

    concrete: bool = False
    numpy: bool | None = None
    spares_guards: bool = False
    counted: bool | None = None
    stepped: bool | None = None
    math: bool = False
    generators: bool = False
    functions: bool = True
    picks: bool = True
    reached: set[int] = field(default_factory=set)
    aliased: set[Storage] = field(default_factory=set)
    unrolled: dict[Any, tuple[str, str]] | None = field(default_factory=dict)
    rolled: bool = False
    place: Device | None = None
    stores: Mentions | None = None
    required: Sequence[Mapping[Hashable, int]] = ()
    unasked: set[CodePosition] = field(default_factory=set)

    def has_varied(self, source: Any, value: int) -> bool:
        """Whether another trace requires a different value of a number."""
        if not self.required or type(source) in OF_LOOPS:
            return False
        key = number_key(source)
        return any(known.get(key, value) != value for known in self.required)


class Restart(BaseException):
    """The body has to be recorded again, from the start. The arguments are the corrected assumptions.

    reached:  a container, or a NumPy array.
    unrolled: a call site, and (reason, line).
    unasked:  a position of a question.
    """

    def __init__(
        self,
        *,
        concrete: bool | None = None,
        numpy: bool | None = None,
        spares_guards: bool | None = None,
        counted: bool | None = None,
        stepped: bool | None = None,
        math: bool | None = None,
        generators: bool | None = None,
        functions: bool | None = None,
        picks: bool | None = None,
        rolled: bool | None = None,
        place: Device | None = None,
        stores: Mentions | None = None,
        reached: Any = None,
        aliased: Collection[Storage] = (),
        unrolled: tuple[Any, tuple[str, str]] | None = None,
        unasked: CodePosition | None = None,
    ):
        super().__init__("recording starts again")
        self._corrections: dict[str, Any] = {
            "concrete": concrete,
            "numpy": numpy,
            "spares_guards": spares_guards,
            "counted": counted,
            "stepped": stepped,
            "math": math,
            "generators": generators,
            "functions": functions,
            "picks": picks,
            "rolled": rolled,
            "place": place,
            "stores": stores,
        }
        self._reached, self._aliased, self._unrolled, self._unasked = reached, aliased, unrolled, unasked

    def correct(self, assumed: Assumptions) -> None:
        """Correct the assumptions of the recording that was aborted."""
        if self._corrections["numpy"]:
            assumed.counted = None  # recorded arrays are looked at elsewhere
            assumed.unasked.clear()  # states were unknown with NumPy's arrays
        for name, value in self._corrections.items():
            if value is not None:
                setattr(assumed, name, value)
        if self._reached is not None:
            assumed.reached.add(id(self._reached))
        assumed.aliased.update(self._aliased)
        if self._unasked is not None:
            assumed.unasked.add(self._unasked)
        if self._unrolled is not None and assumed.unrolled is not None:
            site, reason_and_line = self._unrolled
            assumed.unrolled[site] = reason_and_line


class Unreplayable(BaseException):
    """The call cannot be replayed: the recording is aborted, and the body itself has to run, from the start.

    While the body runs, `Trace.give_up` raises this exception, and `Trace.interrupt` a `Restart`. The trace
    stores the exception, as the body may catch it. Before and after the body, they are raised like any other
    exception.

    remedy: a suggestion to the user, may be empty.
    line:   the line that is the reason; None: the line where the function is defined.
    later:  whether later calls can be replayed, so that this is not an error for a strict function.
    """

    def __init__(self, reason: str, remedy: str, line: str | None, *, later: bool = False) -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self.line, self.later = line, later
