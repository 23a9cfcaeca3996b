"""Loops that compute with numbers only, in a body that looks.

    n = int(d[i])
    while n != 1:                            a look after the second answer, and after each later one
        n = n // 2 if n % 2 == 0 else 3 * n + 1

Such a loop has no look of its own, and each call asks another number of questions. When a body asks a
question at the same position again, without an operation on arrays or a look in between, it looks at the
number then. The iterations are then transitions between equal states, like those of all loops over looks.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from tracejit.frontend.python.code_positions import asks_once
from tracejit.frontend.recording.location import is_ours
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.restart import CodePosition, Restart

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace

MAX_NEW_STATES = 16
"""The largest number of states at one position. If there are more, or one is unknown, the recording starts
again without looks there.
"""

MAX_INTEGER = 1 << 52
"""Numbers beyond it are not looked at."""


class NumberLoops:
    """The questions of a trace that may belong to such loops.

    _asked:  by frame and offset: the looks and operations before the last question there.
    _states: by position in the code: the ids of the states at the looks that were added there.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._asked: dict[tuple[int, int], tuple[int, int]] = {}
        self._states: dict[CodePosition, set[int | None]] = {}

    def after_question(self, number: NumberProxy, answer: Any, frame: types.FrameType) -> None:
        """Look at a number of which the body has asked a question, if it has asked the same one before.
        `frame`: the caller of the operator that asks.
        """
        trace = self.trace
        if not trace.looks.cuts or trace.nest.loops or trace.assumed.counted is False:
            return
        if is_ours(frame) or not asks_once(frame.f_code, frame.f_lasti):
            return
        key = id(frame), frame.f_lasti
        if self._asked.get(key) == self._progress() and abs(number._value) < MAX_INTEGER:
            self._look((frame.f_code, frame.f_lasti), number, answer)
        self._asked[key] = self._progress()

    def _look(self, position: CodePosition, number: NumberProxy, answer: Any) -> None:
        trace, looks = self.trace, self.trace.looks
        states = self._states.setdefault(position, set())
        if position in trace.assumed.unasked or None in states or looks.refusal(trace, None) is not None:
            return
        trace.look_at_number(number, answer)
        states.add(None if looks.n_unknown else looks.state_graph.state_ids[-1])
        if (None in states and trace.assumed.counted) or len(states) > MAX_NEW_STATES:
            trace.interrupt(Restart(unasked=position))

    def _progress(self) -> tuple[int, int]:
        return len(self.trace.looks.cuts), len(self.trace.nodes)
