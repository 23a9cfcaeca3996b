"""Random launches and pushes over random variables give what running them one after the other gives."""

import random
import threading

import numpy as np
import pytest

from tests.engine.programs import pack, task
from tracejit import engine
from tracejit.engine import FRESH, NUMBER, READ, WRITE, Program, Variable

CELLS = 6
MASK = (1 << 64) - 1


def combine(target, source, number):
    return (target * 31 + source * 7 + number) & MASK


class World:
    """Cells of memory with a variable each, next to the values that serial execution gives them."""

    def __init__(self, rng):
        self.memory = np.array([rng.randrange(1 << 20) for _ in range(CELLS)], np.int64)
        self.variables = [Variable(f"cell {i}") for i in range(CELLS)]
        self.expected = [int(value) for value in self.memory]

    def address(self, cell):
        return self.memory.ctypes.data + 8 * cell

    def mix_expected(self, target, source, number):
        self.expected[target] = combine(self.expected[target], self.expected[source], number)

    def check(self):
        assert [int(value) & MASK for value in self.memory] == self.expected


def make_program(rng, steps, cost, devices=1):
    """Steps (target, source) over arguments that may be any cells: each follows all it shares one with.

    They run on lanes chosen by chance.
    """
    tasks, width = [], max(max(step) for step in steps) + 1
    patches = []
    for i, (target, source) in enumerate(steps):
        after = [j for j in range(i) if {target, source} & set(steps[j])]
        uses = sorted({target, source})
        if rng.random() < 0.3:
            uses *= 2  # a repeated use changes nothing
        priority = rng.randrange(3)
        lane = rng.randrange(devices)
        tasks.append(task("mix", 3 * i, after=after, uses=uses, cost=cost, priority=priority, lane=lane))
        patches += [(3 * i, target, 0), (3 * i + 1, source, 0), (3 * i + 2, width, i)]
    written = {target for target, _ in steps}
    modes = [WRITE if i in written else READ for i in range(width)]
    return Program(tasks, [0] * (3 * len(steps)), patches, arguments=[*modes, NUMBER]), modes


def launch_random(world, rng, programs):
    program, modes, steps = rng.choice(programs)
    cells = rng.sample(range(CELLS), len(modes))
    number = rng.randrange(1000)
    values = [(world.address(cell), world.variables[cell]) for cell in cells]
    program.launch(pack(*values, (number, None)), world)
    for i, (target, source) in enumerate(steps):
        world.mix_expected(cells[target], cells[source], number + i)


def push_random(world, rng):
    target, source = rng.randrange(CELLS), rng.randrange(CELLS)
    number = rng.randrange(1000)
    variables = world.variables

    def run():
        value = combine(int(world.memory[target]) & MASK, int(world.memory[source]) & MASK, number)
        world.memory[target] = np.uint64(value).astype(np.int64)

    reads = {target, source}
    engine.push(run, [variables[i] for i in reads], [variables[target]], rng.randrange(3))
    world.mix_expected(target, source, number)


@pytest.mark.parametrize(
    ("workers", "devices"), [(0, 1), (1, 1), (2, 1), (3, 1), (8, 1), (0, 3), (1, 3), (2, 2)]
)
@pytest.mark.parametrize("cost", [0, 1 << 30])
def test_random_work_equals_serial_execution(workers, devices, cost):
    engine.set_workers(workers)
    rng = random.Random(workers * 7 + (cost > 0))
    programs = []
    for _ in range(6):
        width = rng.randrange(1, CELLS)
        steps = [(rng.randrange(width), rng.randrange(width)) for _ in range(rng.randrange(1, 12))]
        programs.append((*make_program(rng, steps, cost, devices), steps))
    for _ in range(6):
        world = World(rng)
        for _ in range(60):
            if rng.random() < 0.25:
                push_random(world, rng)
            else:
                launch_random(world, rng, programs)
            if rng.random() < 0.05:
                engine.wait(rng.choice(world.variables))
        engine.wait_all()
        world.check()


@pytest.mark.parametrize("cost", [0, 1 << 30])
def test_two_arguments_with_one_variable(cost):
    """An alias is enrolled once, as reader and writer at once."""
    rng = random.Random(3)
    program, _ = make_program(rng, [(0, 1), (1, 0), (0, 0)], cost)
    world = World(rng)
    cell = (world.address(2), world.variables[2])
    for number in range(200):
        program.launch(pack(cell, cell, (number, None)), world)
        for i in range(3):
            world.mix_expected(2, 2, number + i)
        if number % 3 == 0:
            push_random(world, rng)
    engine.wait_all()
    world.check()


@pytest.mark.parametrize("cost", [0, 1 << 30])
def test_many_threads_launch_one_program(cost):
    engine.set_workers(2)
    program, _ = make_program(random.Random(0), [(0, 0), (0, 0)], cost)
    worlds = [World(random.Random(i)) for i in range(6)]
    shared, memory = Variable("shared"), np.zeros(1, np.int64)
    count = Program(
        [task("mix", uses=(0,), cost=cost)], [0, 0, 0], [(0, 0, 0), (1, 1, 0)], arguments=[WRITE, NUMBER]
    )
    one = np.ones(1, np.int64)
    memory[0] = 0

    def launch_often(world):
        for number in range(100):
            program.launch(pack((world.address(0), world.variables[0]), (number, None)), world)
            world.mix_expected(0, 0, number)
            world.mix_expected(0, 0, number + 1)
            count.launch(pack((memory.ctypes.data, shared), (one.ctypes.data, None)), (shared, memory, one))
        engine.wait(world.variables[0])
        world.check()

    errors = []

    def guarded(world):
        try:
            launch_often(world)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(world,)) for world in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    engine.wait(shared)
    expected = 0
    for _ in range(600):
        expected = combine(expected, 1, 0)
    assert int(memory[0]) & MASK == expected


@pytest.mark.parametrize("workers", [0, 1, 3, 8])
def test_chunks_cover_all_units_once_whatever_the_workers(workers):
    engine.set_workers(workers)
    units = 1000
    for chunk in (1, 7, 1000, 2000):
        values, variable = np.full(units, -1, np.int64), Variable()
        program = Program(
            [task("fill", 0, units, chunk, uses=(0,), cost=1 << 30)],
            [0, 0, 5],
            [(0, 0, 0)],
            scratch_bytes=8 * units,
            arguments=[FRESH],
        )
        for _ in range(5):
            values[:] = -1
            program.launch(pack((values.ctypes.data, variable)), (values, variable))
            engine.wait(variable)
            np.testing.assert_array_equal(values, np.arange(5, 5 + units))
