"""Software prefetching in kernels: PREFETCH steps.

`tracejit.kernels.streams.prefetch` says how, docs/lab/prefetching.md what it gains. Each kind of kernel
prefetches something else:

- ROWS, several loops over a row: what the next row reads, and the lines that this one will be written to (if
  that is all, only on some machines: "written").
- COLUMNS: lines that come some lines later.
- a sweep: the first of the next row's reads, which is the one that no cache holds.
- MAP: its reads one page later, if it computes enough per element; else it is bound by memory bandwidth
  anyway.

All but sweeps prefetch only arrays that no cache holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from tracejit.codegen.spec import Access, Instruction, Section

Moves = Callable[[Access], bool]
"""Whether an access moves along the lane, and to new memory in each round of the loop around it."""


def rows_ahead(sections: Sequence[Section], moves: Moves) -> list[Section]:
    """Loops over one row after the other: the longer ones have more of the prefetches, the last one none."""
    loops = [n for n, section in enumerate(sections) if section.level == "full"]
    read = {access for n in loops for access, _ in _accesses(sections[n], "load") if moves(access)}
    wanted: dict[Access, tuple[Instruction, int]] = {}
    for n in loops:
        for access, dtype in _accesses(sections[n], "store"):
            wanted[access] = _prefetch(access, dtype, 0, "rows" if len(read) > 1 else "written"), n
    for n in loops:
        for access, dtype in _accesses(sections[n], "load"):
            wanted[access] = _prefetch(access, dtype, 1), loops[-1]
    prefetches: dict[int, list[Instruction]] = {n: [] for n in loops[:-1]}
    for access, (step, before) in wanted.items():
        room = {n: len(sections[n].steps) / (len(prefetches[n]) + 1) for n in prefetches if n < before}
        if room and moves(access):
            prefetches[max(room, key=room.__getitem__)].append(step)
    return [_with(prefetches.get(n, ()), section) for n, section in enumerate(sections)]


def lines_ahead(sections: Sequence[Section], moves: Moves, lines: int) -> list[Section]:
    """Loops over one line after the other, of which up to `lines` are read side by side."""
    return [
        _with([_prefetch(a, dtype, lines) for a, dtype in _accesses(section, "load") if moves(a)], section)
        if section.level == "full"
        else section
        for section in sections
    ]


def sweep_ahead(section: Section, moves: Moves, places: Sequence[tuple[int, int]]) -> Section:
    """The loop of a sweep. `places`: operand and offset of each pointer."""
    loads = [(access, dtype) for access, dtype in _accesses(section, "load") if moves(access)]
    first = {}
    for access, dtype in sorted(loads, key=lambda load: places[load[0].pointer]):
        operand, _ = places[access.pointer]
        first[operand] = _prefetch(access, dtype, 1)
    return _with(first.values(), section)


def map_ahead(section: Section, moves: Moves, page: int) -> Section:
    """The loop of a MAP kernel. `page`: the bytes that a hardware prefetcher does not go beyond."""
    both = dict([*_accesses(section, "load"), *_accesses(section, "store")])
    steps = [
        _prefetch(access, dtype, page // np.dtype(dtype).itemsize, "elements")
        for access, dtype in both.items()
        if moves(access)
    ]
    return _with(steps, section)


def _prefetch(access: Access, dtype: str, distance: int, unit: str = "rows") -> Instruction:
    return Instruction("prefetch", dtype, access=access, function=unit, position=distance)


def _accesses(section: Section, kind: str) -> Iterator[tuple[Access, str]]:
    """The accesses of the steps of a kind, with their dtypes."""
    for step in section.steps:
        if step.kind == kind and step.access is not None:
            yield step.access, step.dtype


def _with(prefetches: Iterable[Instruction], section: Section) -> Section:
    """The steps of `section` after `prefetches`."""
    return section._replace(steps=(*prefetches, *section.steps))
