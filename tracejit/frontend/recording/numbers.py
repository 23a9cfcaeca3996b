"""The numbers of a trace: the computations of its body on them, and its questions, in order.

if lr * 2 > 1.0:      steps: Computed(MULTIPLY, (lr, 2)), Question(GREATER, (that, 1.0)), answer True
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from tracejit.frontend.recording import operations
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.operations import Operation
from tracejit.frontend.recording.sources import OF_LOOPS, Computed, Question, Source, identity, shown


class Numbers:
    """The numbers of a trace.

    steps:  what was computed and asked, in the body's order, with the looks at arrays (`segments.Cut`).
    given:  whether there are any.
    closed: the trace is over, and nothing is noted any more. A proxy that is still referenced then acts as
            its value, in later recordings, too.
    concrete: the body gets numbers themselves, no stand-ins; they are guarded.
    found:  sources of the numbers that depend on what arrays hold.
    raised: the line where arithmetic on such a number raised an error: if the body caught it, there is no
            replay.
    refuse: called when the body asks for the very value of a float that it found in an array.
    counted: sources of the numbers that count rounds (see `loops.counters`), or are computed of such.
    recount: called when the body asks for the very value of one of them.
    """

    def __init__(
        self,
        *,
        concrete: bool = False,
        refuse: Callable[[str], Any] | None = None,
        recount: Callable[[], Any] | None = None,
    ) -> None:
        self.concrete, self.refuse, self.recount = concrete, refuse, recount
        self.steps: list[Any] = []
        self.given = False
        self.closed = False
        self.raised: str | None = None
        self._computed: dict[Any, Computed] = {}
        self._asked: set[Any] = set()
        self.found: set[Any] = set()
        self.counted: set[Any] = set()
        self._alive: list[weakref.ref[NumberProxy]] = []

    def argument(self, value: Any, source: Any) -> NumberProxy:
        """The number that replays find at `source`, which has a `path` for people."""
        self.given = True
        return NumberProxy(value, source, self)

    def find(self, source: Source, cut: Any) -> None:
        """Note that the body found a number in an array, by a look that replays repeat."""
        self.given = True
        self.steps.append(cut)
        self.found.add(source)
        self._computed, self._asked = {}, set()  # the next round of a loop asks again

    def begin(self, value: Any) -> Computed:
        """The initial value of a number that counts rounds: equal ones are other sources."""
        source = Computed(operations.IDENTITY, (value,), value)
        self.steps.append(source)
        self.counted.add(source)
        return source

    def proxy(self, source: Computed | Source) -> NumberProxy:
        """A stand-in for a number that was computed or found, which is among those `alive`."""
        made = NumberProxy(source.value, source, self)
        self._alive.append(weakref.ref(made))
        return made

    def alive(self) -> list[NumberProxy]:
        """The stand-ins for numbers computed or found that are still referenced, in the order in which they
        were made: by variables, by containers, or by an expression that is being evaluated.
        """
        held = [(reference, proxy) for reference in self._alive if (proxy := reference()) is not None]
        self._alive = [reference for reference, _ in held]
        return [proxy for _, proxy in held]

    def is_noted(self, source: Any) -> bool:
        """Whether a number is found in an array, counts rounds, or is computed of such."""
        return source in self.found or source in self.counted

    def check(self, proxy: NumberProxy) -> None:
        """Refuse a guard on all digits of a number that was computed: it would hold for one call only."""
        is_open = self.refuse is not None and not self.closed
        if is_open and proxy._source in self.counted:
            self.recount()  # type: ignore[misc]
        if is_open and isinstance(proxy._value, float) and proxy._source in self.found:
            self.refuse(shown(operations.IDENTITY, (proxy._source,)))  # type: ignore[misc]

    def compute(self, operation: Operation, value: Any, *operands: Any) -> Any:
        """The result `value` of an operation of Python's."""
        if self.closed:
            return value
        for operand in operands:
            if type(operand) in OF_LOOPS:
                return operand.loop.follow(operation, value, operands)
        key = operation, *map(identity, operands)
        source = self._computed.get(key)
        if source is None:
            source = self._computed[key] = Computed(operation, operands, value)
            self.steps.append(source)
            known = [each for each in operands if isinstance(each, Computed | Source)]
            for noted in (self.found, self.counted):
                if not noted.isdisjoint(known):
                    noted.add(source)
        if operation is operations.POWER:  # an integer, float or complex, by the values of its operands
            kind: Any = type(value)
            self.ask(True, operations.type_is(kind), source)
        return self.proxy(source)

    def ask(self, value: Any, operation: Operation, *operands: Any) -> None:
        """Note that the body asked for the result of an operation: replays require the same `value`."""
        if self.closed:
            return
        for operand in operands:
            if type(operand) in OF_LOOPS:
                asked = shown(operation, operands)
                operand.loop.unroll(f"the value of the loop variable is asked for: {asked}")
        key = operation, *map(identity, operands)
        if key not in self._asked:
            self._asked.add(key)
            self.steps.append(Question(operation, operands, value))
