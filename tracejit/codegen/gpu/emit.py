"""GPU kernels. They have the same units as CPU kernels; one or more blocks of threads compute a unit.

    kernel[(bx, by), (tx, ty), shared](block)     # `launch.launch` chooses the numbers

`block` is passed by value: the slots of the spec, followed by `codegen.gpu.launch.EXTRA_SLOTS`. tx and ty are
powers of two, and tx * ty is at most `THREADS`. The block's shared memory has one element for each thread and
accumulator dtype (`shared_bytes`). The bx blocks along x stride over the units. Within a unit:

- MAP: threads along x stride over the last dimension, threads along y (ty = 1 if there is no other dimension)
  over the preceding one; the `by` blocks share a unit. Operands that are contiguous along the preceding
  dimension are read without transposition: the next lines of the tile use the rest of each cache line.
- ROWS: the threads of a block (ty = by = 1) stride over the row. Their accumulators are combined through
  shared memory. Values that depend on the row only are computed by every thread and stored by the first.
- COLUMNS: each thread along x computes separate columns, and the threads along y share the lines of these
  columns; the `by` blocks share a unit's columns. Accumulators are combined along y.

For a running sum, the threads process as many elements as there are threads, combine them in a tree, and
carry the last sum to the next iteration. Other loops process several elements per thread and iteration: a
thread issues all reads before its writes, so that many reads are in flight. `scratch` is the address in GPU
memory of `Lowered.scratch` bytes for each of the bx blocks. A kernel that fails lowers the int64 at `failure`
to its status. The result is the smallest status of all threads, so every run reports the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tracejit.codegen.gpu.launch import ELEMENTS_PER_THREAD, EXTRA_SLOTS, shared_sizes
from tracejit.codegen.spec import Instruction, KernelSpec, Section
from tracejit.codegen.text import SourceText, is_compensated, memory_type, renumbered
from tracejit.errors import DeviceError

MAX_STEPS = 24
"""The maximal number of steps in a loop that processes several elements per iteration."""


def emit_gpu(spec: KernelSpec) -> str:
    """Return the source of ``kernel(block)``."""
    if spec.sweep:
        raise DeviceError("a sweep goes through rows in order, which only the CPU's kernels do")
    if spec.panel >= 0:
        raise DeviceError(
            "a panel of a product is stored in the scratch memory of a worker, which only CPUs have"
        )
    kernel = _Kernel(spec)
    kernel.depth = 1
    buffers, stages, accumulators = spec.scratch_slot_names()
    kernel.load_slots(skip=stages if spec.orientation == "rows" else buffers + stages + accumulators)
    fails = any(s.kind == "check" for section in spec.sections for s in section.steps)
    for position, name in enumerate(EXTRA_SLOTS, len(spec.slot_names())):
        if name == "units" or (name == "scratch" and spec.rows) or (name == "failure" and fails):
            kernel.line(f"{name} = {kernel.memory('slot')}(block, {position})")
    for step in spec.prologue:
        kernel.step(step)
    kernel.name_threads()
    kernel.share()
    if fails:
        kernel.line(f"status = {kernel.type('int64')}(0)")
    kernel.line(f"unit = {kernel.word('block_x')}")
    with kernel.block("while unit < units:"):
        {"map": emit_map, "rows": emit_rows, "columns": emit_columns}[spec.orientation](kernel)
        kernel.line(f"unit += {kernel.word('blocks_x')}")
    if fails:
        with kernel.block("if status != 0:"):
            kernel.line(f"{kernel.use('lower', WORDS)}(failure, status)")
    return kernel.finish(["def kernel(block):"])


def emit_map(kernel: _Kernel) -> None:
    """Emit a MAP kernel: threads stride over the elements of a tile."""
    spec = kernel.spec
    (section,) = spec.sections
    last = spec.innermost
    if spec.kept == 1:
        kernel.set_bases([section], range(0))
        kernel.strided(section, "unit * tile", f"min((unit + 1) * tile, n{last})")
        return
    kernel.line(f"a{last} = unit % column_tiles * columns")
    kernel.line(f"b{last} = min(a{last} + columns, n{last})")
    kernel.line(f"a{last - 1} = unit // column_tiles % row_tiles * rows")
    kernel.line(f"b{last - 1} = min(a{last - 1} + rows, n{last - 1})")
    kernel.unravel("unit // (column_tiles * row_tiles)", range(last - 1))
    kernel.line(f"i{last - 1} = a{last - 1} + line")
    with kernel.block(f"while i{last - 1} < b{last - 1}:"):
        kernel.set_bases([section], range(last))
        kernel.strided(section, f"a{last}", f"b{last}")
        kernel.line(f"i{last - 1} += lines")


def emit_rows(kernel: _Kernel) -> None:
    """Emit a ROWS kernel: the threads of a block share a row."""
    spec = kernel.spec
    kernel.unravel(kernel.outer_unit("unit"), range(spec.kept))
    kernel.set_bases(spec.sections, range(spec.kept))
    for n, dtype in enumerate(spec.rows):
        kernel.pointer(f"row{n}", f"scratch + {kernel.word('block_x')} * scratch_bytes + row{n}_at", dtype)
    for section in spec.sections:
        if section.level == "full":
            kernel.reduce_row(section)
        else:
            kernel.emit_once(section, "thread == 0")


def emit_columns(kernel: _Kernel) -> None:
    """Emit a COLUMNS kernel: each thread along x computes separate columns, whose accumulators are
    variables. All threads of a block run the loop together. Threads beyond the last column repeat the
    computation of the last column and store nothing.
    """
    spec = kernel.spec
    last = spec.innermost
    kernel.line(f"tile = {kernel.outer_unit('unit')}")
    kernel.line(f"a{last} = tile % column_tiles * columns")
    kernel.line(f"b{last} = min(a{last} + columns, n{last})")
    kernel.unravel("tile // column_tiles", range(last))
    kernel.set_bases(spec.sections, range(last))
    kernel.line(f"a{last} += {kernel.word('block_y')} * threads")
    with kernel.block(f"while a{last} < b{last}:"):
        kernel.line(f"inside = a{last} + thread < b{last}")
        kernel.line(f"i{last} = min(a{last} + thread, b{last} - 1)")
        kernel.in_innermost = True
        for section in spec.sections:
            if section.level == "full":
                kernel.reduce_column(section)
            else:
                kernel.emit_once(section, "inside and line == 0")
        kernel.in_innermost = False
        kernel.line(f"a{last} += {kernel.word('blocks_y')} * threads")


WORDS = "tracejit.kernels.gpu.words"

WRITES = ("keep", "store", "stream")
"""The kinds of steps in loops that write to memory."""


class _Kernel(SourceText):
    """The source text of a GPU kernel."""

    def name_threads(self) -> None:
        """Emit this thread's index and the number of threads along each direction. In a MAP kernel they
        extend over all blocks that share a unit.
        """
        spec = self.spec
        thread, threads = self.word("thread_x"), self.word("threads_x")
        line, lines = ("thread_y", "threads_y")
        if spec.orientation == "columns" or (spec.orientation == "map" and spec.kept > 1):
            line, lines = self.word(line), self.word(lines)
        if spec.orientation == "map":
            block, blocks = self.word("block_y"), self.word("blocks_y")
            if spec.kept == 1:
                thread, threads = f"{block} * {threads} + {thread}", f"{blocks} * {threads}"
            else:
                line, lines = f"{block} * {lines} + {line}", f"{blocks} * {lines}"
        names = {"thread": thread, "threads": threads}
        if spec.orientation == "columns" or (spec.orientation == "map" and spec.kept > 1):
            names |= {"line": line, "lines": lines}
        for name, value in names.items():
            self.line(f"{name} = {value}")

    def word(self, name: str) -> str:
        """Return a call of a function of `tracejit.kernels.gpu.words`."""
        return f"{self.use(name, WORDS)}()"

    # ---- loops

    def strided(self, section: Section, first: str, last: str) -> None:
        """Emit the strided loop of the threads along x over the innermost dimension."""
        index = f"i{self.spec.innermost}"
        self.loop(section, first, last, "thread", lambda position: self.line(f"{index} = {position}"))

    def loop(self, section: Section, first: str, last: str, thread: str, move: Callable[[str], None]) -> None:
        """Emit a strided loop over [first, last) of the threads that `thread` enumerates. `move(index)`
        emits the lines that set the loop's indices.
        """
        n_steps = len(section.steps)
        n_elements = ELEMENTS_PER_THREAD if n_steps <= MAX_STEPS else 2 if n_steps <= 2 * MAX_STEPS else 1
        self.line(f"at = {thread if first == '0' else f'{first} + {thread}'}")
        if not last.isidentifier():
            self.line(f"stop = {last}")
            last = "stop"
        self.in_innermost = True
        if n_elements > 1:
            with self.block(f"while at + {n_elements - 1} * {thread}s < {last}:"):
                self.unrolled(section, n_elements, thread, move)
                self.line(f"at += {n_elements} * {thread}s")
        with self.block(f"while at < {last}:"):
            move("at")
            self.steps(section.steps)
            self.line(f"at += {thread}s")
        self.in_innermost = self.spec.orientation == "columns"

    def unrolled(self, section: Section, n_elements: int, thread: str, move: Callable[[str], None]) -> None:
        """Emit the steps of `section` for `n_elements` elements. All reads precede all writes, so that many
        reads are in flight.
        """
        results = [s.result for other in self.spec.sections for s in other.steps]
        shifted = [renumbered(section.steps, n * (1 + max(results))) for n in range(n_elements)]
        for writes in (False, True):
            for n, steps in enumerate(shifted):
                chosen = [step for step in steps if (step.kind in WRITES) == writes]
                if chosen:
                    move(f"at + {n} * {thread}s" if n else "at")
                    self.steps(chosen)

    def steps(self, steps: Sequence[Instruction]) -> None:
        """Emit the lines of `steps`."""
        for step in steps:
            self.emit_step(step)

    def emit_once(self, section: Section, chosen: str) -> None:
        """Emit steps that depend on kept indices only. All threads compute; the thread for which `chosen`
        holds stores the results that others may read.
        """
        stores = [step for step in section.steps if step.kind in ("store", "stream")]
        others = [step for step in section.steps if step not in stores]
        self.steps(others)
        if stores:
            if any(step.access is not None for step in others):
                self.line(self.word("barrier"))
            with self.block(f"if {chosen}:"):
                for step in stores:
                    self.step(step.replace(kind="store"))
            if section is not self.spec.sections[-1]:
                self.line(self.word("barrier"))

    def emit_step(self, step: Instruction) -> None:
        """Emit one step. Accumulators, and the scratch rows of COLUMNS kernels, are variables."""
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
            case "fold":
                self.accumulate_step(step, total, value)
            case "finish":
                same = self.spec.accumulators[step.position] == step.dtype
                self.line(f"v{step.result} = {total if same else f'{self.type(step.dtype)}({total})'}")
            case "store" | "stream" if in_columns:
                with self.block("if inside:"):
                    self.step(step.replace(kind="store"))
            case "stream":
                self.step(step.replace(kind="store"))
            case "prefetch":
                pass  # other threads hide the memory latency
            case _:
                self.step(step)

    def row_element(self, row: int) -> str:
        """Return the element of a scratch row at the current reduced index."""
        linear = f"i{self.spec.kept}"
        for d in range(self.spec.kept + 1, self.spec.innermost + 1):
            linear = f"({linear}) * n{d} + i{d}"
        return f"row{row}[{linear}]"

    # ---- reductions

    def start(self, section: Section) -> list[Instruction]:
        """Emit the initialisation of the accumulators of `section`, and return their steps."""
        steps = self.accumulators(section)
        for step in steps:
            self.line(f"t{step.position} = {self.identity(step)}")
            if self.is_compensated(step):
                self.line(f"e{step.position} = {self.type('float64')}(0)")
        return steps

    def is_compensated(self, step: Instruction) -> bool:
        """Return whether the accumulator is that of a compensated sum."""
        return step.kind == "fold" and is_compensated(step.function) and step.dtype == "float64"

    def accumulate_step(self, step: Instruction, total: str, value: str) -> None:
        """Emit the accumulation of `value`."""
        dtype = self.spec.accumulators[step.position]
        value = value if dtype == step.dtype else f"{self.type(dtype)}({value})"
        if self.is_compensated(step):
            error = f"{self.accumulate('sum_error')}({total}, {value})"
            self.line(f"e{step.position} = e{step.position} + {error}")
        self.line(f"{total} = {self.combining(step.function, dtype)}({total}, {value})")

    def reduce_row(self, section: Section) -> None:
        """Emit the threads' loop over the reduced dimensions and the combination of their accumulators."""
        spec = self.spec
        steps = self.start(section)
        before, depth = dict(self.bases), self.depth
        for d in range(spec.kept, spec.innermost):
            first, last = self.bounds(d)
            self.line(f"for i{d} in range({first}, {last}):")
            self.depth += 1
        self.set_bases([section], range(spec.kept, spec.innermost), "q")
        first, last = self.bounds(spec.innermost)
        if any(step.kind == "scan" for step in steps):
            self.in_innermost = True
            self.scan(section, first, last, "thread", lambda i: self.line(f"i{spec.innermost} = {i}"))
            self.in_innermost = False
        else:
            self.strided(section, first, last)
        self.bases, self.depth = before, depth
        self.combine_threads(steps, "thread", "thread")
        self.wait_for_scans()

    def reduce_column(self, section: Section) -> None:
        """Emit the loops over the reduced dimensions of a column. The threads along y share the innermost
        one.
        """
        spec = self.spec
        steps = self.start(section)
        dims = range(spec.kept, spec.kept + spec.reduced)
        self.line("cell = line * threads + thread")
        before, depth = dict(self.bases), self.depth
        for d in dims[:-1]:
            first, last = self.bounds(d)
            self.line(f"for i{d} in range({first}, {last}):")
            self.depth += 1
        first, last = self.bounds(dims[-1])

        def move(position: str) -> None:
            self.bases = dict(before)
            self.line(f"i{dims[-1]} = {position}")
            self.set_bases([section], dims, "q")

        if any(step.kind == "scan" for step in steps):
            self.scan(section, first, last, "line", move)
        else:
            self.loop(section, first, last, "line", move)
        self.bases, self.depth = before, depth
        self.combine_threads(steps, "line", "cell")
        self.wait_for_scans()

    # ---- running sums

    def scan(self, section: Section, first: str, last: str, member: str, move: Callable[[str], None]) -> None:
        """Emit the loop over [first, last) of a section with running sums. All threads that differ in
        `member` run it together, one element each. Threads beyond the end repeat the computation of the
        last element and write nothing.
        """
        self.line(f"begin = {first}")
        with self.block(f"while begin < {last}:"):
            self.line(f"within = begin + {member} < {last}")
            move(f"min(begin + {member}, {last} - 1)")
            for step in section.steps:
                in_variable = step.kind == "keep" and self.spec.orientation == "columns"
                if step.kind == "scan":
                    self.scan_step(step, member)
                elif step.kind == "fold" or (step.kind in WRITES and not in_variable):
                    with self.block("if within:"):
                        self.emit_step(step)
                else:
                    self.emit_step(step)
            self.line(f"begin += {member}s")

    def scan_step(self, step: Instruction, member: str) -> None:
        """Emit the running sums of as many elements as there are members, as a tree through shared memory.
        The accumulator contains the sum of all preceding elements.
        """
        in_rows = member == "thread"
        cell, distance = ("thread", "step") if in_rows else ("cell", "step * threads")
        last_cell = "threads - 1" if in_rows else "(lines - 1) * threads + thread"
        dtype = self.spec.accumulators[step.position]
        combine = self.combining(step.function, dtype)
        shared, total, prefix = f"shared_{dtype}", f"t{step.position}", f"own{step.position}"
        value = f"v{step.args[0]}"
        self.line(f"{prefix} = {value if dtype == step.dtype else f'{self.type(dtype)}({value})'}")
        with self.block("if not within:"):
            self.line(f"{prefix} = {self.identity(step)}")
        self.line(f"{shared}[{cell}] = {prefix}")
        self.line(self.word("barrier"))
        self.line("step = 1")
        with self.block(f"while step < {member}s:"):
            with self.block(f"if {member} >= step:"):
                self.line(f"{prefix} = {combine}({shared}[{cell} - {distance}], {prefix})")
            self.line(self.word("barrier"))
            self.line(f"{shared}[{cell}] = {prefix}")
            self.line(self.word("barrier"))
            self.line("step = 2 * step")
        self.line(f"v{step.result} = {combine}({total}, {prefix})")
        self.line(f"{total} = {combine}({total}, {shared}[{last_cell}])")
        self.line(self.word("barrier"))

    # ---- shared memory

    def share(self) -> None:
        """Emit the shared-memory arrays for the accumulators of a block's threads, one array per dtype."""
        bytes_before = 0
        for dtype, size in shared_sizes(self.spec).items():
            threads = f"{self.word('threads_x')} * {self.word('threads_y')}"
            offset = f"{bytes_before} * {threads}" if bytes_before else "0"
            self.line(f"shared_{dtype} = {self.use('shared', WORDS)}({offset}, {self.type(dtype)})")
            bytes_before += size

    def wait_for_scans(self) -> None:
        """Emit a barrier in kernels with scans: other threads read results of the first one, and vice
        versa.
        """
        if any(step.kind == "scan" for section in self.spec.sections for step in section.steps):
            self.line(self.word("barrier"))

    def combine_threads(self, steps: Sequence[Instruction], member: str, cell: str) -> None:
        """Emit the combination of the accumulators of all threads that differ in `member`, as a tree.
        Every thread obtains the result. `cell`: the index of a thread's accumulator in shared memory.
        """
        distance, first = ("step", "0") if member == "thread" else ("step * threads", "thread")
        for step in steps:
            if step.kind == "fold":
                dtype = self.spec.accumulators[step.position]
                shared, total = f"shared_{memory_type(dtype)}", f"t{step.position}"
                combine, is_true = self.combining(step.function, dtype), " != 0" * (dtype == "bool")
                if self.is_compensated(step):
                    self.line(f"{total} = {self.accumulate('compensated')}({total}, e{step.position})")
                self.write(f"{shared}[{cell}]", total, dtype)
                self.line(self.word("barrier"))
                self.line(f"step = {member}s // 2")
                with self.block("while step > 0:"):
                    with self.block(f"if {member} < step:"):
                        operands = f"{shared}[{cell}]{is_true}, {shared}[{cell} + {distance}]{is_true}"
                        self.write(f"{shared}[{cell}]", f"{combine}({operands})", dtype)
                    self.line(self.word("barrier"))
                    self.line("step = step // 2")
                self.line(f"{total} = {shared}[{first}]{is_true}")
                self.line(self.word("barrier"))
