"""Kernels for CUDA: the same units, one block of threads for each.

    kernel(block, lo, hi, scratch, failure)     # launched with a power of two of threads, at most `THREADS`

`block`, `scratch` and `failure` are addresses in device memory. Blocks of threads stride over the units
in [lo, hi); inside a unit, threads stride over the elements of its tile (MAP), over a row (ROWS) or
over columns (COLUMNS, where each thread reduces its own). In ROWS kernels the threads' accumulators are
combined through shared memory; what depends on the row alone every thread computes and the first one
stores; a running sum is left to the first thread. ``scratch`` has `Lowered.scratch` bytes for each
block of threads. A kernel that fails sets the int64 at `failure`.
"""

from __future__ import annotations

from tracejit.codegen.spec import Section, Spec, Step
from tracejit.codegen.text import COMBINE, Source, memory_type
from tracejit.errors import DeviceError

THREADS = 256
"""Most threads in a block."""


def emit_cuda(spec: Spec) -> str:
    """The source of the kernel for numba-cuda."""
    if spec.sweep:
        raise DeviceError("a sweep goes through rows in order, which only the CPU's kernels do")
    kernel = _Kernel(spec)
    kernel.use("cuda", "numba")
    kernel.depth = 1
    stages = tuple(f"stage{n}_at" for n in range(len(spec.stages)))
    kernel.load_slots(skip=stages if spec.orientation == "rows" else ("_at", "_bytes"))
    for step in spec.prologue:
        kernel.step(step)
    kernel.line(f"thread = {kernel.type('int64')}(cuda.threadIdx.x)")
    kernel.line(f"threads = {kernel.type('int64')}(cuda.blockDim.x)")
    if spec.orientation == "rows":
        kernel.share()
    fails = any(s.kind == "check" for section in spec.sections for s in section.steps)
    if fails:
        kernel.line(f"status = {kernel.type('int64')}(0)")
    with kernel.block("for unit in range(lo + cuda.blockIdx.x, hi, cuda.gridDim.x):"):
        {"map": emit_map, "rows": emit_rows, "columns": emit_columns}[spec.orientation](kernel)
    if fails:
        with kernel.block("if status != 0:"):
            kernel.line(f"{kernel.use('store', 'tracejit.kernels.memory')}(failure, status)")
    return kernel.finish(["def kernel(block, lo, hi, scratch, failure):"])


def emit_map(kernel: _Kernel) -> None:
    """Threads stride over the elements of a tile."""
    spec = kernel.spec
    (section,) = spec.sections
    last = spec.lane
    if spec.kept == 1:
        kernel.set_bases([section], range(0))
        kernel.strided(section, f"i{last}", "unit * tile", f"min((unit + 1) * tile, n{last})")
        return
    kernel.line(f"a{last} = unit % column_tiles * columns")
    kernel.line(f"width = min(columns, n{last} - a{last})")
    kernel.line(f"a{last - 1} = unit // column_tiles % row_tiles * rows")
    kernel.line(f"height = min(rows, n{last - 1} - a{last - 1})")
    kernel.unravel("unit // (column_tiles * row_tiles)", range(last - 1))
    with kernel.block("for place in range(thread, width * height, threads):"):
        kernel.line(f"i{last - 1} = a{last - 1} + place // width")
        kernel.line(f"i{last} = a{last} + place % width")
        kernel.set_bases([section], range(last))
        kernel.elements(section)


def emit_rows(kernel: _Kernel) -> None:
    """The threads of a block share a row."""
    spec = kernel.spec
    kernel.unravel(kernel.piece("unit"), range(spec.kept))
    kernel.set_bases(spec.sections, range(spec.kept))
    for n, dtype in enumerate(spec.rows):
        kernel.pointer(f"row{n}", f"scratch + cuda.blockIdx.x * scratch_bytes + row{n}_at", dtype)
    for section in spec.sections:
        if section.level == "full":
            kernel.reduce_row(section)
            continue
        for step in section.steps:
            if step.kind == "store":
                with kernel.block("if thread == 0:"):
                    kernel.one(step)
            else:
                kernel.one(step)


def emit_columns(kernel: _Kernel) -> None:
    """Every thread has columns of its own, whose accumulators are its variables."""
    spec = kernel.spec
    last = spec.lane
    kernel.line(f"tile = {kernel.piece('unit')}")
    kernel.line(f"a{last} = tile % column_tiles * columns")
    kernel.unravel("tile // column_tiles", range(last))
    kernel.set_bases(spec.sections, range(last))
    with kernel.block(f"for i{last} in range(a{last} + thread, min(a{last} + columns, n{last}), threads):"):
        for section in spec.sections:
            if section.level == "full":
                kernel.reduce_column(section)
            else:
                kernel.elements(section)


class _Kernel(Source):
    """The text of a CUDA kernel."""

    def strided(self, section: Section, index: str, first: str, last: str) -> None:
        """The threads' loop over `section`."""
        start = "thread" if first == "0" else f"{first} + thread"
        with self.block(f"for {index} in range({start}, {last}, threads):"):
            self.elements(section)

    def elements(self, section: Section) -> None:
        """The steps of `section` for one element."""
        self.in_lane = True
        for step in section.steps:
            self.one(step)
        self.in_lane = False

    def one(self, step: Step) -> None:
        """One step, with accumulators and columns' scratch rows in variables."""
        value = f"v{step.args[0]}" if step.args else ""
        total = f"t{step.position}"
        in_columns = self.spec.orientation == "columns"
        match step.kind:
            case "keep" if in_columns:
                self.line(f"row{step.position} = {value}")
            case "keep":
                self.write(self.row_element(step.position), value, step.dtype)
            case "recall" if in_columns:
                self.line(f"v{step.result} = row{step.position}")
            case "recall":
                self.read(step, self.row_element(step.position))
            case "tile":
                assert step.access is not None
                self.read(step, self.element(step.access))
            case "fold" | "scan":
                dtype = self.spec.accumulators[step.position]
                value = value if dtype == step.dtype else f"{self.type(dtype)}({value})"
                self.line(f"{total} = {self.function(COMBINE[step.function], dtype)}({total}, {value})")
                if step.kind == "scan":
                    self.line(f"v{step.result} = {total}")
            case "finish":
                same = self.spec.accumulators[step.position] == step.dtype
                self.line(f"v{step.result} = {total if same else f'{self.type(step.dtype)}({total})'}")
            case "stream":
                self.step(step.replace(kind="store"))
            case _:
                self.step(step)

    def row_element(self, row: int) -> str:
        """The element of a scratch row for the current reduced index."""
        linear = f"i{self.spec.kept}"
        for d in range(self.spec.kept + 1, self.spec.lane + 1):
            linear = f"({linear}) * n{d} + i{d}"
        return f"row{row}[{linear}]"

    def start(self, section: Section) -> list[Step]:
        """Start the accumulators of `section`; return their steps."""
        steps = self.accumulators(section)
        for step in steps:
            self.line(f"t{step.position} = {self.identity(step)}")
        return steps

    def reduce_row(self, section: Section) -> None:
        """The threads' loop over the reduced dimensions, then the combination of their accumulators."""
        spec = self.spec
        steps = self.start(section)
        before, depth = dict(self.bases), self.depth
        for d in range(spec.kept, spec.lane):
            first, last = self.bounds(d)
            self.line(f"for i{d} in range({first}, {last}):")
            self.depth += 1
        self.set_bases([section], range(spec.kept, spec.lane), "q")
        first, last = self.bounds(spec.lane)
        if any(step.kind == "scan" for step in steps):
            with self.block("if thread == 0:"), self.block(f"for i{spec.lane} in range({first}, {last}):"):
                self.elements(section)
        else:
            self.strided(section, f"i{spec.lane}", first, last)
        self.bases, self.depth = before, depth
        for step in steps:
            if step.kind == "fold":
                self.combine_threads(step)
        self.line("cuda.syncthreads()")

    def reduce_column(self, section: Section) -> None:
        """One thread's loops over all reduced dimensions of a column."""
        spec = self.spec
        self.start(section)
        before, depth = dict(self.bases), self.depth
        for d in range(spec.kept, spec.kept + spec.reduced):
            first, last = self.bounds(d)
            self.line(f"for i{d} in range({first}, {last}):")
            self.depth += 1
        self.set_bases([section], range(spec.kept, spec.kept + spec.reduced), "q")
        self.elements(section)
        self.bases, self.depth = before, depth

    def share(self) -> None:
        """Shared memory for the accumulators of a block's threads, one array for each dtype."""
        for dtype in dict.fromkeys(map(memory_type, self.spec.accumulators)):
            self.line(f"shared_{dtype} = cuda.shared.array({THREADS}, {self.type(dtype)})")

    def combine_threads(self, step: Step) -> None:
        """Combine the accumulators of a block's threads, in a tree; every thread gets the result."""
        dtype = self.spec.accumulators[step.position]
        shared, total = f"shared_{memory_type(dtype)}", f"t{step.position}"
        combine, is_true = self.function(COMBINE[step.function], dtype), " != 0" if dtype == "bool" else ""
        self.write(f"{shared}[thread]", total, dtype)
        self.line("cuda.syncthreads()")
        self.line("step = threads // 2")
        with self.block("while step > 0:"):
            with self.block("if thread < step:"):
                both = f"{shared}[thread]{is_true}, {shared}[thread + step]{is_true}"
                self.write(f"{shared}[thread]", f"{combine}({both})", dtype)
            self.line("cuda.syncthreads()")
            self.line("step = step // 2")
        self.line(f"{total} = {shared}[0]{is_true}")
        self.line("cuda.syncthreads()")
