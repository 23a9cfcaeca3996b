"""Serial kernels: the source of a `SerialProgram`, one loop nest over scalar variables.

Names in the source: ``v0`` is a scalar, ``x0`` a pointer, ``n0`` an integer of a slot. The block contains the
program's slots, then those of `SerialSlot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.codegen.text import INDENT, KernelText, memory_type
from tracejit.loopnest.statements import (
    ApplyFunction,
    Assign,
    CheckIndex,
    Choose,
    LiteralNumber,
    LoadElement,
    Offset,
    Repeat,
    SerialProgram,
    SerialSlot,
    SlotNumber,
    StatementBlock,
    StoreElement,
)
from tracejit.loopnest.visits import blocks_in

CHECK_INTERVAL = 1 << 12
"""The number of iterations, those of nested loops included, between two checks whether the thread has other
work.
"""


MIN_NEIGHBOURS = 2
"""The number of stores next to others from which LLVM looks for vectors in straight code (see
`objects.build`).
"""


def emit_serial(program: SerialProgram, slot_count: int) -> str:
    """Return the source of ``kernel(block, lo, hi, scratch) -> status``. The block has `slot_count` slots,
    and one more.
    """
    return _SerialText(program, slot_count).source()


class _SerialText(KernelText):
    """The source text of a serial kernel."""

    def __init__(self, program: SerialProgram, slot_count: int):
        super().__init__()
        self.program, self.slot_count = program, slot_count
        self.slots: dict[int, str] = {}
        self.functions: dict[str, None] = {}
        self.loops: list[Repeat] = []  # that surround a statement, outermost first
        self.depth = 1
        self.copied = 0  # values
        self.counts_work = _depth(program.block) > 1
        self.neighbours = 0  # the stores whose offset differs from that of another element by a known number

    def source(self) -> str:
        """Return the complete file."""
        program, word = self.program, self.type("int64")
        self.statements(program.block.statements)
        body, self.lines = self.lines, []
        for n, (dtype, slot) in enumerate(program.memories):
            self.line(f"x{n} = {self.memory('pointer_slot')}(block, {slot}, {self.type(memory_type(dtype))})")
        for constant in program.constants:
            self.constant(constant)
        for slot, name in self.slots.items():
            self.line(f"{name} = {self.memory('slot')}(block, {slot})")
        self.line(f"status = {word}(0)")
        resume = self.slot_count + SerialSlot.RESUME
        self.line(f"begin = {self.memory('slot')}(block, {resume}) if lo else {word}(0)")
        self.lines += [f"{INDENT}work = {word}(0)"] * self.counts_work
        self.lines += body
        self.line("return status")
        summary = f"# serial: {', '.join(self.functions) or 'copy'}"
        summary = summary if len(summary) <= 110 else summary[:107] + "..."
        text = self.module(summary, ["def kernel(block, lo, hi, scratch):"])
        return text + "\n\nkernel.has_rows = True\n" if self.neighbours >= MIN_NEIGHBOURS else text

    def constant(self, constant: SlotNumber | LiteralNumber) -> None:
        """Emit a number that no statement changes."""
        result, dtype = f"v{constant.result}", constant.dtype
        if isinstance(constant, LiteralNumber):
            value = constant.value
            self.line(f"{result} = {value if dtype == 'bool' else f'{self.type(dtype)}({value})'}")
            return
        loaded = f"{self.memory('number_slot')}(block, {constant.slot}, {self.type(memory_type(dtype))})"
        self.line(f"{result} = {loaded}{' != 0' if dtype == 'bool' else ''}")

    def integer(self, slot: int) -> str:
        """Return the variable with the integer of a slot."""
        return self.slots.setdefault(slot, f"n{slot}")

    def offset(self, offset: Offset) -> str:
        """Return the offset of an element, as source text."""
        parts = [self.integer(offset.start)] if offset.start >= 0 else []
        parts += [f"v{v}" if n < 0 else f"v{v} * {self.integer(n)}" for v, n in offset.terms]
        parts += [str(offset.near)] * (offset.near > 0)
        return " + ".join(parts) or "0"

    # -- statements ------------------------------------------------------------------------------------------

    def statements(self, statements: Sequence[Any], is_outermost: bool = True) -> None:
        """Emit statements. `is_outermost`: whether loops among them are not within another one."""
        for statement in statements:
            match statement:
                case ApplyFunction(result, dtype, function, args):
                    self.functions[function] = None
                    arguments = ", ".join(f"v{arg}" for arg in args)
                    self.line(f"v{result} = {self.function(function, dtype)}({arguments})")
                case LoadElement(result, dtype, memory, offset):
                    loaded = f"x{memory}[{self.offset(offset)}]"
                    self.line(f"v{result} = {loaded}{' != 0' if dtype == 'bool' else ''}")
                case StoreElement(memory, offset, value, dtype):
                    stored = f"{self.type('uint8')}(v{value})" if dtype == "bool" else f"v{value}"
                    self.line(f"x{memory}[{self.offset(offset)}] = {stored}")
                    self.neighbours += offset.near > 0
                case Assign(variables, values):
                    self.assign(variables, values)
                case CheckIndex():
                    self.check(statement)
                case Choose():
                    self.choose(statement)
                case Repeat():
                    self.repeat(statement, is_outermost)
                case _:
                    raise AssertionError(f"no line for {statement}")

    def check(self, check: CheckIndex) -> None:
        """Emit the check of an index."""
        index, extent = f"v{check.checked}", self.integer(check.extent)
        word = self.type("int64")
        failure = [f"{word}({check.number})", index, *(f"v{loop.iteration}" for loop in self.loops)]
        with self.block(f"if {self.accumulate('out_of_range')}({index}, {extent}):"):
            for position, value in enumerate(failure):
                offset = 8 * (self.slot_count + SerialSlot.CHECK + position)
                self.line(f"{self.memory('store')}(block + {offset}, {value})")
            self.line(f"return {word}(1)")
        self.line(f"v{check.result} = {self.accumulate('wrapped_index')}({index}, {extent})")

    def choose(self, choice: Choose) -> None:
        """Emit branches."""
        numbers: tuple[int, ...]
        if choice.is_bool:
            numbers = (1, 0) if choice.branches[1].statements else (0, 1)
        else:
            numbers = tuple(range(len(choice.branches)))
        for position, number in enumerate(numbers):
            branch, condition = choice.branches[number], self.is_chosen(choice, number)
            header = f"{'elif' if position else 'if'} {condition}:"
            if position > 0 and position == len(numbers) - 1:
                if not branch.statements:
                    break
                header = "else:"
            with self.block(header):
                if number in choice.repeated:
                    self.inner_loop(choice, number)
                else:
                    self.statements(branch.statements, is_outermost=False)

    def is_chosen(self, choice: Choose, number: int, *, negated: bool = False) -> str:
        """Return the condition that a branch is chosen, or its negation."""
        if not choice.is_bool:
            return f"v{choice.which} {'!=' if negated else '=='} {number}"
        return f"v{choice.which}" if bool(number) != negated else f"not v{choice.which}"

    def inner_loop(self, choice: Choose, number: int) -> None:
        """Emit a branch that is run until another one is chosen. It is left, too, in the loop's last
        iteration, and when the loop is to check whether the thread has other work.
        """
        loop, word = self.loops[-1], self.type("int64")
        iteration, continues = f"v{loop.iteration}", f"v{loop.registers[loop.until].variable}"
        with self.block("while True:"):
            self.statements(choice.branches[number].statements, is_outermost=False)
            leaves = self.is_chosen(choice, number, negated=True)
            if choice.again:
                with self.block(f"if not {continues}:"):
                    self.line("break")
                self.statements(choice.again, is_outermost=False)
                with self.block(f"if {leaves}:"):
                    self.line("break")
            else:
                with self.block(f"if {leaves} or not {continues}:"):
                    self.line("break")
            self.line(f"following = {iteration} + {word}(1)")
            with self.block(f"if following & {CHECK_INTERVAL - 1} == 0 or following >= v{loop.trip_count}:"):
                self.line("break")
            if self.counts_work:
                self.line(f"work += {word}(1)")
            self.next_iteration(loop)

    def assign(self, variables: Sequence[int], values: Sequence[int]) -> None:
        """Assign values to variables, in parallel: a value that an assignment before replaces is copied."""
        replaced, copies = set[int](), dict[int, str]()
        for variable, value in zip(variables, values, strict=True):
            if value in replaced and value not in copies:
                copies[value] = f"w{self.copied}"
                self.copied += 1
                self.line(f"{copies[value]} = v{value}")
            replaced.add(variable)
        for variable, value in zip(variables, values, strict=True):
            self.line(f"v{variable} = {copies.get(value, f'v{value}')}")

    def repeat(self, loop: Repeat, is_outermost: bool) -> None:
        """Emit a loop."""
        word, iteration = self.type("int64"), f"v{loop.iteration}"
        begin = "begin" if is_outermost else f"{word}(0)"
        for register in loop.registers:
            name = f"v{register.variable}"
            self.line(f"{name} = v{register.first}")
            if register.value < 0 and is_outermost:  # not in the first call: -0.0 would become 0.0
                self.line(f"{name} = {self.grown(register, 'begin')} if lo else {name}")
        self.line(f"{iteration} = {begin}")
        with self.block(f"while {iteration} < v{loop.trip_count}:"):
            self.loops.append(loop)
            self.statements(loop.block.statements, is_outermost=False)
            self.loops.pop()
            if loop.until >= 0:
                with self.block(f"if not v{loop.registers[loop.until].variable}:"):
                    self.line("break")
            self.next_iteration(loop)
            if is_outermost:
                self.leave(loop, iteration)
        if not is_outermost:
            self.line(f"work += {iteration}")

    def next_iteration(self, loop: Repeat) -> None:
        """Emit the steps of the induction variables."""
        one = f"{self.type('int64')}(1)"
        for register in loop.registers:
            if register.value < 0:
                self.line(f"v{register.variable} = {self.grown(register, one)}")
        self.line(f"v{loop.iteration} += {one}")

    def grown(self, register: Any, iterations: str) -> str:
        """Return an induction variable after a number of iterations, as source text."""
        number, step = self.type(register.dtype), self.integer(register.step)
        return f"{number}(v{register.variable} + {number}({step} * {iterations}))"

    def leave(self, loop: Repeat, iteration: str) -> None:
        """Emit the check whether the thread has other work. `counts_work`: whether `work` counts the
        iterations since the last check, because there are nested loops.
        """
        left, must_leave = self.use("LEFT", LAYOUT), self.use("must_leave", TEAM)
        condition, word = f"{iteration} < v{loop.trip_count}", self.type("int64")
        if self.counts_work:
            self.line(f"work += {word}(1)")
            self.line(f"is_due = work >= {CHECK_INTERVAL}")
            self.line(f"work = {word}(0) if is_due else work")
            condition = f"is_due and {condition}"
        else:
            condition = f"{iteration} & {CHECK_INTERVAL - 1} == 0 and {condition}"
        with self.block(f"if {condition} and {must_leave}(scratch) != 0:"):
            offset = 8 * (self.slot_count + SerialSlot.RESUME)
            self.line(f"{self.memory('store')}(block + {offset}, {iteration})")
            self.line(f"status = {word}({left})")
            self.line("break")


def _depth(block: StatementBlock) -> int:
    """Return the depth of the nested loops in a block."""
    return max(
        (
            isinstance(statement, Repeat) + max(map(_depth, blocks_in(statement)), default=0)
            for statement in block.statements
        ),
        default=0,
    )


LAYOUT, TEAM = "tracejit.kernels.executor.layout", "tracejit.kernels.executor.team"
