"""Code shared by all CPU kernels: the innermost loop, its steps, and reductions.

These rules keep the innermost loop fast:

- It is a plain ``for i in independent(a, b)``: no iteration writes an element that another one reads, because
  two buffers are either disjoint or identical and indexed alike.
- Loop-invariant steps are hoisted.
- Each buffer has one pointer.
- Floats are summed in blocks of `SUM_BLOCK` elements. Additions within a block may be reordered; the sums of
  the blocks are accumulated in float64 (for float32) or with compensation (for float64).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tracejit.codegen.cpu.sweep import store_in_ring
from tracejit.codegen.spec import BLOCK, Instruction, Section
from tracejit.codegen.text import SourceText, has_trait, identity, is_compensated, moving_results
from tracejit.ir.op import ANY_ORDER, COMPENSATED, HIGHEST, LOWEST, OPS, PRODUCT, QUOTIENT

SUM_BLOCK = 2048
"""The number of elements in a block of a sum: 32 for each lane of the four vector accumulators that a
processor with AVX-512 uses. Combining the lanes at the end of a block takes as long as adding 250
elements; longer blocks are less accurate.
"""

AddressedStep = tuple[dict[int, str], Instruction]
"""A step, and for each layout the variable that contains its base offset, the offset without the innermost
index.
"""


def is_float(dtype: str) -> bool:
    """Return whether `dtype` is a floating dtype that kernels compute in; complex and half-precision
    dtypes are not.
    """
    return dtype in ("float32", "float64")


class LoopText(SourceText):
    """The source text of a CPU kernel."""

    def scratch_pointers(self) -> None:
        """Emit the pointers into scratch memory: to the rows of a ROWS kernel, the transposed tiles of a
        MAP kernel, and the stages of streamed results.
        """
        spec = self.spec
        rows = [(f"row{n}", dtype) for n, dtype in enumerate(spec.rows)] * (spec.orientation == "rows")
        tiles = [(f"tile{n}", spec.pointers[access.pointer]) for n, access in enumerate(spec.tiles)]
        stages = [(f"stage{n}", dtype) for n, dtype in enumerate(spec.stages)]
        for name, dtype in rows + tiles + stages:
            self.pointer(name, f"scratch + {name}_at", dtype)

    # ---- loops

    def independent(self) -> str:
        """Return the name of the range for loops whose iterations have no memory dependences on one
        another.
        """
        return self.use("independent", "tracejit.kernels.compiler.ranges")

    def innermost_loop(
        self, section: Section, first: str, last: str, before: Sequence[AddressedStep] = ()
    ) -> None:
        """Emit the innermost loop over the steps `before`, which belong to the previous row, and the steps
        of `section`. Loop-invariant steps are hoisted. The loop is blocked if it sums floats or streams
        results.
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

    def hoist(self, placed: Sequence[AddressedStep]) -> list[AddressedStep]:
        """Emit the loop-invariant steps of an innermost loop, and return the remaining ones."""
        moving = moving_results(self.spec, [step for _, step in placed])
        inside = [(bases, s) for bases, s in placed if s.result in moving or s.result < 0]
        for bases, step in placed:
            if (bases, step) not in inside:
                self.step_at(bases, step)
        return inside

    def bare_loop(self, inside: Sequence[AddressedStep], first: str, last: str) -> None:
        """Emit the innermost loop, which executes the steps `inside` for each index."""
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
        with self.block(f"for i{self.spec.innermost} in {self.independent()}({first}, {last}):"):
            self.in_innermost = True
            for bases, step in inside:
                if step in divided:
                    self.divide(step)
                elif self.is_blocked(step) and step.args[0] in products:
                    self.add_product(step, products[step.args[0]])
                elif step.result not in products:
                    self.step_at(bases, step)
            self.in_innermost = False

    def summed_products(self, steps: Sequence[Instruction]) -> dict[int, Instruction]:
        """Return the products whose only use is a sum, by the numbers of their values."""
        readers = Counter(a for step in steps for a in step.args)
        producers = {step.result: step for step in steps if step.kind == "apply"}
        summed = {step.args[0]: step.dtype for step in steps if self.is_blocked(step)}
        return {
            value: producers[value]
            for value, dtype in summed.items()
            if value in producers
            and has_trait(producers[value].function, PRODUCT)
            and producers[value].dtype == dtype
            and readers[value] == 1
        }

    def add_product(self, fold: Instruction, product: Instruction) -> None:
        """Emit the addition of a product to the sum of its block, as a fused multiply-add where the target
        has one.
        """
        x, y = product.args[0], product.args[-1]
        block = f"b{fold.position}"
        self.line(f"{block} = {self.accumulate('multiply_add_reassoc')}(v{x}, v{y}, {block})")

    def step_at(self, bases: dict[int, str], step: Instruction) -> None:
        """Emit one step with `bases` as the base offsets of the layouts."""
        current, self.bases = self.bases, bases
        self.row_step(step)
        self.bases = current

    def divide(self, step: Instruction) -> None:
        """Emit a division by a loop-invariant value, whose reciprocal has been computed before the loop."""
        quotient = self.use("quotient", "tracejit.kernels.streams.quotient")
        x, y = step.args
        self.line(f"v{step.result} = {quotient}(v{x}, v{y}, r{step.result})")

    def row_step(self, step: Instruction) -> None:
        """Emit one step; accumulators and scratch rows are those of CPU kernels."""
        value = f"v{step.args[0]}" if step.args else ""
        match step.kind:
            case "keep":
                self.write(self.scratch_row(step.position), value, step.dtype)
            case "recall":
                self.read(step, self.scratch_row(step.position))
            case "tile":
                self.read(step, f"tile{step.position}[line + i{self.spec.innermost}]")
            case "stream":
                self.write(f"stage{step.position}[i{self.spec.innermost} - start]", value, step.dtype)
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
        """Emit the non-temporal copy of a block of results from its stage to memory."""
        assert step.access is not None
        stream, base = self.use("stream", "tracejit.kernels.streams.stream"), bases[step.access.layout]
        first = f"{base} + start" if base else "start"
        self.line(f"{stream}(x{step.access.pointer}, {first}, stage{step.position}, 0, stop - start)")

    def prefetch(self, step: Instruction) -> None:
        """Emit a prefetch at the step's distance ahead, in rows or in elements."""
        assert step.access is not None
        spec, layout, distance = self.spec, step.access.layout, str(step.position)
        if step.function == "rows":
            around = spec.kept + spec.reduced - 1 if spec.orientation == "columns" else spec.innermost - 1
            stride = f"s{layout}_{around}"
            distance = stride if step.position == 1 else f"{stride} * {step.position}"
        offset = " + ".join(filter(None, [self.bases[layout], distance if step.position else ""]))
        name = "prefetch_written" if step.function == "written" else "prefetch"
        prefetch = self.use(name, "tracejit.kernels.streams.prefetch")
        self.line(f"{prefetch}(x{step.access.pointer}, {offset or 0}, i{spec.innermost})")

    def scratch_row(self, row: int) -> str:
        """Return the element of a scratch row at the current index."""
        if self.spec.orientation == "columns":
            return f"row{row}[i{self.spec.innermost}]"
        index = f"i{self.spec.innermost}"
        return f"row{row}[{index}]" if self.spec.reduced == 1 else f"row{row}[line + {index}]"

    # ---- reductions

    def is_blocked(self, step: Instruction) -> bool:
        in_rows = self.spec.orientation == "rows"
        return in_rows and step.kind == "fold" and is_compensated(step.function) and is_float(step.dtype)

    def is_ranked(self, step: Instruction) -> bool:
        """Return whether a minimum or maximum of floats is computed on order-preserving integer ranks, for
        which processors have an instruction.
        """
        in_rows = self.spec.orientation == "rows" and step.kind in ("fold", "finish")
        return in_rows and OPS[step.function].accumulation in (HIGHEST, LOWEST) and is_float(step.dtype)

    def is_lowest(self, step: Instruction) -> bool:
        """Return whether a ranked extreme is a minimum, which is computed as the maximum of the negated
        values.
        """
        return OPS[step.function].accumulation is LOWEST

    def fold(self, step: Instruction, value: str) -> None:
        """Emit the accumulation of `value`."""
        accumulator, dtype = f"t{step.position}", self.spec.accumulators[step.position]
        if self.spec.orientation == "columns":
            element = f"{accumulator}[i{self.spec.innermost}]"
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
        """Emit the running sum up to and including the current element."""
        add = self.combining(step.function, step.dtype)
        accumulator = f"t{step.position}"
        if self.spec.orientation == "columns":
            accumulator += f"[i{self.spec.innermost}]"
        self.line(f"v{step.result} = {add}({accumulator}, {value})")
        self.line(f"{accumulator} = v{step.result}")

    def finish_fold(self, step: Instruction) -> None:
        """Emit the result of a reduction, from its accumulator."""
        accumulator, dtype = f"t{step.position}", self.spec.accumulators[step.position]
        if self.spec.orientation == "columns":
            accumulator += f"[i{self.spec.innermost}]"
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
        """Emit the addition of a block's sum to the total."""
        total, block = f"t{step.position}", f"b{step.position}"
        if step.dtype == "float64":
            error = f"{self.accumulate('sum_error')}({total}, {block})"
            self.line(f"e{step.position} = e{step.position} + {error}")
            self.line(f"{total} = {total} + {block}")
        else:
            self.line(f"{total} = {total} + {self.type('float64')}({block})")
