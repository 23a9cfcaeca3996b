"""The schedule of a fused kernel's terms: consecutive loops over the reduced dimensions.

The result of a reduction exists only after a loop over all its operands, so the terms of a kernel are divided
into *phases*: phase p can use the reductions that ended before it. A phase has two sections, in this order:
KEPT (executed once for each kept index) and FULL (the loop over the reduced index, which ends with the
reductions that it feeds).

    softmax     KEPT 0 -    FULL 0  x -> max        KEPT 1 -    FULL 1  exp(x - max) -> kept in scratch, sum
                KEPT 2 -    FULL 2  scratch / sum -> output

A full value that a later phase needs again is reloaded from an output that contains it, or rematerialised if
that is cheap, or else kept in scratch memory. The choice of the innermost loop is the kernel's `Orientation`.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import enum
import math
from collections.abc import Iterator
from typing import NamedTuple

from tracejit.ir.graph import Graph, Value
from tracejit.ir.view import View
from tracejit.loopnest.program import (
    FULL,
    HOST,
    INDEX,
    KEPT,
    LOAD,
    REDUCE,
    SCAN,
    Level,
    LoopProgram,
    OutputStore,
    Term,
    Unfusable,
)
from tracejit.loopnest.regions import disjoint
from tracejit.loopnest.sweep import Sweep, find_sweep

CHEAP = 8
"""The maximal number of operators for which recomputing a value is cheaper than storing and loading it."""


class Orientation(enum.Enum):
    """The choice of the innermost loop."""

    MAP = "map"  # no reductions: the last kept dimension
    ROWS = "rows"  # the last reduced dimension
    COLUMNS = "columns"  # the last kept dimension, inside the loops over the reduced ones


MAP, ROWS, COLUMNS = Orientation


class LoopSection:
    """The work at one point of the schedule. All lists are in order of execution; stores come last."""

    def __init__(self, level: Level):
        self.level = level
        self.compute: list[Term] = []
        self.recall: dict[Term, int] = {}  # computed earlier: reloaded from a scratch row ...
        self.reload: dict[Term, OutputStore] = {}  # ... or from an output
        self.keep: dict[Term, int] = {}
        self.folds: list[Term] = []
        self.stores: list[OutputStore] = []

    def is_empty(self) -> bool:
        return not (self.compute or self.recall or self.reload or self.folds or self.stores)


class LoopSchedule(NamedTuple):
    """The orientation, the terms computed from numbers only, the sections in order, and the terms that
    have a scratch row.
    """

    orientation: Orientation
    prologue: tuple[Term, ...]
    sections: tuple[LoopSection, ...]
    kept: tuple[Term, ...]


def orient(program: LoopProgram) -> Orientation:
    """Choose the orientation: along the reduced dimensions, unless most reads are contiguous along the
    kept ones.
    """
    domain, narrow = program.domain, program.tuning.units.narrow_columns
    if not any(t.kind in (REDUCE, SCAN) for t in program.terms):
        return MAP
    if not domain.kept or domain.kept[-1] < narrow or program.matmul is not None or not domain.reduced:
        return ROWS
    innermost = len(domain.kept) - 1
    reads = [t for t in program.terms if t.view is not None and t.value is not None and t.level is FULL]
    votes = sum(
        _bytes_read(t.dtype.itemsize, t.view)
        * ((abs(t.view.strides[innermost]) == 1) - (abs(t.view.strides[-1]) == 1))
        for t in reads
        if t.view is not None
    )
    return COLUMNS if votes > 0 else ROWS


def _bytes_read(itemsize: int, view: View) -> int:
    """Return the number of bytes that an access reads. Dimensions of stride 0 do not count, so that a
    factor for each row weighs little beside the rows.
    """
    return itemsize * math.prod(n for n, s in zip(view.shape, view.strides, strict=True) if s)


def schedule(program: LoopProgram) -> LoopSchedule:
    """Assign every needed term to sections. Raise `Unfusable` if a value cannot be carried to a later
    phase.
    """
    scheduler = _Scheduler(program, orient(program))
    scheduler.run()
    sections = tuple(s for _, s in sorted(scheduler.sections.items()) if not s.is_empty())
    prologue = tuple(t for t in program.terms if t.level is HOST and t in scheduler.numbers)
    return LoopSchedule(scheduler.orientation, prologue, sections, tuple(scheduler.rows))


class _Scheduler:
    """The state of one traversal of the terms."""

    def __init__(self, program: LoopProgram, orientation: Orientation):
        self.program, self.orientation = program, orientation
        self.sections: dict[tuple[int, Level], LoopSection] = {}
        self.rows: dict[Term, int] = {}  # scratch rows
        self.numbers: set[Term] = set()
        self.available: set[tuple[Term, tuple[int, Level]]] = set()

    def run(self) -> None:
        self.phases: dict[Term, int] = {}
        for term in self.program.terms:
            phase = 0
            for argument in term.args:
                phase = max(phase, self.phases[argument])
            self.phases[term] = phase + 1 if term.kind is REDUCE else phase
        self.outputs: dict[Term, tuple[tuple[int, Level], OutputStore]] = {}
        for store in self.program.stores:
            self.outputs.setdefault(store.term, ((self.phases[store.term], store.level), store))
        for store in self.program.stores:
            where = (self.phases[store.term], store.level)
            self.provide(store.term, where)
            self.section(where).stores.append(store)

    def section(self, where: tuple[int, Level]) -> LoopSection:
        section = self.sections.get(where)
        if section is None:
            section = self.sections[where] = LoopSection(where[1])
        return section

    def provide(self, term: Term, where: tuple[int, Level]) -> None:
        """Make the value of `term` available in the section `where`."""
        if term.level is HOST:
            if term not in self.numbers:
                self.numbers.update(_closure(term))
            return
        home = (self.phases[term], term.level)
        if self.orientation is not COLUMNS and term.level is KEPT:
            where = home  # a variable that lives until the end of the row
        if (term, where) in self.available:
            return
        self.available.add((term, where))
        if where == home:
            self.compute(term, where)
        else:
            self.carry(term, home, where)

    def compute(self, term: Term, where: tuple[int, Level]) -> None:
        operand_section = where
        if term.kind is REDUCE:
            operand_section = (self.phases[term] - 1, FULL)
        for argument in term.args:
            self.provide(argument, operand_section)
        if term.kind is REDUCE:
            self.section(operand_section).folds.append(term)
        self.section(where).compute.append(term)

    def carry(self, term: Term, home: tuple[int, Level], where: tuple[int, Level]) -> None:
        """Make a value of the section `home` available in the later section `where`."""
        section = self.section(where)
        stored, store = self.outputs.get(term, (None, None))
        if store is not None and stored == home and stored < where:
            section.reload[term] = store
        elif self.is_cheap(term, where) or not self.fits_scratch_row(term):
            if term.kind is SCAN:
                raise Unfusable("a running sum is needed again after its loop")
            self.compute(term, where)
        else:
            self.provide(term, home)
            row = self.rows.setdefault(term, len(self.rows))
            self.section(home).keep[term] = row
            section.recall[term] = row

    def fits_scratch_row(self, term: Term) -> bool:
        """Return whether a scratch row, of the reduced dimensions or of one tile of columns, can contain
        the term. Terms that would need longer rows are recomputed.
        """
        if self.orientation is COLUMNS:
            return term.level is KEPT
        size = math.prod(self.program.domain.reduced) * (len(self.rows) + 1)
        return term.kind is SCAN or size * 8 <= self.program.tuning.caches.scratch

    def is_cheap(self, term: Term, where: tuple[int, Level]) -> bool:
        """Return whether recomputing `term` from values available in `where` costs less than keeping it."""
        recomputed = [
            t
            for t in _closure(term)
            if t is term or (t.level is term.level and (t, where) not in self.available)
        ]
        if any(t.expensive or t.kind is REDUCE for t in recomputed):
            return False
        return sum(t.kind not in (LOAD, INDEX) for t in recomputed) <= CHEAP


def _closure(term: Term) -> Iterator[Term]:
    """Yield `term` and all terms it is computed from, each once. Operands of reductions are not followed,
    since another loop computes them.
    """
    seen: set[Term] = set()
    pending = [term]
    while pending:
        t = pending.pop()
        if t not in seen:
            seen.add(t)
            yield t
            if t.kind is not REDUCE:
                pending.extend(t.args)


def in_place(program: LoopProgram, loop_schedule: LoopSchedule) -> list[tuple[int, Value]]:
    """Return the pairs (output, value read) that may share memory.

    A pair may share memory if every read of the value is at the index that is written and no later section
    reads the value again; within one section stores come last.
    """
    reads: dict[Value, list[tuple[int, Term]]] = {}
    for position, section in enumerate(loop_schedule.sections):
        for term in section.compute:
            if term.value is not None and term.view is not None:
                reads.setdefault(term.value, []).append((position, term))
    pairs = []
    for position, section in enumerate(loop_schedule.sections):
        for store in section.stores:
            for value, uses in reads.items():
                if all(_is_same_index(store, t) and read_position <= position for read_position, t in uses):
                    pairs.append((store.output, value))
    return sorted(pairs, key=lambda pair: pair[0])


def _is_same_index(store: OutputStore, term: Term) -> bool:
    return term.kind is LOAD and term.dtype == store.term.dtype and term.view == store.view


def check_updates(body: Graph, program: LoopProgram, loop_schedule: LoopSchedule) -> Sweep | None:
    """Raise `Unfusable` if the kernel might read an element that an update has already overwritten, or
    write it twice. Return a sweep if the kernel can avoid the first as a sweep, else None.
    """
    bases: dict[int, int] = {}
    shifted: list[Term] = []
    for position, section in enumerate(loop_schedule.sections):
        for store in section.stores:
            if store.base is None:
                continue
            if bases.setdefault(store.base, store.output) != store.output:
                raise Unfusable("two updates of one array")
            base = body.inputs[store.base]
            for read_position, read_section in enumerate(loop_schedule.sections):
                for term in read_section.compute:
                    if term.value is base and not _reads_before(term, read_position, store, position, base):
                        shifted.append(term)
    if not shifted:
        return None
    is_map = loop_schedule.orientation is MAP and program.matmul is None
    sweep = find_sweep(program, shifted) if is_map else None
    if sweep is None:
        raise Unfusable("the kernel reads other elements of the array it updates")
    return sweep


def _reads_before(term: Term, read_position: int, store: OutputStore, position: int, base: Value) -> bool:
    """Return whether no read of `term` observes an element that `store` writes into `base`."""
    if _is_same_index(store, term) and read_position <= position:
        return True
    assert term.view is not None
    return term.kind is LOAD and disjoint(term.view, store.view, base.type.shape)
