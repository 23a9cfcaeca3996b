"""Segments: tasks of one device that the engine issues together, as a graph of the device.

    0: gpu:0   1: gpu:0 after 0   2: cpu:0 after 1   3: gpu:0 after 0   4: gpu:0 after 2, 3
        ->  (0, 1, 3), (2,), (4,)

A task is in a later segment than the tasks of other devices that it waits for, and in no earlier segment than
any task that it waits for. So the dependences between segments are acyclic, and there are as few segments as
possible.
"""

from __future__ import annotations

from collections.abc import Sequence


def segments(after: Sequence[Sequence[int]], lanes: Sequence[int | None]) -> list[tuple[int, ...]]:
    """Return the segments, in a valid execution order. `after`: the earlier tasks that each task waits for;
    `lanes`: for each task the device with whose tasks it may be joined, or None.

    >>> segments([(), (0,), (1,), (0,), (2, 3)], [7, 7, None, 7, 7])
    [(0, 1, 3), (2,), (4,)]
    >>> segments([(), (0,), (1,)], [None, None, None])
    [(0,), (1,), (2,)]
    """
    levels: list[int] = []
    for lane, earlier in zip(lanes, after, strict=True):
        differs = [lane is not None and lanes[i] != lane for i in earlier]
        levels.append(max((levels[i] + step for i, step in zip(earlier, differs, strict=True)), default=0))
    members: dict[tuple[int, int, int], list[int]] = {}
    for number, (lane, level) in enumerate(zip(lanes, levels, strict=True)):
        segment_key = (level, 1, number) if lane is None else (level, 0, lane)
        members.setdefault(segment_key, []).append(number)
    return [tuple(members[segment_key]) for segment_key in sorted(members)]
