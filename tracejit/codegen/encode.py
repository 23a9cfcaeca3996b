"""Encoding of scheduled terms as a `KernelSpec` and the values of its slots.

This module decides nothing: `Traffic` determines what a kernel streams, transposes and prefetches. Everything
is numbered in order of first use, which makes the spec canonical: two kernels with the same structure have
equal specs, whatever their shapes, names and literals. Run-time quantities of a term (an extent, a stride, an
offset) are stored in `Encoder.slots` under their names in `KernelSpec.slot_names`.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracejit.codegen import prefetch
from tracejit.codegen.spec import (
    BLOCK,
    Access,
    AddressSlot,
    BlockSlot,
    Instruction,
    IntegerSlot,
    KernelSpec,
    NumberSlot,
    Section,
    StrideClass,
)
from tracejit.codegen.text import is_compensated
from tracejit.ir.graph import Graph, Value
from tracejit.ir.types import name_of
from tracejit.ir.view import View
from tracejit.kernels.split import ceil_div
from tracejit.loopnest import schedule as phases
from tracejit.loopnest.program import Domain, Level, LoopProgram, OutputStore, Term, TermKind, piece_length
from tracejit.loopnest.schedule import LoopSchedule, Orientation
from tracejit.loopnest.sweep import Sweep, updating
from tracejit.loopnest.traffic import Traffic, innermost_dimension

PANEL = -1
"""The operand number that stands for the panel of a product in scratch memory."""

Fields = dict[str, Any]
"""Keyword arguments of an `Instruction`."""


class Stride(NamedTuple):
    """The key of a layout: its level, and its strides over the dimensions of that level."""

    level: Level
    strides: tuple[int, ...]


class Encoder:
    """Numbers the values, pointers and layouts of one kernel and collects its slots. An encoder is used
    once.
    """

    def __init__(
        self,
        body: Graph,
        program: LoopProgram,
        loop_schedule: LoopSchedule,
        operands: dict[Value, int],
        outputs: Sequence[int],
        columns: int,
        sweep: Sweep | None,
        traffic: Traffic,
    ):
        """`operands`, `outputs`: buffer numbers, or PANEL. `columns`: the width of a tile of a COLUMNS
        kernel. `sweep`: if it has edges, they are the last output.
        """
        self.body, self.program, self.schedule = body, program, loop_schedule
        self.domain: Domain = program.domain
        self.operands, self.outputs, self.columns, self.sweep = operands, outputs, columns, sweep
        self.traffic, self.innermost = traffic, innermost_dimension(program, loop_schedule)
        self.slots: dict[str, BlockSlot] = {f"n{d}": IntegerSlot(n) for d, n in enumerate(self.domain.shape)}
        self.pointers: dict[tuple[int, int], int] = {}
        self.pointer_types: list[str] = []
        self.layouts: dict[Stride, int] = {}
        self.layout_records: list[StrideClass] = []
        self.counts = {"offset": 0, "bound": 0, "jump": 0, "c": 0}
        self.numbers: list[str] = []
        self.accumulators: list[str] = []
        self.tiles: dict[Access, int] = {}
        self.stages: list[str] = []
        self.values: dict[tuple[Term, str], int] = {}
        self.folds: dict[Term, int] = {}
        self.scratch = 0

    def encode(self) -> KernelSpec:
        """Return the structure of the kernel. Afterwards `slots` and `scratch` are complete."""
        prologue = tuple(self.term(t, "") for t in self.schedule.prologue)
        sections = self.prefetching([self.section(n, s) for n, s in enumerate(self.schedule.sections)])
        rows = tuple(name_of(t.dtype) for t in self.schedule.kept)
        self.lay_out_scratch(rows)
        if self.domain.pieces:
            self.slots["pieces"] = IntegerSlot(self.domain.pieces)
            self.slots["length"] = IntegerSlot(piece_length(self.domain))
        return KernelSpec(
            self.schedule.orientation.value,
            len(self.domain.kept),
            len(self.domain.reduced),
            bool(self.domain.pieces),
            tuple(self.pointer_types),
            tuple(self.layout_records),
            tuple(self.numbers),
            self.counts["offset"],
            self.counts["bound"],
            self.counts["jump"],
            rows,
            tuple(self.tiles),
            tuple(self.accumulators),
            prologue,
            tuple(sections),
            self.lay_out_panel(),
            tuple(self.stages),
            self.traffic.lines,
            self.sweep is not None,
            self.sweep is not None and self.sweep.along,
        )

    @property
    def side(self) -> int:
        """The side of the transposed tiles, or 0 if there are none."""
        return self.program.tuning.units.tile_side if self.tiles else 0

    def lay_out_scratch(self, rows: Sequence[str]) -> None:
        """Assign offsets in scratch memory to the rows, transposed tiles, stages and ring, and to the
        accumulators of a COLUMNS kernel.
        """
        length = math.prod(self.domain.reduced)
        areas = [(f"row{n}_at", length, dtype) for n, dtype in enumerate(rows)]
        areas += [(f"tile{n}_at", self.side**2, self.pointer_types[a.pointer]) for a, n in self.tiles.items()]
        areas += [(f"stage{n}_at", BLOCK, dtype) for n, dtype in enumerate(self.stages)]
        if self.sweep is not None:
            size = self.sweep.ring * (self.sweep.run or math.prod(self.domain.kept[1:]))
            areas.append(("ring_at", size, name_of(updating(self.program).term.dtype)))
            self.slots["edges_at"] = AddressSlot(self.outputs[-1], 0)  # arbitrary if there are no edges
        if self.schedule.orientation is Orientation.COLUMNS:
            areas = [(name, self.columns, dtype) for name, _, dtype in areas]
            areas += [(f"t{n}_at", self.columns, dtype) for n, dtype in enumerate(self.accumulators)]
        line = self.program.tuning.caches.line
        for name, length, dtype in areas:
            self.slots[name] = IntegerSlot(self.scratch)
            size = length * np.dtype(dtype).itemsize
            self.scratch += ceil_div(size, line) * line

    def lay_out_panel(self) -> int:
        """Return the pointer to the panel of a product, which is stored after all other scratch areas, or
        -1 if there is none.
        """
        panel = self.pointers.get((PANEL, 0), -1)
        if panel >= 0:
            assert self.program.matmul is not None
            product = self.program.matmul.output.type
            self.slots["panel_row"] = IntegerSlot(product.shape[-1] * product.dtype.itemsize)
            self.slots[f"x{panel}"] = IntegerSlot(self.scratch)
        return panel

    # -------------------------------------------------------------------------------------------- numbering

    def new_slot(self, kind: str, slot: BlockSlot) -> int:
        """Allocate a slot of the given kind and return its position."""
        position = self.counts[kind]
        self.counts[kind] += 1
        self.slots[f"{kind}{position}"] = slot
        return position

    def result(self, term: Term, where: str) -> int:
        """Return the number of the variable for `term`. A FULL term has one variable in each section."""
        return self.values.setdefault((term, where), len(self.values))

    def layout(self, view: View, level: Level) -> int:
        """Return the number of the layout with the strides of `view`."""
        kept = len(self.domain.kept)
        strides = view.strides if level is Level.FULL else view.strides[:kept]
        key = Stride(level, strides)
        if key in self.layouts:
            return self.layouts[key]
        number = self.layouts[key] = len(self.layouts)
        stride_name = "zero"
        if self.innermost < len(strides):
            stride, extent = strides[self.innermost], self.domain.shape[self.innermost]
            stride_name = "one" if stride == 1 or extent == 1 else "zero" if stride == 0 else "step"
        self.layout_records.append(StrideClass(_LEVELS[level], stride_name))
        for d, stride in enumerate(strides):
            if d != self.innermost or stride_name == "step":
                self.slots[f"s{number}_{d}"] = IntegerSlot(stride)
        return number

    def access(self, operand: int, view: View, level: Level, dtype: np.dtype) -> Access:
        """Return an access to a buffer. There is one pointer for each buffer and offset."""
        key = (operand, view.offset * dtype.itemsize)
        if key not in self.pointers:
            self.slots[f"x{len(self.pointers)}"] = AddressSlot(*key)
            self.pointers[key] = len(self.pointers)
            self.pointer_types.append(name_of(dtype))
        return Access(self.pointers[key], self.layout(view, level))

    # -------------------------------------------------------------------------------------------- steps

    def section(self, number: int, section: phases.LoopSection) -> Section:
        """Encode all steps of a section: values carried from earlier sections, computations, rows kept in
        scratch memory, folds and stores.
        """
        where = str(number)
        return Section(_LEVELS[section.level], tuple(self.steps(section, where)))

    def steps(self, section: phases.LoopSection, where: str) -> Iterator[Instruction]:
        for term, row in section.recall.items():
            yield Instruction("recall", name_of(term.dtype), self.name(term, where), position=row)
        for term, store in section.reload.items():
            access = self.access(self.outputs[store.output], store.view, store.level, term.dtype)
            yield Instruction("load", name_of(term.dtype), self.name(term, where), access=access)
        for term in section.compute:
            yield self.term(term, where)
        for term, row in section.keep.items():
            yield Instruction("keep", name_of(term.dtype), args=(self.name(term, where),), position=row)
        for term in section.folds:
            yield self.fold(term, where)
        for store in section.stores:
            yield self.store(store, where)

    def prefetching(self, sections: list[Section]) -> list[Section]:
        """Return `sections` with the prefetches that `traffic` prescribes."""
        match self.traffic.prefetch:
            case "sweep":
                (section,) = sections
                return [prefetch.sweep_ahead(section, self.moves, list(self.pointers))]
            case "lines":
                return prefetch.lines_ahead(sections, self.moves, self.traffic.lines)
            case "rows":
                return prefetch.rows_ahead(sections, self.moves)
            case "map":
                page = self.program.tuning.caches.page
                return [prefetch.map_ahead(section, self.moves, page) for section in sections]
        return sections

    def moves(self, access: Access) -> bool:
        """Return whether an access moves along the innermost dimension and touches new memory in each
        iteration of the loop around the innermost one.
        """
        strides = next(key.strides for key, number in self.layouts.items() if number == access.layout)
        outer_dim = (
            len(self.domain.shape) - 1
            if self.schedule.orientation is Orientation.COLUMNS
            else self.innermost - 1
        )
        is_along = self.layout_records[access.layout].stride == "one" and outer_dim < len(strides)
        return is_along and (outer_dim < 0 or strides[outer_dim] != 0)

    def name(self, term: Term, where: str) -> int:
        """Return the variable of `term` in section `where`. A term has a separate variable in each section
        that computes or reloads it.
        """
        if term.level is Level.HOST:
            return self.result(term, "")
        is_per_row = self.schedule.orientation is not Orientation.COLUMNS and term.level is Level.KEPT
        return self.result(term, "row" if is_per_row else where)

    def term(self, term: Term, where: str) -> Instruction:
        """Return the step that computes `term`."""
        args = tuple(self.name(a, where) for a in term.args) if term.kind is not TermKind.REDUCE else ()
        result = self.name(term, where)
        kind, encode = _KINDS[term.kind]
        fields = {"kind": kind, **encode(self, term)}
        return Instruction(dtype=name_of(term.dtype), result=result, args=args, **fields)

    def fold(self, term: Term, where: str) -> Instruction:
        (value,) = term.args
        return Instruction(
            "fold",
            name_of(term.dtype),
            args=(self.name(value, where),),
            function=term.function or "",
            position=self.accumulator(term),
        )

    def accumulator(self, term: Term) -> int:
        """Return the number of the accumulator of a reduction or scan. Sums of float32 accumulate in
        float64.
        """
        if term not in self.folds:
            self.folds[term] = len(self.accumulators)
            is_sum = term.kind is TermKind.REDUCE and is_compensated(term.function)
            wide = is_sum and term.dtype == np.float32
            self.accumulators.append("float64" if wide else name_of(term.dtype))
        return self.folds[term]

    def store(self, store: OutputStore, where: str) -> Instruction:
        level = store.level
        access = self.access(self.outputs[store.output], store.view, level, store.term.dtype)
        step = Instruction(
            "store", name_of(store.term.dtype), args=(self.name(store.term, where),), access=access
        )
        if self.sweep is not None and store.base is not None:
            return step.replace(kind="ring")
        if store not in self.traffic.streamed:
            return step
        self.stages.append(step.dtype)
        return step.replace(kind="stream", position=len(self.stages) - 1)

    def load(self, term: Term) -> Fields:
        assert term.value is not None
        assert term.view is not None
        level = term.level if term.kind is TermKind.LOAD else self.domain.level(term.view)
        access = self.access(self.operands[term.value], term.view, level, term.dtype)
        if term in self.traffic.transposed:
            number = self.tiles.setdefault(access, len(self.tiles))
            return {"kind": "tile", "access": access, "position": number}
        return {"access": access}

    def gather(self, term: Term) -> Fields:
        return {**self.load(term), "position": self.new_slot("jump", IntegerSlot(term.stride))}

    def index(self, term: Term) -> Fields:
        assert term.view is not None
        layout = self.layout(term.view, self.domain.level(term.view))
        return {"layout": layout, "position": self.new_slot("offset", IntegerSlot(term.view.offset))}

    def number(self, term: Term) -> Fields:
        assert term.value is not None
        self.numbers.append(name_of(term.dtype))
        operand = self.operands[term.value]
        position = self.new_slot("c", NumberSlot(operand))
        if term.dtype == np.complex128:  # two slots, which the kernel reads as one number
            self.slots[f"c{position}_imag"] = NumberSlot(operand, 8)
        return {"position": position}

    def apply(self, term: Term) -> Fields:
        return {"function": term.function or ""}

    def bounded(self, term: Term) -> Fields:
        return {"position": self.new_slot("bound", IntegerSlot(term.bound))}

    def finish(self, term: Term) -> Fields:
        return {"kind": "finish", "function": term.function or "", "position": self.accumulator(term)}

    def scan(self, term: Term) -> Fields:
        return {"function": term.function or "", "position": self.accumulator(term)}


_ENCODERS: dict[TermKind, Callable[[Encoder, Term], Fields]] = {
    TermKind.LOAD: Encoder.load,
    TermKind.NUMBER: Encoder.number,
    TermKind.INDEX: Encoder.index,
    TermKind.APPLY: Encoder.apply,
    TermKind.GATHER: Encoder.gather,
    TermKind.CHECK: Encoder.bounded,
    TermKind.MATCH: Encoder.bounded,
    TermKind.REDUCE: Encoder.finish,
    TermKind.SCAN: Encoder.scan,
}
_KINDS = {kind: (kind.value, encode) for kind, encode in _ENCODERS.items()}
_LEVELS = {level: level.name.lower() for level in Level}
"""The names of the levels in `KernelSpec`. Reading `name` of an enumeration member is slower than a
dictionary lookup.
"""
