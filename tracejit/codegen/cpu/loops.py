"""The parts that all kernels for the CPU share: the innermost loop, its steps, and reductions.

Rules that keep the innermost loop fast: it is a bare ``for i in independent(a, b)``, as a round writes
nothing that another one reads (buffers are disjoint, or the same and indexed alike); loop-invariant steps are
hoisted; there is one pointer for each buffer; sums of floats run in blocks of `SUM_BLOCK` elements, whose
additions may be reordered, and the blocks add up in float64 (float32) or with compensation (float64).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tracejit.codegen.cpu.sweep import store_in_ring
from tracejit.codegen.spec import BLOCK, Instruction, Section
from tracejit.codegen.text import SourceText, has_trait, identity, is_compensated, moving_results
from tracejit.ir.op import ANY_ORDER, COMPENSATED, HIGHEST, LOWEST, OPS, PRODUCT, QUOTIENT

SUM_BLOCK = 2048
"""Elements of a block of a sum: 32 for each lane of the four vectors that a processor with AVX-512 adds to.
The end of a block, where the lanes are added up, takes as long as 250 elements; longer blocks are less exact.
"""

Placed = tuple[dict[int, str], Instruction]
"""A step, and for each layout the variable that holds its place outside the lane."""


def is_float(dtype: str) -> bool:
    """Whether this names a floating dtype that kernels compute in: complex and half ones are none."""
    return dtype in ("float32", "float64")


class LoopText(SourceText):
    """The text of a CPU kernel."""

    def scratch_pointers(self) -> None:
        """Rows of a ROWS kernel, transposed tiles of a MAP kernel, blocks to be streamed."""
        spec = self.spec
        rows = [(f"row{n}", dtype) for n, dtype in enumerate(spec.rows)] * (spec.orientation == "rows")
        tiles = [(f"tile{n}", spec.pointers[access.pointer]) for n, access in enumerate(spec.tiles)]
        stages = [(f"stage{n}", dtype) for n, dtype in enumerate(spec.stages)]
        for name, dtype in rows + tiles + stages:
            self.pointer(name, f"scratch + {name}_at", dtype)

    # ---- loops

    def independent(self) -> str:
        """The range of a loop whose iterations share nothing in memory."""
        return self.use("independent", "tracejit.kernels.compiler.ranges")

    def lane_loop(self, section: Section, first: str, last: str, before: Sequence[Placed] = ()) -> None:
        """The innermost loop over the steps `before`, of the row before, and those of `section`, with
        loop-invariant steps hoisted before it; in blocks if it adds floats or streams.
        """
        inside = self.hoist([*before, *((self.bases, step) for step in section.steps)])
        sums = [s for _, s in inside if self.is_blocked(s)]
        streams = [(bases, s) for bases, s in inside if s.kind == "stream"]
        if not sums and not streams:
            self.bare_loop(inside, first, last)
            return
        size = BLOCK if streams else SUM_BLOCK
        with self.block(f"for start in range({first}, {last}, {size}):"):
            for step in sums:
                self.line(f"b{step.position} = {identity(step.function, self.use_type(step.dtype))}")
            self.line(f"stop = min(start + {size}, {last})")
            self.bare_loop(inside, "start", "stop")
            for step in sums:
                self.add_block(step)
            early = [placed for placed in streams if placed in before and section.steps]
            for bases, step in streams:
                if (bases, step) not in early:
                    self.stream(bases, step)
            if early:
                with self.block("if unit > lo:"):
                    for bases, step in early:
                        self.stream(bases, step)

    def hoist(self, placed: Sequence[Placed]) -> list[Placed]:
        """Write the loop-invariant steps of a loop along the lane; returns the others."""
        moving = moving_results(self.spec, [step for _, step in placed])
        inside = [(bases, s) for bases, s in placed if s.result in moving or s.result < 0]
        for bases, step in placed:
            if (bases, step) not in inside:
                self.step_at(bases, step)
        return inside

    def bare_loop(self, inside: Sequence[Placed], first: str, last: str) -> None:
        """The steps `inside` for each index along the lane."""
        moving = {step.result for _, step in inside}
        divided = [
            s
            for _, s in inside
            if s.kind == "apply"
            and has_trait(s.function, QUOTIENT)
            and s.args[1] not in moving
            and is_float(s.dtype)
        ]
        products = self.summed_products([step for _, step in inside])
        for step in divided:
            number = self.type(step.dtype)
            quotient = self.function(step.function, step.dtype)
            self.line(f"r{step.result} = {quotient}({number}(1), v{step.args[1]})")
        with self.block(f"for i{self.spec.lane} in {self.independent()}({first}, {last}):"):
            self.in_lane = True
            for bases, step in inside:
                if step in divided:
                    self.divide(step)
                elif self.is_blocked(step) and step.args[0] in products:
                    self.add_product(step, products[step.args[0]])
                elif step.result not in products:
                    self.step_at(bases, step)
            self.in_lane = False

    def summed_products(self, steps: Sequence[Instruction]) -> dict[int, Instruction]:
        """The products, by the numbers of their values, each of which is used in one sum only."""
        readers = Counter(a for step in steps for a in step.args)
        made = {step.result: step for step in steps if step.kind == "apply"}
        summed = {step.args[0]: step.dtype for step in steps if self.is_blocked(step)}
        return {
            value: made[value]
            for value, dtype in summed.items()
            if value in made
            and has_trait(made[value].function, PRODUCT)
            and made[value].dtype == dtype
            and readers[value] == 1
        }

    def add_product(self, fold: Instruction, product: Instruction) -> None:
        """Add a product to the sum of its block, in one instruction where there is one."""
        x, y = product.args[0], product.args[-1]
        block = f"b{fold.position}"
        self.line(f"{block} = {self.accumulate('multiply_add_reassoc')}(v{x}, v{y}, {block})")

    def step_at(self, bases: dict[int, str], step: Instruction) -> None:
        """One step where layouts have the places `bases`."""
        here, self.bases = self.bases, bases
        self.row_step(step)
        self.bases = here

    def divide(self, step: Instruction) -> None:
        """Divide by a loop-invariant value, whose reciprocal is known."""
        quotient = self.use("quotient", "tracejit.kernels.streams.quotient")
        x, y = step.args
        self.line(f"v{step.result} = {quotient}(v{x}, v{y}, r{step.result})")

    def row_step(self, step: Instruction) -> None:
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

    def stream(self, bases: dict[int, str], step: Instruction) -> None:
        """Move a block of results from its stage to memory."""
        assert step.access is not None
        stream, base = self.use("stream", "tracejit.kernels.streams.stream"), bases[step.access.layout]
        first = f"{base} + start" if base else "start"
        self.line(f"{stream}(x{step.access.pointer}, {first}, stage{step.position}, 0, stop - start)")

    def prefetch(self, step: Instruction) -> None:
        """Prefetch elements some rows, or elements, further."""
        assert step.access is not None
        spec, layout, further = self.spec, step.access.layout, str(step.position)
        if step.function == "rows":
            around = spec.kept + spec.reduced - 1 if spec.orientation == "columns" else spec.lane - 1
            stride = f"s{layout}_{around}"
            further = stride if step.position == 1 else f"{stride} * {step.position}"
        place = " + ".join(filter(None, [self.bases[layout], further if step.position else ""]))
        name = "prefetch_written" if step.function == "written" else "prefetch"
        prefetch = self.use(name, "tracejit.kernels.streams.prefetch")
        self.line(f"{prefetch}(x{step.access.pointer}, {place or 0}, i{spec.lane})")

    def scratch_row(self, row: int) -> str:
        """The element of a scratch row for the current index."""
        if self.spec.orientation == "columns":
            return f"row{row}[i{self.spec.lane}]"
        at = f"i{self.spec.lane}"
        return f"row{row}[{at}]" if self.spec.reduced == 1 else f"row{row}[line + {at}]"

    # ---- reductions

    def is_blocked(self, step: Instruction) -> bool:
        in_rows = self.spec.orientation == "rows"
        return in_rows and step.kind == "fold" and is_compensated(step.function) and is_float(step.dtype)

    def is_ranked(self, step: Instruction) -> bool:
        """Whether an extreme of floats is computed on integers, for which processors have an instruction."""
        in_rows = self.spec.orientation == "rows" and step.kind in ("fold", "finish")
        return in_rows and OPS[step.function].accumulation in (HIGHEST, LOWEST) and is_float(step.dtype)

    def is_lowest(self, step: Instruction) -> bool:
        """Whether an extreme among integers is that of the negatives."""
        return OPS[step.function].accumulation is LOWEST

    def fold(self, step: Instruction, value: str) -> None:
        """Add `value` to an accumulator."""
        accumulator, dtype = f"t{step.position}", self.spec.accumulators[step.position]
        if self.spec.orientation == "columns":
            element = f"{accumulator}[i{self.spec.lane}]"
            value = value if dtype == step.dtype else f"{self.type(dtype)}({value})"
            combine = self.combining(step.function, dtype)
            before = f"{element} != 0" if dtype == "bool" else element
            self.write(element, f"{combine}({before}, {value})", dtype)
            return
        if self.is_ranked(step):
            negative = f"{self.function('negative', dtype)}({value})" if self.is_lowest(step) else value
            rank = f"{self.accumulate(f'rank_{dtype}')}({negative})"
            self.line(f"{accumulator} = {self.function('maximum', dtype)}({accumulator}, {rank})")
            return
        if self.is_blocked(step):
            accumulator = f"b{step.position}"
        op = OPS[step.function]
        reordered = op.accumulation in (ANY_ORDER, COMPENSATED) and is_float(step.dtype)
        combine = (
            self.accumulate(f"{op.kernel}_reassoc")
            if reordered
            else self.combining(step.function, step.dtype)
        )
        self.line(f"{accumulator} = {combine}({accumulator}, {value})")

    def scan(self, step: Instruction, value: str) -> None:
        """The running sum up to here."""
        add = self.combining(step.function, step.dtype)
        accumulator = f"t{step.position}"
        if self.spec.orientation == "columns":
            accumulator += f"[i{self.spec.lane}]"
        self.line(f"v{step.result} = {add}({accumulator}, {value})")
        self.line(f"{accumulator} = v{step.result}")

    def finish_fold(self, step: Instruction) -> None:
        """The result of a reduction."""
        accumulator, dtype = f"t{step.position}", self.spec.accumulators[step.position]
        if self.spec.orientation == "columns":
            accumulator += f"[i{self.spec.lane}]"
            result = f"{accumulator} != 0" if dtype == "bool" else accumulator
        elif is_compensated(step.function) and dtype == step.dtype == "float64":
            result = f"{self.accumulate('compensated')}({accumulator}, e{step.position})"
        elif self.is_ranked(step):
            result = f"{self.accumulate(f'float_of_rank_{dtype}')}({accumulator})"
            result = f"{self.function('negative', dtype)}({result})" if self.is_lowest(step) else result
        else:
            result = accumulator
        self.line(
            f"v{step.result} = {result if dtype == step.dtype else f'{self.type(step.dtype)}({result})'}"
        )

    def add_block(self, step: Instruction) -> None:
        """Add the sum of a block to the total."""
        total, part = f"t{step.position}", f"b{step.position}"
        if step.dtype == "float64":
            error = f"{self.accumulate('sum_error')}({total}, {part})"
            self.line(f"e{step.position} = e{step.position} + {error}")
            self.line(f"{total} = {total} + {part}")
        else:
            self.line(f"{total} = {total} + {self.type('float64')}({part})")
