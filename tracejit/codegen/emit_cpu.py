"""Kernels for the CPU: plain loops over typed pointers, which LLVM turns into vectors.

One function for each orientation writes the loops over units; `_Kernel` writes what they share. Rules that
keep the innermost loop fast: it is a bare ``for i in independent(a, b)``, as a round writes nothing that
another one reads (buffers are disjoint, or the same and indexed alike); everything that does not change
along it stands before it; there is one pointer for each buffer; sums of floats run in blocks of SUM_BLOCK
elements, whose additions may be reordered, and the blocks add up in float64 (float32) or with compensation
(float64).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tracejit.codegen.emit_sweep import emit_sweep, store_in_ring
from tracejit.codegen.spec import BLOCK, Section, Spec, Step
from tracejit.codegen.text import (
    COMBINE,
    REORDERED,
    Source,
    identity,
    layouts_of,
    lines_at_once,
    moving_results,
    renumbered,
)

FINAL = {"load", "index", "apply", "recall", "store", "stream"}
"""Kinds of steps of a loop that only finishes a row: it adds nothing up and cannot fail."""

SUM_BLOCK = 2048
"""Elements of a block of a sum: 32 for each lane of the four vectors that a processor with AVX-512 adds to.
The end of a block, where the lanes come together, takes as long as 250 elements; longer ones are less exact.
"""

TILES_AHEAD = 2
"""Which of the next far tiles is asked for: not the mirror image, which comes next and is there already."""


def emit_cpu(spec: Spec) -> str:
    """The source of ``kernel(block, lo, hi, scratch) -> status``."""
    kernel = _Kernel(spec)
    kernel.depth = 1
    kernel.load_slots(skip=("_bytes",))
    kernel.scratch_pointers()
    for step in spec.prologue:
        kernel.step(step)
    if any(s.kind == "check" for section in spec.sections for s in section.steps):
        kernel.line(f"status = {kernel.type('int64')}(0)")
        result = "status"
    else:
        result = f"{kernel.type('int64')}(0)"
    {"map": emit_map, "rows": emit_rows, "columns": emit_columns}[spec.orientation](kernel)
    if spec.stages:
        kernel.line(f"{kernel.use('settle', 'tracejit.kernels.stream')}()")
    kernel.line(f"return {result}")
    return kernel.finish(["def kernel(block, lo, hi, scratch):"])


def emit_map(kernel: _Kernel) -> None:
    """Tiles of the last two dimensions; a kernel over one dimension takes all its units in one loop."""
    spec = kernel.spec
    if spec.sweep:
        emit_sweep(kernel, kernel.lane_loop)
        return
    (section,) = spec.sections
    last = spec.lane
    if spec.kept == 1:
        kernel.set_bases([section], range(0))
        kernel.lane_loop(section, "lo * tile", f"min(hi * tile, n{last})")
        return
    with kernel.block("for unit in range(lo, hi):"):
        kernel.place_tile()
        kernel.unravel("unit // (column_tiles * row_tiles)", range(last - 1))
        kernel.transpose_tiles()
        with kernel.block(f"for i{last - 1} in range(a{last - 1}, b{last - 1}):"):
            kernel.set_bases([section], range(last))
            if spec.tiles:
                kernel.line(f"line = (i{last - 1} - a{last - 1}) * columns - a{last}")
            kernel.prefetch_rows(section)
            kernel.lane_loop(section, f"a{last}", f"b{last}")


def emit_rows(kernel: _Kernel) -> None:
    """One kept index after the other; loops over the reduced dimensions inside."""
    if overlaps(kernel.spec):
        emit_overlapping_rows(kernel)
        return
    with kernel.block("for unit in range(lo, hi):"):
        kernel.begin_row()
        for section in kernel.spec.sections:
            kernel.row_section(section)


def overlaps(spec: Spec) -> bool:
    """Whether the last loop of a row, which stores what earlier ones have found out, may run after the first
    one of the next row: they share no row in scratch memory.
    """
    loops = [section for section in spec.sections if section.level == "full"]
    last = spec.sections[-1]
    if not spec.kept or spec.reduced != 1 or spec.pieces or len(loops) < 2 or loops[-1] is not last:
        return False
    kept = {step.position for step in loops[0].steps if step.kind == "keep"}
    recalled = {step.position for step in last.steps if step.kind == "recall"}
    return not kept & recalled and {step.kind for step in last.steps} <= FINAL


def emit_overlapping_rows(kernel: _Kernel) -> None:
    """Each row's last loop after the first one of the next row: what follows a loop that adds up waits for
    its end, and a processor has something to do meanwhile.
    """
    *head, last = kernel.spec.sections
    second = [n for n, section in enumerate(kernel.spec.sections) if section.level == "full"][1]
    values = values_before(kernel.spec, last)
    for value, dtype in values.values():
        kernel.line(f"v{value} = {'False' if dtype == 'bool' else kernel.type(dtype) + '(0)'}")
    places = [n for n in layouts_of([last]) if any(d < kernel.spec.lane for d in kernel.spec.moving(n))]
    for layout in places:
        kernel.line(f"before{layout} = {kernel.type('int64')}(0)")
    with kernel.block("for unit in range(lo, hi + 1):"):
        with kernel.block("if unit < hi:"):
            kernel.begin_row()
            for section in head[:second]:
                kernel.row_section(section)
        with kernel.block("if unit > lo:"):
            here = dict(kernel.bases)
            kernel.bases.update({layout: f"before{layout}" for layout in places})
            kernel.row_section(Section(last.level, reading(last.steps, values)))
            kernel.bases = here
        with kernel.block("if unit < hi:"):
            for section in head[second:]:
                kernel.row_section(section)
            for number, (value, _) in values.items():
                kernel.line(f"v{value} = v{number}")
            for layout in places:
                kernel.line(f"before{layout} = {kernel.bases[layout]}")


def values_before(spec: Spec, last: Section) -> dict[int, tuple[int, str]]:
    """For each value of a row that its last section reads: another number, under which it outlives the row,
    and its dtype.
    """
    made = {step.result: step.dtype for section in spec.sections[:-1] for step in section.steps}
    count = 1 + max(
        step.result for steps in (spec.prologue, *(s.steps for s in spec.sections)) for step in steps
    )
    read = dict.fromkeys(a for step in last.steps for a in step.args if a in made)
    return {number: (count + number, made[number]) for number in read}


def reading(steps: Sequence[Step], values: Mapping[int, tuple[int, str]]) -> tuple[Step, ...]:
    """`steps` on the values of the row before."""
    return tuple(s.replace(args=tuple(values[a][0] if a in values else a for a in s.args)) for s in steps)


def emit_columns(kernel: _Kernel) -> None:
    """A tile of the last kept dimension, its accumulators in scratch; the reduced dimensions run outside."""
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

    def scratch_pointers(self) -> None:
        """Rows of a ROWS kernel, transposed tiles of a MAP kernel, blocks to be streamed."""
        spec = self.spec
        rows = [(f"row{n}", dtype) for n, dtype in enumerate(spec.rows)] * (spec.orientation == "rows")
        tiles = [(f"tile{n}", spec.pointers[access.pointer]) for n, access in enumerate(spec.tiles)]
        stages = [(f"stage{n}", dtype) for n, dtype in enumerate(spec.stages)]
        for name, dtype in rows + tiles + stages:
            self.pointer(name, f"scratch + {name}_at", dtype)

    def tile_pointers(self, first: str) -> None:
        """Scratch rows and accumulators of a tile, shifted so that the index itself reaches them."""
        names = [(f"row{n}", dtype) for n, dtype in enumerate(self.spec.rows)]
        names += [(f"t{n}", dtype) for n, dtype in enumerate(self.spec.accumulators)]
        for name, dtype in names:
            self.pointer(name, f"scratch + {name}_at - {first} * {np.dtype(dtype).itemsize}", dtype)

    @property
    def is_far(self) -> bool:
        """Whether tiles are transposed of what no cache holds."""
        return bool(self.spec.tiles and self.spec.stages)

    def place_tile(self) -> None:
        """The bounds of the tile of a unit, along the last two dimensions; where a far one to come begins."""
        last = self.spec.lane
        row, column = "unit // column_tiles % row_tiles", "unit % column_tiles"
        if self.is_far:
            row, column = self.far_tile("unit")
        for d, place, size in ((last, column, "columns"), (last - 1, row, "rows")):
            self.line(f"a{d} = {place} * {size}")
            self.line(f"b{d} = min(a{d} + {size}, n{d})")
        if self.is_far:
            row, column = self.far_tile(f"(unit + {TILES_AHEAD})")
            self.line(f"next{last} = {column} * columns")
            self.line(f"next{last - 1} = {row} * rows")

    def far_tile(self, unit: str) -> tuple[str, str]:
        """Row and column of the tile of a unit where no cache holds what is transposed."""
        place, row, column = (
            self.use(name, "tracejit.kernels.tiles") for name in ("tile_place", "row_of", "column_of")
        )
        self.line(f"place = {place}({unit} % (column_tiles * row_tiles), row_tiles, column_tiles)")
        return f"{row}(place)", f"{column}(place)"

    def prefetch_rows(self, section: Section) -> None:
        """Ask for a row of a far tile to come."""
        last = self.spec.lane
        loads = [s.access for s in section.steps if s.kind == "load" and s.access is not None]
        for access in dict.fromkeys(loads) if self.is_far else ():
            if self.spec.layouts[access.layout].lane == "one":
                down = f"(next{last - 1} - a{last - 1}) * s{access.layout}_{last - 1}"
                place = f"{self.bases[access.layout]} + {down} + next{last}"
                prefetch = self.use("prefetch_run", "tracejit.kernels.tiles")
                self.line(f"{prefetch}(x{access.pointer}, {place}, b{last} - a{last})")

    def transpose_tiles(self) -> None:
        """Copy what lies across the loop, for one tile, so that it lies along it."""
        last = self.spec.lane
        for n, access in enumerate(self.spec.tiles):
            outer = [f"i{d} * s{access.layout}_{d}" for d in range(last - 1)]
            first, further = (
                " + ".join([*outer, f"{start}{last - 1}", f"{start}{last} * s{access.layout}_{last}"])
                for start in ("a", "next")
            )
            size = f"columns, b{last - 1} - a{last - 1}, b{last} - a{last}"
            transpose = self.use("transpose_tile", "tracejit.kernels.tiles")
            source = f"x{access.pointer}, {first}, s{access.layout}_{last}"
            self.line(f"{transpose}({source}, tile{n}, {size}, {further if self.is_far else -1})")

    # ---- loops

    def begin_row(self) -> None:
        """The indices of a unit of a ROWS kernel, and where its row lies."""
        kept = range(self.spec.kept)
        self.unravel(self.piece("unit"), kept)
        self.set_bases(self.spec.sections, kept)

    def row_section(self, section: Section) -> None:
        """What is done once for each row, or a loop over it."""
        if section.level == "full":
            self.reduce_rows(section)
            return
        for step in section.steps:
            self.row_step(step)

    def independent(self) -> str:
        """The range of a loop whose rounds share nothing in memory."""
        return self.use("independent", "tracejit.kernels.ranges")

    def lane_loop(self, section: Section, first: str, last: str) -> None:
        """The innermost loop over `section`, what does not change along it before it; in blocks if it adds
        floats or streams.
        """
        moving = moving_results(self.spec, section.steps)
        inside = [s for s in section.steps if s.result in moving or s.result < 0]
        for step in section.steps:
            if step not in inside:
                self.row_step(step)
        sums = [s for s in section.steps if self.is_blocked(s)]
        streams = [s for s in section.steps if s.kind == "stream"]
        if not sums and not streams:
            self.bare_loop(inside, first, last)
            return
        size = BLOCK if streams else SUM_BLOCK
        with self.block(f"for start in range({first}, {last}, {size}):"):
            for step in sums:
                self.line(f"b{step.position} = {identity('sum', self.use_type(step.dtype))}")
            self.line(f"stop = min(start + {size}, {last})")
            self.bare_loop(inside, "start", "stop")
            for step in sums:
                self.add_block(step)
            for step in streams:
                self.stream(step)

    def bare_loop(self, inside: list[Step], first: str, last: str) -> None:
        """The steps `inside` for each index along the lane."""
        moving = {step.result for step in inside}
        divided = [
            s for s in inside if s.function == "divide" and s.kind == "apply" and s.args[1] not in moving
        ]
        for step in divided:
            number = self.type(step.dtype)
            self.line(f"r{step.result} = {self.function('divide', step.dtype)}({number}(1), v{step.args[1]})")
        with self.block(f"for i{self.spec.lane} in {self.independent()}({first}, {last}):"):
            self.in_lane = True
            for step in inside:
                if step in divided:
                    self.divide(step)
                else:
                    self.row_step(step)
            self.in_lane = False

    def divide(self, step: Step) -> None:
        """Divide by what does not change along the loop, whose reciprocal is known."""
        quotient = self.use("quotient", "tracejit.kernels.quotient")
        x, y = step.args
        self.line(f"v{step.result} = {quotient}(v{x}, v{y}, r{step.result})")

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
            case "stream":
                self.write(f"stage{step.position}[i{self.spec.lane} - start]", value, step.dtype)
            case "prefetch":
                self.prefetch(step)
            case "ring":
                store_in_ring(self, value, step.dtype)
            case "fold":
                self.fold(step, value)
            case "scan":
                self.scan(step, value)
            case "finish":
                self.finish_fold(step)
            case _:
                self.step(step)

    def stream(self, step: Step) -> None:
        """Move a block of results from its stage to memory."""
        assert step.access is not None
        stream, base = self.use("stream", "tracejit.kernels.stream"), self.bases[step.access.layout]
        first = f"{base} + start" if base else "start"
        self.line(f"{stream}(x{step.access.pointer}, {first}, stage{step.position}, stop - start)")

    def prefetch(self, step: Step) -> None:
        """Ask for what lies some rows, or elements, further."""
        assert step.access is not None
        spec, layout, further = self.spec, step.access.layout, str(step.position)
        if step.function == "rows":
            around = spec.kept + spec.reduced - 1 if spec.orientation == "columns" else spec.lane - 1
            stride = f"s{layout}_{around}"
            further = stride if step.position == 1 else f"{stride} * {step.position}"
        place = " + ".join(filter(None, [self.bases[layout], further if step.position else ""]))
        name = "prefetch_written" if step.function == "written" else "prefetch"
        prefetch = self.use(name, "tracejit.kernels.prefetch")
        self.line(f"{prefetch}(x{step.access.pointer}, {place or 0}, i{spec.lane})")

    def scratch_row(self, row: int) -> str:
        """The element of a scratch row for the current index."""
        if self.spec.orientation == "columns":
            return f"row{row}[i{self.spec.lane}]"
        at = f"i{self.spec.lane}"
        return f"row{row}[{at}]" if self.spec.reduced == 1 else f"row{row}[line + {at}]"

    # ---- reductions

    def is_blocked(self, step: Step) -> bool:
        in_rows = self.spec.orientation == "rows"
        return in_rows and step.kind == "fold" and step.function == "sum" and step.dtype.startswith("float")

    def is_ranked(self, step: Step) -> bool:
        """Whether an extreme of floats is found among integers, for which a processor has an instruction."""
        in_rows = self.spec.orientation == "rows" and step.kind in ("fold", "finish")
        return in_rows and step.function in ("max", "min") and step.dtype.startswith("float")

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
        if self.is_ranked(step):
            negative = f"{self.function('negative', dtype)}({value})" if step.function == "min" else value
            rank = f"{self.accumulate(f'rank_{dtype}')}({negative})"
            self.line(f"{accumulator} = {self.function('maximum', dtype)}({accumulator}, {rank})")
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
        elif self.is_ranked(step):
            result = f"{self.accumulate(f'float_of_rank_{dtype}')}({accumulator})"
            result = f"{self.function('negative', dtype)}({result})" if step.function == "min" else result
        else:
            result = accumulator
        self.line(
            f"v{step.result} = {result if dtype == step.dtype else f'{self.type(step.dtype)}({result})'}"
        )

    def reduce_rows(self, section: Section) -> None:
        """A loop over all reduced dimensions whose accumulators are variables."""
        spec = self.spec
        for step in self.accumulators(section):
            ranked = self.is_ranked(step)
            start = f"{self.type(step.dtype.replace('float', 'uint'))}(0)" if ranked else self.identity(step)
            self.line(f"t{step.position} = {start}")
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
        self.lane_loop(section, *self.bounds(spec.lane))
        self.bases, self.depth = before, depth

    def add_block(self, step: Step) -> None:
        """Add the sum of a block to the total."""
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
            with self.block(f"for i{lane} in {self.independent()}(a{lane}, b{lane}):"):
                for step in accumulators:
                    start = self.identity(step)
                    self.write(f"t{step.position}[i{lane}]", start, spec.accumulators[step.position])
        before, depth = dict(self.bases), self.depth
        dims = range(spec.kept, spec.kept + spec.reduced)
        for d in dims[:-1]:
            first, last = self.bounds(d)
            self.line(f"for i{d} in range({first}, {last}):")
            self.depth += 1
        first, last = self.bounds(dims[-1])
        lines = lines_at_once(section, spec.lines)
        if lines > 1:
            with self.block(f"for i{dims[-1]} in range({first}, {last} - {lines - 1}, {lines}):"):
                self.several_lines(section, dims, lines)
            self.bases = dict(before)
            first = f"{last} - {last if first == '0' else f'({last} - {first})'} % {lines}"
        with self.block(f"for i{dims[-1]} in range({first}, {last}):"):
            self.set_bases([section], dims, "q")
            self.lane_loop(section, f"a{lane}", f"b{lane}")
        self.bases, self.depth = before, depth

    def several_lines(self, section: Section, dims: range, lines: int) -> None:
        """The steps of `section` for `lines` neighbouring indices of the innermost reduced dimension: lines
        are read side by side, then added up one after the other.
        """
        count = 1 + max(step.result for step in section.steps)
        reads: list[tuple[dict[int, str], Step]] = []
        folds: list[tuple[dict[int, str], Step]] = []
        for line in range(lines):
            if line == 0:
                self.set_bases([section], dims, "q")
            else:
                self.next_line(section, dims[-1], line)
            for step in renumbered(section.steps, line * count):
                (folds if step.kind == "fold" else reads).append((dict(self.bases), step))
        moving = moving_results(self.spec, [step for _, step in reads])
        for self.bases, step in reads:
            if step.result not in moving:
                self.row_step(step)
        lane = self.spec.lane
        with self.block(f"for i{lane} in {self.independent()}(a{lane}, b{lane}):"):
            self.in_lane = True
            for self.bases, step in reads:
                if step.result in moving:
                    self.row_step(step)
            for self.bases, step in sorted(folds, key=lambda fold: fold[1].position):
                self.row_step(step)
            self.in_lane = False

    def next_line(self, section: Section, d: int, line: int) -> None:
        """Variables for the places of all layouts of `section`, one further along `d`."""
        for layout in layouts_of([section]):
            if d in self.spec.moving(layout):
                before, self.bases[layout] = self.bases[layout], f"q{layout}_{line}"
                self.line(f"{self.bases[layout]} = {before} + s{layout}_{d}")
