"""Random programs of statements, and their interpreter."""

from __future__ import annotations

import random
from typing import Any

from tracejit.loopnest.statements import (
    ApplyFunction,
    Assign,
    Choose,
    Offset,
    Register,
    Repeat,
    StatementBlock,
    StoreElement,
)
from tracejit.loopnest.visits import blocks_in, renamed

INPUTS = {0: 1, 1: 2, 2: 3}
"""Scalars that exist before a program, and their values."""

ROOT = Offset(-1, ())


def run(block: StatementBlock, scalars: dict[int, int], memory: list[int]) -> None:
    """Execute statements. A memory records everything that is stored."""
    for statement in block.statements:
        match statement:
            case ApplyFunction(result, _, _, args):
                scalars[result] = (sum((k + 1) * scalars[arg] for k, arg in enumerate(args)) + 1) % 97
            case StoreElement(_, _, value, _):
                memory.append(scalars[value])
            case Assign(variables, values):
                scalars.update(zip(variables, [scalars[value] for value in values], strict=True))
            case Choose(results, which, _, branches):
                branch = branches[scalars[which] % len(branches)]
                run(branch, scalars, memory)
                values = [scalars[value] for value in branch.values]
                scalars.update(zip(results, values, strict=True))
            case Repeat():
                run_loop(statement, scalars, memory)


def run_loop(loop: Repeat, scalars: dict[int, int], memory: list[int]) -> None:
    for register in loop.registers:
        scalars[register.variable] = scalars[register.first]
    for iteration in range(scalars[loop.trip_count] % 4):
        scalars[loop.iteration] = iteration
        run(loop.block, scalars, memory)
        if loop.block.values:
            values = [scalars[loop.block.values[r.value]] for r in loop.registers if r.value >= 0]
            variables = [register.variable for register in loop.registers if register.value >= 0]
            scalars.update(zip(variables, values, strict=True))
        for register in loop.registers:
            scalars[register.variable] += register.step if register.value < 0 else 0


class Programs:
    """Makes random programs."""

    def __init__(self, seed: int) -> None:
        self.random, self.count = random.Random(seed), 3

    def scalar(self) -> int:
        self.count += 1
        return self.count

    def some(self, visible: list[int], count: int) -> tuple[int, ...]:
        return tuple(self.random.choices(visible, k=count))

    def block(self, visible: list[int], depth: int, values: int) -> StatementBlock:
        """A block that returns `values` scalars, often old ones and results of its last statement."""
        before, visible, statements = visible, list(visible), list[Any]()
        results: list[int] = []
        for _ in range(self.random.randint(0, 3)):
            results = self.statement(visible, depth, statements) or results
            visible += results
        recent = [self.random.choice([*before[-4:], *results]) for _ in range(values)]
        return StatementBlock(tuple(statements), tuple(recent))

    def similar(self, block: StatementBlock, visible: list[int], depth: int) -> StatementBlock:
        """A block that ends like another one, with scalars of its own, but for some that it reads."""
        before = self.block(visible, depth - 1, 0).statements
        start = self.random.randint(0, len(block.statements))
        names: dict[int, int] = {}
        end = StatementBlock(block.statements[start:], block.values)
        for result in written(end):
            names[result] = self.scalar()
        own = [result for statement in before for result in results_of(statement)]
        missing = [result for statement in block.statements[:start] for result in results_of(statement)]
        for scalar in missing:
            names[scalar] = self.random.choice([*visible, *own])
        if self.random.random() < 0.5:
            names[self.random.choice(visible)] = self.random.choice([*visible, *own])
        copied = redefined(renamed(end, names), names)
        return StatementBlock((*before, *copied.statements), copied.values)

    def statement(self, visible: list[int], depth: int, statements: list[Any]) -> list[int]:
        """Add a statement, and return what it computes."""
        kind = self.random.choice(["apply", "store", "store", "choose", "choose", "repeat"])
        if kind == "store":
            statements.append(StoreElement(0, ROOT, *self.some(visible, 1), "int64"))
            return []
        if kind == "apply" or depth == 0:
            result = self.scalar()
            statements.append(ApplyFunction(result, "int64", "f", self.some(visible, 2)))
            return [result]
        if kind == "choose":
            results = [self.scalar() for _ in range(self.random.randint(0, 4))]
            count = self.random.randint(2, 3)
            branches = [self.block(visible, depth - 1, len(results)) for _ in range(count)]
            if self.random.random() < 0.5:
                branches[1] = self.similar(branches[0], visible, depth)
            statements.append(Choose(tuple(results), *self.some(visible, 1), count == 2, tuple(branches)))
            return results
        iteration, registers = self.scalar(), list[Register]()
        for number in range(self.random.randint(1, 4)):
            registers.append(Register(self.scalar(), "int64", *self.some(visible, 1), value=number))
        moving = Register(self.scalar(), "int64", *self.some(visible, 1), step=2)
        variables = [register.variable for register in registers]
        block = self.block([*visible, moving.variable, *variables], depth - 1, len(registers))
        statements.append(Repeat(*self.some(visible, 1), iteration, (*registers, moving), block, -1))
        return [*variables, moving.variable]


def results_of(statement: Any) -> list[int]:
    """The scalars that a statement computes for the statements after it."""
    match statement:
        case ApplyFunction():
            return [statement.result]
        case Choose():
            return list(statement.results)
        case Repeat():
            return [register.variable for register in statement.registers]
    return []


def written(block: StatementBlock) -> list[int]:
    """All scalars that a block computes."""
    found: list[int] = []
    for statement in block.statements:
        found += results_of(statement)
        found += [statement.iteration] if isinstance(statement, Repeat) else []
        for nested in blocks_in(statement):
            found += written(nested)
    return found


def redefined(block: StatementBlock, names: dict[int, int]) -> StatementBlock:
    """A block that computes the scalars `names` instead of others."""
    statements = []
    for statement in block.statements:
        match statement:
            case ApplyFunction():
                statement = statement._replace(result=names[statement.result])
            case Choose():
                branches = tuple(redefined(branch, names) for branch in statement.branches)
                results = tuple(names[result] for result in statement.results)
                statement = statement._replace(results=results, branches=branches)
            case Repeat():
                registers = tuple(r._replace(variable=names[r.variable]) for r in statement.registers)
                block_ = redefined(statement.block, names)
                iteration = names[statement.iteration]
                statement = statement._replace(registers=registers, block=block_, iteration=iteration)
        statements.append(statement)
    return StatementBlock(tuple(statements), block.values)


def stored(block: StatementBlock) -> list[int]:
    """What a program stores."""
    memory: list[int] = []
    run(block, dict(INPUTS), memory)
    return memory


def random_block(seed: int) -> tuple[StatementBlock, int]:
    """A random program, and the number of its scalars."""
    programs = Programs(seed)
    block = programs.block(list(INPUTS), depth=4, values=0)
    return block, programs.count + 1
