"""Rows of an in-place sweep that are buffered, because other bands still read the rows that they replace.

A sweep (see `tracejit.loopnest.sweep`) processes bands of rows. The last `up` rows of a band and the first
`down` rows of the next band are read from the other side of the cut between the two bands, at any time. Their
new values are stored in the *edges*, a second output with ``up + down`` rows per cut.

    edge_row(row, first, stop, band, bands, up, down)     # index into the edges; -1: stored in place
    move(target, first, source, start, count)             # target[first + i] = source[start + i]
"""

from __future__ import annotations

from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.compiler.target import subroutine


@subroutine
def edge_row(row, first, stop, band, bands, up, down):
    """Return the row of the edges that buffers `row` of a band with the rows [first, stop), or -1 if `row` is
    stored in place.
    """
    if band > 0 and row < first + down:
        return band * (up + down) - down + row - first
    if band < bands - 1 and row >= stop - up:
        return band * (up + down) + up + row - stop
    return -1


@subroutine
def move(target, first, source, start, count):
    """Copy `count` contiguous elements; source and target do not overlap."""
    for i in independent(0, count):
        target[first + i] = source[start + i]
