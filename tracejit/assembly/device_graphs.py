"""Segments: tasks of one device that the engine issues as one, as a graph of the device's own.

    0: gpu:0   1: gpu:0 after 0   2: cpu:0 after 1   3: gpu:0 after 0   4: gpu:0 after 2, 3
        ->  (0, 1, 3), (2,), (4,)

A task is in a later segment than what it waits for on another device, and no earlier than any task that it
waits for. So segments wait for one another without circles, and there are as few as possible.
"""

from __future__ import annotations

from collections.abc import Sequence


def segments(after: Sequence[Sequence[int]], lanes: Sequence[int | None]) -> list[tuple[int, ...]]:
    """The tasks that go together, in an order in which they could run. `after`: the earlier tasks that each
    one waits for; `lanes`: the device with which it may be joined, or None.

    >>> segments([(), (0,), (1,), (0,), (2, 3)], [7, 7, None, 7, 7])
    [(0, 1, 3), (2,), (4,)]
    >>> segments([(), (0,), (1,)], [None, None, None])
    [(0,), (1,), (2,)]
    """
    levels: list[int] = []
    for lane, earlier in zip(lanes, after, strict=True):
        apart = [lane is not None and lanes[i] != lane for i in earlier]
        levels.append(max((levels[i] + other for i, other in zip(earlier, apart, strict=True)), default=0))
    found: dict[tuple[int, int, int], list[int]] = {}
    for number, (lane, level) in enumerate(zip(lanes, levels, strict=True)):
        place = (level, 1, number) if lane is None else (level, 0, lane)
        found.setdefault(place, []).append(number)
    return [tuple(found[place]) for place in sorted(found)]
