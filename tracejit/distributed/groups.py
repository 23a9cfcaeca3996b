"""Groups: subsets of the ranks that exchange arrays among themselves.

    rows = tj.distributed.split(tj.distributed.rank() // 4)       # groups of four consecutive ranks
    total = tj.distributed.all_reduce(x, group=rows)              # the sum over the four ranks of this group

A group is one subset of a partition of *all* ranks. All ranks make each call, each with the subset that
contains it. So all ranks launch the same exchanges in the same order, and the agreement before a step can
compare them: the attribute `groups` of a node stores the complete partition.
"""

from __future__ import annotations

from typing import Any

from tracejit.distributed.world import rank, size
from tracejit.errors import ArgumentError, locate
from tracejit.frontend.python.kinds import Vouched
from tracejit.frontend.recording.location import user_location

RankSubsets = tuple[tuple[int, ...], ...]


class Group(Vouched):
    """A subset of the ranks, created by `tj.distributed.split`. A traced step is valid for this object only.

    parts: all groups of the partition, each a tuple of ranks. members: the ranks of this group.

    >>> import tracejit as tj
    >>> group = tj.distributed.split(0)
    >>> len(group.members) == tj.distributed.size()
    True
    """

    __slots__ = ("members", "parts")

    def __init__(self, parts: RankSubsets, own_rank: int) -> None:
        self.parts = parts
        self.members = next(members for members in parts if own_rank in members)

    def __repr__(self) -> str:
        return f"Group{self.members}"

    @property
    def rank(self) -> int:
        """The index of this rank in the group.

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
    """The node attributes that describe a group of ranks; empty for None, which means all ranks.

    Raises ArgumentError if `group` is not a group; `name` is the function in the message.
    """
    if group is None:
        return {}
    if not isinstance(group, Group):
        message = f"{name}: group must be created by tj.distributed.split, got {type(group).__name__}"
        raise locate(ArgumentError(message), user_location())
    return {"groups": group.parts}


def size_of(group: Group | None) -> int:
    """The number of ranks in a group, or of all ranks for None."""
    return size() if group is None else group.size


def divided(colors: list[int], parts: RankSubsets) -> RankSubsets:
    """Split each group of a partition by the colors of its members.

    The result is sorted, so equal partitions compare equal.

    >>> divided([1, 0, 1, 0], ((0, 1, 2, 3),))
    ((0, 2), (1, 3))
    """
    result: list[tuple[int, ...]] = []
    for members in parts:
        by_color: dict[int, list[int]] = {}
        for member in members:
            by_color.setdefault(colors[member], []).append(member)
        result += map(tuple, by_color.values())
    return tuple(sorted(result))
