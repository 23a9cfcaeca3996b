"""Exchanges of programs that machine code begins and ends (see `kernels.ranks.tasks`).

plan = window.plan(sizes, dtype, "sum", members, priority, first=2, tag=4)
Task(..., function=plan.address)    # of the lane of communication
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracejit.distributed.near import Near
from tracejit.engine.native import Record
from tracejit.kernels.ranks.layout import (
    PLAN_BYTES,
    PLAN_COUNT,
    PLAN_FIRST,
    PLAN_FREE,
    PLAN_SIZES,
    PLAN_TAG,
)


class ExchangePlan:
    """The exchange of a task; one of `nears` is under way for each of its launches, if there are enough.

    sizes:      elements of each array; several are put together in memory of the exchange.
    first, tag: slots of the argument block: of the address of the first array, and of the exchange's number.
    """

    def __init__(
        self,
        nears: Sequence[Near],
        sizes: Sequence[int],
        dtype: np.dtype,
        kind: int,
        priority: int,
        first: int,
        tag: int,
        *,
        whole: bool,
        way: int,
    ) -> None:
        self.nears = {near.address: near for near in nears}
        self._record, self._sizes = Record(PLAN_BYTES), Record(8 * len(sizes))
        self.address = self._record.address
        self._sizes.words[:] = np.array([size * dtype.itemsize for size in sizes], np.int64).data
        for place, word in (
            (PLAN_TAG, tag),
            (PLAN_FIRST, first),
            (PLAN_COUNT, len(sizes)),
            (PLAN_SIZES, self._sizes.address),
        ):
            self._record.words[place >> 3] = word
        for near in nears:
            near.prepare(
                self.address,
                sum(sizes),
                dtype,
                kind,
                priority,
                whole=whole,
                way=way,
                joined=len(sizes) > 1,
            )
            self.release(near)

    def release(self, near: Near) -> None:
        """Note that an exchange is not under way any more."""
        near.note_following(self._record.words[PLAN_FREE >> 3])
        self._record.words[PLAN_FREE >> 3] = near.address
