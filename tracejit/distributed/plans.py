"""Plans: exchanges of programs that native code begins and ends without Python (see `kernels.ranks.tasks`).

plan = window.plan(sizes, dtype, "sum", members, priority, first=2, tag=4)
Task(..., function=plan.address)    # a task of the communication lane
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracejit.distributed.native_exchange import NativeExchange
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
    """The exchange of a task. Each launch in flight uses one of the records `exchanges`, while one is free.

    sizes:      number of elements of each array; several arrays are concatenated in memory of the exchange.
    first, tag: argument block slots of the address of the first array and of the exchange's sequence number.
    """

    def __init__(
        self,
        exchanges: Sequence[NativeExchange],
        sizes: Sequence[int],
        dtype: np.dtype,
        kind: int,
        priority: int,
        first: int,
        tag: int,
        *,
        replicated: bool,
        mode: int,
    ) -> None:
        self.exchanges = {exchange.address: exchange for exchange in exchanges}
        self._record, self._sizes = Record(PLAN_BYTES), Record(8 * len(sizes))
        self.address = self._record.address
        self._sizes.words[:] = np.array([size * dtype.itemsize for size in sizes], np.int64).data
        for offset, value in (
            (PLAN_TAG, tag),
            (PLAN_FIRST, first),
            (PLAN_COUNT, len(sizes)),
            (PLAN_SIZES, self._sizes.address),
        ):
            self._record.words[offset >> 3] = value
        for exchange in exchanges:
            exchange.prepare(
                self.address,
                sum(sizes),
                dtype,
                kind,
                priority,
                replicated=replicated,
                mode=mode,
                joined=len(sizes) > 1,
            )
            self.release(exchange)

    def release(self, exchange: NativeExchange) -> None:
        """Return a record that is no longer in flight to the list of free ones."""
        exchange.set_next_free(self._record.words[PLAN_FREE >> 3])
        self._record.words[PLAN_FREE >> 3] = exchange.address
