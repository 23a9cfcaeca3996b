"""The numbers of a trace: the computations of its body on them, and its questions, in order.

if lr * 2 > 1.0:      steps: Computed(MULTIPLY, (lr, 2)), Question(GREATER, (that, 1.0)), answer True
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from tracejit.frontend.recording import operations
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.operations import Operation
from tracejit.frontend.recording.sources import (
    LITERALS,
    OF_LOOPS,
    Computed,
    Question,
    Source,
    identity,
    shown,
)

MAX_REQUIRED = 1000
"""The number of guarded numbers after which numbers computed from them are literals: a body that computes so
many does so in Python, with an argument that determines how much.
"""


class Numbers:
    """The numbers of a trace.

    steps:  the computations and questions, in the body's order, with the looks at arrays (`segments.Cut`).
    given:  whether the body has received any proxy.
    closed: the trace has ended, and nothing is recorded any more. A proxy that is still referenced then
            behaves like its value, in later recordings, too.
    concrete: the body receives numbers themselves instead of proxies; they are guarded.
    from_arrays: sources of the numbers that depend on the content of arrays.
    raised: the line where arithmetic on such a number raised an error: if the body caught the error, the call
            cannot be replayed.
    refuse: called when the body asks for the exact value of a float that depends on an array.
    counted: sources of the numbers that count iterations (see `look_loops.counters`), or are computed from
             such numbers.
    recount: called when the body asks for the exact value of one of them.
    after_question: called after a comparison or a truth test, see `answered`.
    need_float: called when the body asks for the exact value of a float.
    many: called when the body has computed `limit` numbers since the last look, or since the last such call.
    required: sources of the numbers whose exact values are guarded, and of those computed from such numbers:
            before the first look, only questions about their exact values are guards, from which later
            recordings learn what varies.
    """

    def __init__(
        self,
        *,
        concrete: bool = False,
        refuse: Callable[[str], Any] | None = None,
        recount: Callable[[], Any] | None = None,
        after_question: Callable[[NumberProxy, Any, types.FrameType], None] | None = None,
        need_float: Callable[[], None] | None = None,
        many: Callable[[], None] | None = None,
        limit: int = 0,
    ) -> None:
        self.concrete, self.refuse, self.recount = concrete, refuse, recount
        self.after_question, self.need_float = after_question, need_float
        self.many, self.limit = many, limit
        self.steps: list[Any] = []
        self.n_before = 0  # of the steps, those before the last look or call of `many`
        self.given = False
        self.closed = False
        self.raised: str | None = None
        self._computed: dict[Any, Computed] = {}
        self._asked: set[Any] = set()
        self.from_arrays: set[Any] = set()
        self.counted: set[Any] = set()
        self.required: set[Any] = set()
        self._alive: list[weakref.ref[NumberProxy]] = []

    def argument(self, value: Any, source: Any) -> NumberProxy:
        """Return the proxy of a number that replays obtain from `source`, which has a `path` for messages."""
        self.given = True
        return NumberProxy(value, source, self)

    def add_look(self, source: Source, cut: Any) -> None:
        """Note that the body read a number from an array, by a look that replays repeat."""
        self.given = True
        self.steps.append(cut)
        self.from_arrays.add(source)
        self.n_before = len(self.steps)
        self._computed, self._asked = {}, set()  # the next iteration of a loop asks again

    def start_counter(self, value: Any) -> Computed:
        """Return the source of the initial value of an iteration counter, which is a literal or a number of
        the call. Each call returns a distinct source, even for equal values.
        """
        operand, value = (value._source, value._value) if type(value) is NumberProxy else (value, value)
        source = Computed(operations.IDENTITY_FUNCTION, (operand,), value)
        self.steps.append(source)
        self.counted.add(source)
        return source

    def proxy(self, source: Computed | Source) -> NumberProxy:
        """Return a proxy of a number that was computed or looked at. It is among those that `alive`
        returns.
        """
        proxy = NumberProxy(source.value, source, self)
        self._alive.append(weakref.ref(proxy))
        return proxy

    def alive(self) -> list[NumberProxy]:
        """Return the proxies of computed numbers and numbers looked at that are still referenced by
        variables, by containers, or by an expression that is being evaluated, in the order of their creation.
        """
        alive = [(reference, proxy) for reference in self._alive if (proxy := reference()) is not None]
        self._alive = [reference for reference, _ in alive]
        return [proxy for _, proxy in alive]

    def has_many(self) -> bool:
        """Whether more than `limit` numbers were computed since the last look or call of `many`."""
        return len(self.steps) - self.n_before > self.limit

    def is_recomputed(self, source: Any) -> bool:
        """Whether replays recompute a number: it was looked at in an array, counts iterations, or is computed
        from such numbers.
        """
        return source in self.from_arrays or source in self.counted

    def check(self, proxy: NumberProxy) -> None:
        """Refuse a guard on the exact value of a number that depends on an array or counts iterations: it
        would hold for one call only.
        """
        is_open = self.refuse is not None and not self.closed
        if is_open and proxy._source in self.counted:
            self.recount()  # type: ignore[misc]
        if is_open and isinstance(proxy._value, float) and self.need_float is not None:
            self.need_float()
        if is_open and isinstance(proxy._value, float) and proxy._source in self.from_arrays:
            self.refuse(shown(operations.IDENTITY_FUNCTION, (proxy._source,)))  # type: ignore[misc]

    def compute(self, operation: Operation, value: Any, *operands: Any) -> Any:
        """Record an operation with the result `value`. Return a proxy of the result."""
        if self.closed:
            return value
        for operand in operands:
            if type(operand) in OF_LOOPS:
                return operand.loop.follow(operation, value, operands)
        is_required = self._are_required(operands)
        if is_required and len(self.required) > MAX_REQUIRED:
            return value
        key = operation, *map(identity, operands)
        source = self._computed.get(key)
        if source is None:
            source = self._computed[key] = Computed(operation, operands, value)
            self.steps.append(source)
            recorded = [each for each in operands if isinstance(each, Computed | Source)]
            for sources in (self.from_arrays, self.counted):
                if not sources.isdisjoint(recorded):
                    sources.add(source)
            if is_required:
                self.required.add(source)
            if self.many is not None and self.has_many():
                self.n_before = len(self.steps)
                self.many()
        if operation is operations.POWER:  # its type (int, float or complex) depends on the operands' values
            kind: Any = type(value)
            self.ask(True, operations.type_is(kind), source)
        return self.proxy(source)

    def ask(self, value: Any, operation: Operation, *operands: Any) -> None:
        """Record that the body asked for the result of an operation: replays require the same `value`."""
        if self.closed:
            return
        for operand in operands:
            if type(operand) in OF_LOOPS:
                question = shown(operation, operands)
                operand.loop.unroll(f"the value of the loop variable is asked for: {question}")
        is_exact = operation is operations.IDENTITY_FUNCTION
        if not is_exact and self._are_required(operands):
            return
        key = operation, *map(identity, operands)
        if key not in self._asked:
            self._asked.add(key)
            self.steps.append(Question(operation, operands, value))
            if is_exact and not self.is_recomputed(operands[0]):
                self.required.add(operands[0])

    def _are_required(self, operands: tuple[Any, ...]) -> bool:
        """Whether guards imply the values of all operands, sources and literals. After a look, all questions
        are asked again, so that the iterations of a loop ask the same ones.
        """
        required = self.required
        if not required or self.from_arrays or self.counted:
            return False
        return all(operand in required or isinstance(operand, LITERALS) for operand in operands)

    def answered(self, proxy: NumberProxy, answer: Any, frame: types.FrameType) -> None:
        """Note that a comparison or a truth test is complete, whose operator `frame` is executing."""
        if self.after_question is not None and not self.closed:
            self.after_question(proxy, answer, frame)
