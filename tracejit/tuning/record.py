"""The tuning parameters of a target: sizes of memory, sizes of units of work, and costs."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from typing import NamedTuple


class Caches(NamedTuple):
    """Sizes of memory, in bytes.

    line:     a cache line; scratch rows start on one.
    page:     the range within which a processor prefetches by itself; kernels prefetch beyond it.
    private:  the cache of one processor. A kernel whose operands are larger prefetches.
    last:     the last-level cache; a larger array does not fit in any cache.
    streamed: the size of the operands above which results bypass the caches. Below it, much of the result is
              still in the last-level cache when the next kernel, or the next call of this one, reads it.
    scratch:  the limit for rows, the ring of a sweep, or a panel of a product in scratch memory. Every worker
              has that much for itself.
    """

    line: int
    page: int
    private: int
    last: int
    streamed: int
    scratch: int


class Units(NamedTuple):
    """Sizes of units of work, and of chunks of units.

    nanoseconds:         the approximate time of a unit on one core: long compared with the overhead of a
                         task, short compared with a complete kernel.
    min_chunks:          the number of chunks that a task should have at least: threads process separate
                         chunks.
    long_chunk_factor,
    long_chunk_count:    chunks become up to `long_chunk_factor` times as large as is worth a call, as long as
                         `long_chunk_count` chunks remain. In a kernel over rows, the last row of a chunk has
                         no successor whose loops overlap with it, and streamed data must arrive before a
                         chunk ends.
    narrow_columns:      the number of columns below which they do not fill a vector: such reductions run
                         along the reduced dimensions.
    columns:             the maximal number of columns of a unit that reduces over rows: its accumulators
                         stay in the first-level cache.
    uncached_columns:    the same limit, for all accumulators together, if the operands do not fit in any
                         cache: the accumulators stay in the second-level cache, and memory is read in order.
    lines:               the number of lines that such a unit reads side by side if operands exceed the
                         `private` cache, so that enough loads are in flight: 2 to 3 times as fast, with twice
                         as much code.
    streamed_run:        the minimal number of adjacent elements for which streaming is profitable.
    tile_side:           the side of a transposed tile: the tile and the lines it is read from stay in the
                         first-level cache.
    transposed_operands: the maximal number of operands that are transposed tile by tile.
    min_piece:           the minimal number of elements in one piece of a split reduction.
    enough_units:        the number of units from which on a reduction is not split.
    unit_columns:        the number of columns that count as one unit when a split is considered.
    row_pieces:          the maximal number of pieces of a reduction over the rows of an array that does not
                         fit in any cache: a unit then reads complete rows, which memory delivers 10 to 20 %
                         faster than narrow tiles of them.
    """

    nanoseconds: int
    min_chunks: int
    long_chunk_count: int
    long_chunk_factor: int
    narrow_columns: int
    columns: int
    uncached_columns: int
    lines: int
    streamed_run: int
    tile_side: int
    transposed_operands: int
    min_piece: int
    enough_units: int
    unit_columns: int
    row_pieces: int


class WorkCosts(NamedTuple):
    """The costs of work.

    For units, in nanoseconds per element: `access` to memory in order, a `gathered` element, an `expensive`
    function, any other `operator`. For the order of tasks, in units of 0.1 ns (see `engine.Task.cost`):
    `transcendental`, per element; `starting`, the overhead of any task. `flops`: the number of floating-point
    operations of a product or convolution per such unit.
    """

    access: float
    gathered: float
    expensive: float
    operator: float
    transcendental: int
    flops: int
    starting: int


class Tuning(NamedTuple):
    """The properties of one kind of device that determine how kernels are planned.

    kind:   the same as `Device.kind`.
    sweeps: whether kernels can process rows in order (`tracejit.loopnest.sweep`).
    panels: whether a product's rows stay in a cache for the epilogue that follows.
    several_axes: whether the kernel of `fft` transforms along several axes.
    passes: the names of the optional passes that are profitable on such devices: some of `attend`,
            `recompute`, `roll`, `weight_sums`, `winograd`.
    """

    kind: str
    caches: Caches
    units: Units
    costs: WorkCosts
    sweeps: bool
    panels: bool
    several_axes: bool
    passes: frozenset[str]
