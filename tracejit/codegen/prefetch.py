"""Software prefetching in kernels: insertion of PREFETCH steps.

`tracejit.kernels.streams.prefetch` implements the prefetch; docs/lab/prefetching.md measures the gain. What
is prefetched depends on the kind of kernel:

- ROWS with several loops over a row: the reads of the next row, and the lines that the current row will be
  written to (if the kernel reads only one array, on some machines only: "written").
- COLUMNS: lines some distance ahead.
- Sweep: the first of the next row's reads, the only one that is not cached.
- MAP: the reads one page ahead, if the kernel computes enough per element; otherwise it is bound by memory
  bandwidth anyway.

All kernels except sweeps prefetch only arrays that do not fit in a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from tracejit.codegen.spec import Access, Instruction, Section

MovementTest = Callable[[Access], bool]
"""Tells whether an access moves along the innermost dimension and touches new memory in each iteration of the
loop around the innermost one.
"""


def rows_ahead(sections: Sequence[Section], moves: MovementTest) -> list[Section]:
    """Insert the prefetches of a kernel with several loops per row. Longer loops receive more of the
    prefetches; the last loop receives none.
    """
    loops = [n for n, section in enumerate(sections) if section.level == "full"]
    read = {access for n in loops for access, _ in _accesses(sections[n], "load") if moves(access)}
    prefetched: dict[Access, tuple[Instruction, int]] = {}
    for n in loops:
        for access, dtype in _accesses(sections[n], "store"):
            prefetched[access] = _prefetch(access, dtype, 0, "rows" if len(read) > 1 else "written"), n
    for n in loops:
        for access, dtype in _accesses(sections[n], "load"):
            prefetched[access] = _prefetch(access, dtype, 1), loops[-1]
    prefetches: dict[int, list[Instruction]] = {n: [] for n in loops[:-1]}
    for access, (step, before) in prefetched.items():
        spare = {n: len(sections[n].steps) / (len(prefetches[n]) + 1) for n in prefetches if n < before}
        if spare and moves(access):
            prefetches[max(spare, key=spare.__getitem__)].append(step)
    return [_with(prefetches.get(n, ()), section) for n, section in enumerate(sections)]


def lines_ahead(sections: Sequence[Section], moves: MovementTest, lines: int) -> list[Section]:
    """Insert the prefetches of a COLUMNS kernel, which reads up to `lines` lines side by side."""
    return [
        _with([_prefetch(a, dtype, lines) for a, dtype in _accesses(section, "load") if moves(a)], section)
        if section.level == "full"
        else section
        for section in sections
    ]


def sweep_ahead(section: Section, moves: MovementTest, pointers: Sequence[tuple[int, int]]) -> Section:
    """Insert the prefetches of a sweep. `pointers`: the operand and offset of each pointer."""
    loads = [(access, dtype) for access, dtype in _accesses(section, "load") if moves(access)]
    first = {}
    for access, dtype in sorted(loads, key=lambda load: pointers[load[0].pointer]):
        operand, _ = pointers[access.pointer]
        first[operand] = _prefetch(access, dtype, 1)
    return _with(first.values(), section)


def map_ahead(section: Section, moves: MovementTest, page: int) -> Section:
    """Insert the prefetches of a MAP kernel. `page`: the number of bytes beyond which a hardware
    prefetcher does not read ahead.
    """
    accesses = dict([*_accesses(section, "load"), *_accesses(section, "store")])
    steps = [
        _prefetch(access, dtype, page // np.dtype(dtype).itemsize, "elements")
        for access, dtype in accesses.items()
        if moves(access)
    ]
    return _with(steps, section)


def _prefetch(access: Access, dtype: str, distance: int, unit: str = "rows") -> Instruction:
    return Instruction("prefetch", dtype, access=access, function=unit, position=distance)


def _accesses(section: Section, kind: str) -> Iterator[tuple[Access, str]]:
    """Yield the accesses of the steps of one kind, with their dtypes."""
    for step in section.steps:
        if step.kind == kind and step.access is not None:
            yield step.access, step.dtype


def _with(prefetches: Iterable[Instruction], section: Section) -> Section:
    """Return `section` with `prefetches` before its steps."""
    return section._replace(steps=(*prefetches, *section.steps))
