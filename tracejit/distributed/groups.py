"""Groups: some of the ranks, which exchange among themselves.

    rows = tj.distributed.split(tj.distributed.rank() // 4)       # of each four ranks that follow one another
    total = tj.distributed.all_reduce(x, group=rows)              # the sum over the four ranks of this row

A group is one part of a division of *all* ranks, and all ranks make each call, each with its own part of the
division. So ranks still launch the same exchanges in the same order, and an agreement compares them: the
attribute `groups` of such a node holds all parts.
"""

from __future__ import annotations

from typing import Any

from tracejit.distributed.world import rank, size
from tracejit.errors import ArgumentError, locate
from tracejit.frontend.python.kinds import Vouched
from tracejit.frontend.recording.location import user_location

Parts = tuple[tuple[int, ...], ...]


class Group(Vouched):
    """Some of the ranks; made by `tj.distributed.split`. A traced step expects the very object that it had.

    parts: all groups of the division, each the numbers of its ranks. members: those of this one.

    >>> import tracejit as tj
    >>> group = tj.distributed.split(0)
    >>> len(group.members) == tj.distributed.size()
    True
    """

    __slots__ = ("members", "parts")

    def __init__(self, parts: Parts, number: int) -> None:
        self.parts = parts
        self.members = next(members for members in parts if number in members)

    def __repr__(self) -> str:
        return f"Group{self.members}"

    @property
    def rank(self) -> int:
        """The number of this rank in the group.

        >>> import tracejit as tj
        >>> tj.distributed.split(tj.distributed.rank()).rank
        0
        """
        return self.members.index(rank())

    @property
    def size(self) -> int:
        """The number of ranks in the group.

        >>> import tracejit as tj
        >>> tj.distributed.split(tj.distributed.rank()).size
        1
        """
        return len(self.members)


def attributes(name: str, group: Group | None) -> dict[str, Any]:
    """The attributes of a node that say its group of ranks; None: all ranks."""
    if group is None:
        return {}
    if not isinstance(group, Group):
        what = f"{name}: group is made by tj.distributed.split, got {type(group).__name__}"
        raise locate(ArgumentError(what), user_location())
    return {"groups": group.parts}


def size_of(group: Group | None) -> int:
    """The number of ranks in a group; None: all ranks."""
    return size() if group is None else group.size


def divided(colors: list[int], parts: Parts) -> Parts:
    """Each part divided by the colors of its members; the same divisions have their parts in the same order.

    >>> divided([1, 0, 1, 0], ((0, 1, 2, 3),))
    ((0, 2), (1, 3))
    """
    found: list[tuple[int, ...]] = []
    for members in parts:
        by_color: dict[int, list[int]] = {}
        for member in members:
            by_color.setdefault(colors[member], []).append(member)
        found += map(tuple, by_color.values())
    return tuple(sorted(found))
