"""The records of numbers that a target is tuned by: how large things are, how work is cut, what it takes."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from typing import NamedTuple


class Caches(NamedTuple):
    """Sizes of memory, in bytes.

    line:     a cache line: scratch rows start on one.
    page:     as far as a processor prefetches by itself; kernels prefetch beyond.
    private:  of one processor. A kernel whose operands are larger prefetches.
    last:     of the last level: a larger array is in no cache.
    streamed: operands above which results bypass the caches. With less, a good part is still in the last
              cache when the next kernel, or the next call of this one, looks for it.
    scratch:  rows, the ring of a sweep or a panel of a product that lie in scratch memory. Every worker has
              that much for itself.
    """

    line: int
    page: int
    private: int
    last: int
    streamed: int
    scratch: int


class Units(NamedTuple):
    """Sizes of units of work, and of chunks of units.

    nanoseconds:  about how long a unit takes on one core: long against the cost of a task, short against a
                  whole kernel.
    shares:       chunks that a task should have: each thread has shares of its own.
    many, longer: up to `longer` times as many units as are worth it are taken at once where `many` chunks are
                  left. In a kernel over rows the last row of a chunk has no next one whose loops run
                  meanwhile, and what is streamed must arrive before a chunk ends.
    narrow:       columns that do not fill a vector: such reductions run along the reduced dimensions.
    columns:      most columns of a unit that reduces over rows: its accumulators stay in the first cache.
    wide:         the same, of all accumulators together, where no cache holds what is read: they stay in the
                  second cache, and memory is read in order.
    lines:        lines that such a unit reads side by side where operands exceed the `private` cache, so that
                  the processor finds enough to fetch: 2 to 3 times as fast; the code is twice as long.
    run:          neighbouring elements that are worth streaming.
    side:         of a transposed tile: it and the lines it comes from stay in the first cache.
    tiles:        most operands that are transposed tile by tile.
    piece:        elements that one piece of a split reduction has at least.
    enough:       units with which a reduction is not split.
    part:         columns that count as one unit when a split is considered.
    row_pieces:   most pieces of a reduction over the rows of an array that is in no cache: a unit then goes
                  through complete rows, which memory delivers 10 to 20 % faster than narrow tiles of them.
    """

    nanoseconds: int
    shares: int
    many: int
    longer: int
    narrow: int
    columns: int
    wide: int
    lines: int
    run: int
    side: int
    tiles: int
    piece: int
    enough: int
    part: int
    row_pieces: int


class WorkCosts(NamedTuple):
    """The costs of work.

    For units, in nanoseconds an element: `access` to memory in order, `gathered`, an `expensive` function,
    another `operator`. For the order of tasks, in units of 0.1 ns (see `engine.Task.cost`): `transcendental`,
    of one element; `starting`, of any task on top of its work. `flops`: floating point operations of a
    product or convolution in such a unit.
    """

    access: float
    gathered: float
    expensive: float
    operator: float
    transcendental: int
    flops: int
    starting: int


class Tuning(NamedTuple):
    """The properties of devices of one kind by which kernels are planned.

    kind:   as in `Device.kind`.
    sweeps: whether kernels can go through rows in order (`tracejit.loopnest.sweep`).
    panels: whether a product's rows stay in a cache for the kernel that follows, as its epilogue.
    several_axes: whether the kernel of `fft` transforms along several axes.
    passes: those, by name, that are worth while on such devices: some of `attend`, `recompute`, `roll`,
            `weight_sums`, `winograd`.
    """

    kind: str
    caches: Caches
    units: Units
    costs: WorkCosts
    sweeps: bool
    panels: bool
    several_axes: bool
    passes: frozenset[str]
