"""The rows of a sweep that are stored elsewhere first, because later rows read the ones in their place.

A sweep (see `tracejit.loopnest.sweep`) goes through bands of rows. The last `up` rows of a band and the first
`down` rows of the next one are still read from the other side of the cut between them: they go to the
*edges*, ``up + down`` rows for each cut.

    edge_row(row, first, stop, band, bands, up, down)     # its row of the edges; -1: its own place
    move(target, first, source, start, count)             # target[first + i] = source[start + i]
"""

from __future__ import annotations

from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.compiler.target import subroutine


@subroutine
def edge_row(row, first, stop, band, bands, up, down):
    """The row of the edges that takes `row` of the rows [first, stop) of a band; -1 if none does."""
    if band > 0 and row < first + down:
        return band * (up + down) - down + row - first
    if band < bands - 1 and row >= stop - up:
        return band * (up + down) + up + row - stop
    return -1


@subroutine
def move(target, first, source, start, count):
    """Copy a run of elements; the two runs do not overlap."""
    for i in independent(0, count):
        target[first + i] = source[start + i]
