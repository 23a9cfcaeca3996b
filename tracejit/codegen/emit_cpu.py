"""Kernels for the CPU: plain loops over typed pointers, which LLVM turns into vectors.

One function for each orientation writes the loops over units; `_Kernel` writes what they share. Rules that
keep the innermost loop fast: it is a bare ``for i in range(a, b)``; everything that does not change along
it stands before it; there is one pointer for each buffer; sums of floats run in blocks of at most 1024
elements whose additions may be reordered, and the blocks add up in float64 (float32) or with compensation
(float64).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracejit.codegen.spec import Section, Spec, Step
from tracejit.codegen.text import (
    COMBINE,
    REORDERED,
    Source,
    identity,
    layouts_of,
    memory_type,
    moving_results,
)

BLOCK = 1024
"""Elements that are added in reordered, plain arithmetic before compensation takes over."""


def emit_cpu(spec: Spec) -> str:
    """The source of ``kernel(block, lo, hi, scratch) -> status``."""
    kernel = _Kernel(spec)
    kernel.depth = 1
    kernel.load_slots()
    for step in spec.prologue:
        kernel.step(step)
    if any(s.kind == "check" for section in spec.sections for s in section.steps):
        kernel.line(f"status = {kernel.type('int64')}(0)")
        result = "status"
    else:
        result = f"{kernel.type('int64')}(0)"
    {"map": emit_map, "rows": emit_rows, "columns": emit_columns}[spec.orientation](kernel)
    kernel.line(f"return {result}")
    return kernel.finish(["def kernel(block, lo, hi, scratch):"])


def emit_map(kernel: _Kernel) -> None:
    """Tiles of the last two dimensions; a kernel over one dimension takes all its units in one loop."""
    spec = kernel.spec
    (section,) = spec.sections
    last = spec.lane
    if spec.kept == 1:
        kernel.set_bases([section], range(0))
        kernel.lane_loop(section, "lo * tile", f"min(hi * tile, n{last})")
        return
    with kernel.block("for unit in range(lo, hi):"):
        kernel.line(f"a{last} = unit % column_tiles * columns")
        kernel.line(f"b{last} = min(a{last} + columns, n{last})")
        kernel.line(f"a{last - 1} = unit // column_tiles % row_tiles * rows")
        kernel.line(f"b{last - 1} = min(a{last - 1} + rows, n{last - 1})")
        kernel.unravel("unit // (column_tiles * row_tiles)", range(last - 1))
        kernel.transpose_tiles()
        with kernel.block(f"for i{last - 1} in range(a{last - 1}, b{last - 1}):"):
            kernel.set_bases([section], range(last))
            if spec.tiles:
                kernel.line(f"line = (i{last - 1} - a{last - 1}) * columns - a{last}")
            kernel.lane_loop(section, f"a{last}", f"b{last}")


def emit_rows(kernel: _Kernel) -> None:
    """One kept index after the other; loops over the reduced dimensions inside."""
    spec = kernel.spec
    with kernel.block("for unit in range(lo, hi):"):
        kernel.unravel(kernel.piece("unit"), range(spec.kept))
        kernel.set_bases(spec.sections, range(spec.kept))
        for section in spec.sections:
            if section.level == "kept":
                for step in section.steps:
                    kernel.row_step(step)
            else:
                kernel.reduce_rows(section)


def emit_columns(kernel: _Kernel) -> None:
    """A tile of the last kept dimension: its accumulators lie in scratch, the reduced dimensions run
    outside.
    """
    spec = kernel.spec
    last = spec.lane
    with kernel.block("for unit in range(lo, hi):"):
        kernel.line(f"tile = {kernel.piece('unit')}")
        kernel.line(f"a{last} = tile % column_tiles * columns")
        kernel.line(f"b{last} = min(a{last} + columns, n{last})")
        kernel.unravel("tile // column_tiles", range(last))
        kernel.tile_pointers(f"a{last}")
        kernel.set_bases(spec.sections, range(last))
        for section in spec.sections:
            if section.level == "kept":
                kernel.lane_loop(section, f"a{last}", f"b{last}")
            else:
                kernel.reduce_columns(section)


class _Kernel(Source):
    """The text of a CPU kernel."""

    def load_slots(self) -> None:
        """One line for each slot of the block."""
        spec = self.spec
        load, int64 = self.use("load", "tracejit.kernels.memory"), self.type("int64")
        for position, name in enumerate(spec.slot_names()):
            address = f"block + {8 * position}"
            kind, number = name[0], name[1:]
            if kind == "x" and number.isdigit():
                self.pointer(name, f"{load}({address}, {int64})", spec.pointers[int(number)])
            elif kind == "c" and number.isdigit():
                self.line(f"{name} = {load}({address}, {self.type(memory_type(spec.numbers[int(number)]))})")
            elif name.startswith("row") and name[3:].isdigit() and spec.orientation == "rows":
                self.pointer(name, f"scratch + {load}({address}, {int64})", spec.rows[int(name[3:])])
            elif name.startswith("tile") and name[4:].isdigit():
                dtype = spec.pointers[spec.tiles[int(name[4:])].pointer]
                self.pointer(name, f"scratch + {load}({address}, {int64})", dtype)
            else:
                self.line(f"{name} = {load}({address}, {int64})")

    def pointer(self, name: str, address: str, dtype: str) -> None:
        pointer = self.use("pointer", "tracejit.kernels.memory")
        self.line(f"{name} = {pointer}({address}, {self.type(memory_type(dtype))})")

    def tile_pointers(self, first: str) -> None:
        """Scratch rows and accumulators of a tile, shifted so that the index itself reaches them."""
        names = [(f"row{n}", f"row{n}", d) for n, d in enumerate(self.spec.rows)]
        names += [(f"t{n}", f"sum{n}", d) for n, d in enumerate(self.spec.accumulators)]
        for name, slot, dtype in names:
            at = f"scratch + {slot} - {first} * {np.dtype(dtype).itemsize}"
            self.pointer(f"{name}_tile" if name == slot else name, at, dtype)

    # -------------------------------------------------------------------------------------------- indices

    def transpose_tiles(self) -> None:
        """Copy what lies across the loop, for one tile, so that it lies along it."""
        last = self.spec.lane
        for n, access in enumerate(self.spec.tiles):
            moves = [f"i{d} * s{access.layout}_{d}" for d in range(last - 1)]
            moves += [f"a{last - 1}", f"a{last} * s{access.layout}_{last}"]
            size = f"columns, b{last - 1} - a{last - 1}, b{last} - a{last}"
            transpose = self.use("transpose_tile", "tracejit.kernels.tiles")
            source = f"x{access.pointer}, {' + '.join(moves)}, s{access.layout}_{last}"
            self.line(f"{transpose}({source}, tile{n}, {size})")

    def unravel(self, linear: str, dims: range) -> None:
        """Indices along `dims` from a linear one."""
        if len(dims) == 1:
            self.line(f"i{dims[0]} = {linear}")
            return
        for position, d in enumerate(reversed(dims)):
            if position == 0:
                self.line(f"rest = {linear}")
            if d == dims[0]:
                self.line(f"i{d} = rest")
            else:
                self.line(f"i{d} = rest % n{d}")
                self.line(f"rest = rest // n{d}")

    def piece(self, unit: str) -> str:
        """The unit without its piece; in a kernel of partial results, also the range of the piece."""
        if not self.spec.pieces:
            return unit
        d = self.spec.kept
        self.line(f"piece = {unit} % pieces")
        self.line("first = piece * length")
        self.line(f"last = min(first + length, n{d})")
        return f"{unit} // pieces"

    def bounds(self, d: int) -> tuple[str, str]:
        """The range of the reduced dimension `d`."""
        return ("first", "last") if self.spec.pieces and d == self.spec.kept else ("0", f"n{d}")

    def set_bases(self, sections: Sequence[Section], dims: Sequence[int], name: str = "p") -> None:
        """Variables for the places of all layouts of `sections`, moved along `dims`."""
        for layout in layouts_of(sections):
            before = self.bases.get(layout, "")
            moves = [f"i{d} * s{layout}_{d}" for d in dims if d in self.spec.moving(layout)]
            self.bases[layout] = f"{name}{layout}" if moves else before
            if moves:
                self.line(f"{name}{layout} = {' + '.join([before] * bool(before) + moves)}")

    # -------------------------------------------------------------------------------------------- loops

    def lane_loop(self, section: Section, first: str, last: str) -> None:
        """The innermost loop over `section`, what does not change along it before it."""
        moving = moving_results(self.spec, section.steps)
        inside = [s for s in section.steps if s.result in moving or s.result < 0]
        for step in section.steps:
            if step not in inside:
                self.row_step(step)
        with self.block(f"for i{self.spec.lane} in range({first}, {last}):"):
            self.in_lane = True
            for step in inside:
                self.row_step(step)
            self.in_lane = False

    def row_step(self, step: Step) -> None:
        """One step, with the accumulators and scratch rows of the CPU."""
        value = f"v{step.args[0]}" if step.args else ""
        match step.kind:
            case "keep":
                self.write(self.scratch_row(step.position), value, step.dtype)
            case "recall":
                self.read(step, self.scratch_row(step.position))
            case "tile":
                self.read(step, f"tile{step.position}[line + i{self.spec.lane}]")
            case "fold":
                self.fold(step, value)
            case "scan":
                self.scan(step, value)
            case "finish":
                self.finish_fold(step)
            case _:
                self.step(step)

    def scratch_row(self, row: int) -> str:
        """The element of a scratch row for the current index."""
        if self.spec.orientation == "columns":
            return f"row{row}_tile[i{self.spec.lane}]"
        at = f"i{self.spec.lane}"
        return f"row{row}[{at}]" if self.spec.reduced == 1 else f"row{row}[line + {at}]"

    # -------------------------------------------------------------------------------------------- reductions

    def is_blocked(self, step: Step) -> bool:
        return step.kind == "fold" and step.function == "sum" and step.dtype.startswith("float")

    def fold(self, step: Step, value: str) -> None:
        """Add `value` to an accumulator."""
        accumulator, dtype = f"t{step.position}", self.spec.accumulators[step.position]
        if self.spec.orientation == "columns":
            element = f"{accumulator}[i{self.spec.lane}]"
            value = value if dtype == step.dtype else f"{self.type(dtype)}({value})"
            combine = self.function(COMBINE[step.function], dtype)
            before = f"{element} != 0" if dtype == "bool" else element
            self.write(element, f"{combine}({before}, {value})", dtype)
            return
        if self.is_blocked(step):
            accumulator = f"b{step.position}"
        reordered = step.function in REORDERED and step.dtype.startswith("float")
        combine = (
            self.accumulate(REORDERED[step.function])
            if reordered
            else self.function(COMBINE[step.function], step.dtype)
        )
        self.line(f"{accumulator} = {combine}({accumulator}, {value})")

    def scan(self, step: Step, value: str) -> None:
        """The running sum up to here."""
        add = self.function(COMBINE[step.function], step.dtype)
        accumulator = f"t{step.position}"
        if self.spec.orientation == "columns":
            accumulator += f"[i{self.spec.lane}]"
        self.line(f"v{step.result} = {add}({accumulator}, {value})")
        self.line(f"{accumulator} = v{step.result}")

    def finish_fold(self, step: Step) -> None:
        """The result of a reduction."""
        accumulator, dtype = f"t{step.position}", self.spec.accumulators[step.position]
        if self.spec.orientation == "columns":
            accumulator += f"[i{self.spec.lane}]"
            result = f"{accumulator} != 0" if dtype == "bool" else accumulator
        elif step.function == "sum" and dtype == step.dtype == "float64":
            result = f"{self.accumulate('compensated')}({accumulator}, e{step.position})"
        else:
            result = accumulator
        self.line(
            f"v{step.result} = {result if dtype == step.dtype else f'{self.type(step.dtype)}({result})'}"
        )

    def accumulators(self, section: Section) -> list[Step]:
        return [s for s in section.steps if s.kind in ("fold", "scan")]

    def reduce_rows(self, section: Section) -> None:
        """A loop over all reduced dimensions whose accumulators are variables."""
        spec = self.spec
        for step in self.accumulators(section):
            self.line(f"t{step.position} = {self.identity(step)}")
            if self.is_blocked(step) and step.dtype == "float64":
                self.line(f"e{step.position} = {self.type('float64')}(0)")
        outer = range(spec.kept, spec.lane)
        before, depth = dict(self.bases), self.depth
        for d in outer:
            first, last = self.bounds(d)
            self.line(f"for i{d} in range({first}, {last}):")
            self.depth += 1
        if outer:
            self.set_bases([section], outer, "q")
            line = f"i{outer[0]}"
            for d in [*outer[1:], spec.lane]:
                line = f"({line}) * n{d}" + (f" + i{d}" if d != spec.lane else "")
            if any(s.kind in ("keep", "recall") for s in section.steps):
                self.line(f"line = {line}")
        self.row_lane(section)
        self.bases, self.depth = before, depth

    def row_lane(self, section: Section) -> None:
        """The innermost loop of a reduction, in blocks if it adds floats."""
        first, last = self.bounds(self.spec.lane)
        blocked = [s for s in section.steps if self.is_blocked(s)]
        if not blocked:
            self.lane_loop(section, first, last)
            return
        with self.block(f"for start in range({first}, {last}, {BLOCK}):"):
            for step in blocked:
                self.line(f"b{step.position} = {identity('sum', self.use_type(step.dtype))}")
            self.lane_loop(section, "start", f"min(start + {BLOCK}, {last})")
            for step in blocked:
                total, part = f"t{step.position}", f"b{step.position}"
                if step.dtype == "float64":
                    error = f"{self.accumulate('sum_error')}({total}, {part})"
                    self.line(f"e{step.position} = e{step.position} + {error}")
                    self.line(f"{total} = {total} + {part}")
                else:
                    self.line(f"{total} = {total} + {self.type('float64')}({part})")

    def reduce_columns(self, section: Section) -> None:
        """Loops over the reduced dimensions around the loop over the tile."""
        spec = self.spec
        lane = spec.lane
        accumulators = self.accumulators(section)
        if accumulators:
            with self.block(f"for i{lane} in range(a{lane}, b{lane}):"):
                for step in accumulators:
                    start = self.identity(step)
                    self.write(f"t{step.position}[i{lane}]", start, spec.accumulators[step.position])
        before, depth = dict(self.bases), self.depth
        for d in range(spec.kept, spec.kept + spec.reduced):
            first, last = self.bounds(d)
            self.line(f"for i{d} in range({first}, {last}):")
            self.depth += 1
        self.set_bases([section], range(spec.kept, spec.kept + spec.reduced), "q")
        self.lane_loop(section, f"a{lane}", f"b{lane}")
        self.bases, self.depth = before, depth

    def use_type(self, dtype: str) -> str:
        """`dtype`, imported as a Numba type (and infinity with it)."""
        if dtype != "bool":
            self.type(dtype)
        return dtype

    def identity(self, step: Step) -> str:
        """What the accumulator of `step` starts with."""
        if step.function in ("max", "min") and step.dtype.startswith("float"):
            self.use("inf", "math")
        return identity(step.function, self.use_type(self.spec.accumulators[step.position]))
