"""The paths of one signature whose body looks at values of arrays.

A path is what one outcome of the looks leads to: segments that are launched, what is asked of the numbers
they give, and a last launch with all effects (see `recording.segments`). Each has a replay function of its
own. A call tries them, the one that served last first: what a path has launched before an answer was
another one is found in the call's `Memo` by the next path, which has the same places up to there. Where no
path fits, nothing has been changed, and the call is recorded: the tree gets another path.

The number of paths is bounded (`PATHS`); the one that has not served for longest goes. A tree is *bushy* if
new paths keep coming: then its function runs piecewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.frontend.jit.entries import Path, Signature
from tracejit.frontend.recording.segments import PathPlace
from tracejit.frontend.signature.runtime import MISS, Memo

PATHS = 64
"""Most paths of a signature."""

TRIES = 256
"""Most recordings of paths without ten times as many replays; after them the function runs piecewise."""


class TraceTree(Signature):
    """The signature of calls that look at values.

    latest:   the path that served last, which is tried first.
    recorded: the one that was recorded last, whose graph, text and requirements the tree shows as its own.
    traces:   how many have been recorded.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(self._replay, path.requirements, path.graph, path.pinned, path.text, used=path.used)
        self._paths = [path]
        self.latest = self.recorded = path
        self.traces = 1

    @property
    def paths(self) -> Sequence[Path]:
        return self._paths

    @property
    def first(self) -> PathPlace:
        """The segment with which all paths begin."""
        return self.recorded.segments[0][0]

    @property
    def is_bushy(self) -> bool:
        """Whether new paths keep coming."""
        return self.traces >= TRIES and self.replays < 10 * self.traces

    def add(self, path: Path) -> None:
        """Add a path, which has just been recorded."""
        self.traces += 1
        self.graph, self.text = path.graph, path.text
        self.requirements, self.pinned = path.requirements, path.pinned
        self.latest = self.recorded = path
        kept = sorted(self._paths, key=lambda known: known.used)[-PATHS + 1 :]
        self._paths = [path, *reversed(kept)]

    def _replay(self, args: Any, kwargs: Any) -> Any:
        memo, latest = Memo(), self.latest
        failed: tuple[Path, int] | None = None
        try:
            for path in (latest, *self._paths):
                if failed is not None and (path is latest or not _may_fit(path, *failed)):
                    continue
                if memo.drawn:
                    memo.keep(place for place, _answers in path.segments)
                result = path.replay(args, kwargs, memo)
                if result is not MISS:
                    self.latest = path
                    self.replays += 1
                    self.used = path.used
                    return result
                failed = _failed(path, memo) or failed
        except BaseException:
            memo.give_back()
            raise
        memo.give_back()
        return MISS


def _may_fit(path: Path, other: Path, depth: int) -> bool:
    """Whether a path may fit a call for which `other` had a wrong answer after its segment at this depth."""
    known, tried = path.segments, other.segments
    alike = 0
    while alike <= depth and alike < len(known) and known[alike][0] is tried[alike][0]:
        alike += 1
    if alike == 0:
        return True
    answers, wrong = known[alike - 1][1], tried[alike - 1][1]
    if alike > depth:
        return answers != wrong
    for mine, right in zip(answers, wrong, strict=False):  # the call has these answers
        if mine.question != right.question:
            break
        if mine.value != right.value:
            return False
    return True


def _failed(path: Path, memo: Memo) -> tuple[Path, int] | None:
    """The path, and at which depth it had another answer than the call."""
    for depth in range(len(path.segments) - 1, -1, -1):
        if path.segments[depth][0] is memo.last:
            return path, depth
    return None
