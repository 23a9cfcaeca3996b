"""The trace tree of a signature whose body looks at values of arrays.

A path belongs to one outcome of the looks. It consists of segments to launch, questions about the numbers
that they produce, and a last launch with all effects (see `recording.segments`). Each path has a replay
function of its own. A call tries the paths, the most recently used one first. When an answer differs, the
next path finds the results of common segments in the call's `Memo`, since both share the tree nodes up to
there, and continues a loop where the path before has stopped. If no path fits, nothing has been written, and
the call is recorded: the tree gains a path, which knows transitions of others (`state_loops.adoption`).

The number of paths is bounded (`PATHS`); the least recently used one is evicted. If a
tree keeps gaining paths (`is_growing`), its function runs piecewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.frontend.jit.entries import Path, Signature
from tracejit.frontend.recording.segments import TreeNode
from tracejit.frontend.signature.runtime import MISS, Memo

PATHS = 64
"""The largest number of paths of a signature."""

TRIES = 256
"""The number of recorded paths after which a function with fewer than ten times as many replays is
piecewise.
"""


class TraceTree(Signature):
    """The signature of calls that look at values.

    latest:   the most recently used path, which is tried first.
    recorded: the most recently recorded path, whose graph, text and requirements the tree shows as its own.
    traces:   the number of recorded paths.
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
    def first(self) -> TreeNode:
        """The tree node with which all paths start."""
        return self.recorded.segments[0][0]

    @property
    def is_growing(self) -> bool:
        """Whether the tree keeps gaining paths."""
        return self.traces >= TRIES and self.replays < 10 * self.traces

    def add(self, path: Path) -> None:
        """Add a newly recorded path."""
        self.traces += 1
        self.graph, self.text = path.graph, path.text
        self.requirements, self.pinned = path.requirements, {**self.pinned, **path.pinned}
        self.latest = self.recorded = path
        kept = sorted(self._paths, key=lambda known: known.used)[-PATHS + 1 :]
        self._paths = [path, *reversed(kept)]

    def _replay(self, args: Any, kwargs: Any) -> Any:
        memo, latest = Memo(), self.latest
        failed: tuple[Path, int] | None = None
        try:
            for path in (latest, *self._paths):
                if failed is not None and (path is latest or not _may_fit(path, *failed, memo)):
                    continue
                if memo.drawn:
                    memo.keep(node for node, _answers in path.segments)
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


def _may_fit(path: Path, other: Path, depth: int, memo: Memo) -> bool:
    """Whether a path may fit a call in which an answer of `other` differed after its segment at this
    depth.
    """
    known, tried = path.segments, other.segments
    common = 0
    while common <= depth and common < len(known) and known[common][0] is tried[common][0]:
        common += 1
    if common == 0:
        return True
    node, answers = known[common - 1]
    others = tried[common - 1][1]
    if node in path.loop_ends:
        end, left = path.loop_ends[node], other.loop_ends[node]
        if end.known is None or left.known is None or not end.known <= left.known:
            return True  # it may go on with the loop
        if end.state is not memo.state_in(node):
            return False
        if end.state is not left.state:
            return True
    if common > depth:  # an answer of `other` after the last common segment is wrong
        return answers != others
    for mine, right in zip(answers, others, strict=False):  # the call has the answers of `other`
        if mine.question is not right.question:
            break
        if mine.value != right.value:
            return False
    return True


def _failed(path: Path, memo: Memo) -> tuple[Path, int] | None:
    """Return the path and the depth at which its answer differed from the call's; None if it launched
    nothing.
    """
    for depth in range(len(path.segments) - 1, -1, -1):
        if path.segments[depth][0] is memo.last:
            return path, depth
    return None
