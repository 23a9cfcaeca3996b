"""Programs: patches, arenas, scratch, small launches, look-ahead, what they refuse."""

import ctypes
import gc
import itertools
import struct
import threading
import time
import weakref

import numpy as np
import pytest

from tests.engine.programs import addresses, pack, task
from tracejit import engine
from tracejit.config import config
from tracejit.engine import (
    ARENA,
    FINISHED,
    FRESH,
    NUMBER,
    OVERWRITE,
    READ,
    WRITE,
    Program,
    Task,
    Variable,
    native,
    threads,
)
from tracejit.engine.launches import IN_FLIGHT
from tracejit.errors import ArgumentError, EngineError
from tracejit.kernels.executor.layout import NEEDS_SCRATCH, THREAD_SCRATCH_BYTES

BIG = 1 << 30


@pytest.mark.parametrize("cost", [0, BIG])
def test_patches_give_addresses_with_offsets_and_numbers(cost):
    memory, variable = np.arange(10, dtype=np.int64), Variable()
    program = Program(
        [task("mix", 3, uses=(0,), cost=cost)],
        [0, 0, 0, 0, 0, 4],
        [(3, 0, 16), (4, 0, 40), (5, 1, 1)],
        arguments=[WRITE, NUMBER],
    )
    program.launch(pack((memory.ctypes.data, variable), (100, None)), (memory, variable))
    engine.wait(variable)
    assert memory[2] == 2 * 31 + 5 * 7 + 101
    assert list(memory[:2]) == [0, 1]


@pytest.mark.parametrize("cost", [0, BIG])
def test_every_launch_in_flight_has_an_arena_of_its_own(cost):
    """Two steps through the arena: fill it, then read it back; overlapping launches do not mix."""
    tasks = [
        task("fill", 0, 64, 8, cost=cost),
        task("mix", 3, after=(0,), uses=(0,), cost=cost),
    ]
    program = Program(
        tasks,
        [0] * 6,
        [(0, ARENA, 128), (2, 1, 0), (3, 0, 0), (4, ARENA, 128 + 8 * 63)],
        arena_bytes=128 + 8 * 64,
        scratch_bytes=64,
        arguments=[WRITE, NUMBER],
    )
    memory, variables = np.zeros(50, np.int64), [Variable() for _ in range(50)]
    for i, variable in enumerate(variables):
        program.launch(pack((memory.ctypes.data + 8 * i, variable), (1000 * i, None)), (memory, variable))
    engine.wait_all()
    np.testing.assert_array_equal(memory, (np.arange(50) * 1000 + 63) * 7)


def test_small_launches_end_inside_the_call():
    memory, variable = np.zeros(2, np.int64), Variable()
    program = Program([task("mix", uses=(0,), cost=0)], [0, 0, 9], [(0, 0, 0), (1, 0, 8)], arguments=[WRITE])
    program.launch(pack((memory.ctypes.data, variable)), (memory, variable))
    assert memory[0] == 9


def test_the_worker_needs_no_waiting_thread():
    engine.set_workers(1)
    memory, variable = np.zeros(2, np.int64), Variable()
    program = Program(
        [task("mix", uses=(0,), cost=BIG)], [0, 0, 9], [(0, 0, 0), (1, 0, 8)], arguments=[WRITE]
    )
    for turn in range(20):
        memory[0] = 0
        time.sleep(0.001 * (turn % 2))  # with and without time to fall asleep
        program.launch(pack((memory.ctypes.data, variable)), (memory, variable))
        end = time.monotonic() + 10
        while memory[0] != 9:
            assert time.monotonic() < end
            time.sleep(1e-4)


def test_an_empty_task_and_an_empty_program():
    variable = Variable()
    for cost in (0, BIG):
        tasks = [
            task("fill", units=0, chunk=4, uses=(0,), cost=cost),
            task("nothing", after=(0,), uses=(0,), cost=cost),
        ]
        Program(tasks, [0, 0, 0], [], arguments=[FRESH]).launch(pack((0, variable)), variable)
    Program([]).launch(b"", None)
    engine.wait_all()


@pytest.mark.parametrize("cost", [0, BIG])
def test_what_a_launch_keeps_lives_until_it_has_ended(cost):
    class Thing:
        pass

    memory, variable = np.zeros(2, np.int64), Variable()
    program = Program(
        [task("mix", uses=(0,), cost=cost)], [0, 0, 9], [(0, 0, 0), (1, 0, 8)], arguments=[WRITE]
    )
    completions = []
    engine.push(completions.append, writes=[variable], asynchronous=True)
    while not completions:
        time.sleep(1e-4)
    things = [Thing() for _ in range(4)]
    watchers = [weakref.ref(thing) for thing in things]
    for thing in things:
        program.launch(pack((memory.ctypes.data, variable)), (memory, variable, thing))
    del things, thing
    gc.collect()
    assert all(watcher() is not None for watcher in watchers)
    completions[0]()
    engine.wait(variable)
    engine.wait_all()
    gc.collect()
    assert all(watcher() is None for watcher in watchers)


def test_look_ahead_is_bounded_but_never_for_python_tasks():
    """The ninth launch waits for the first; a Python task on which the first waits must not."""
    engine.set_workers(1)
    gate, other = Variable("gate"), Variable("other")
    program = Program([task("nothing", uses=(0,), cost=BIG)], arguments=[WRITE])
    done = []

    def inner():
        time.sleep(0.05)  # by now the main thread stands at the bound
        for _ in range(20):
            program.launch(pack((0, other)), other)
        engine.wait(other)
        done.append(len(done))

    engine.push(inner, writes=[gate])
    for _ in range(20):
        program.launch(pack((0, gate)), gate)
    engine.wait(gate)
    assert done == [0]


def test_two_branches_overlap():
    """Two tasks without a common variable run at the same time on two threads."""
    engine.set_workers(1)
    out, rounds = np.zeros(2, np.int64), 40_000_000
    variables = [Variable(), Variable()]
    tasks = [task("spin", 3 * i, uses=(i,), cost=BIG) for i in range(2)]
    program = Program(tasks, [0, 0, rounds, 0, 0, rounds], [(0, 0, 0), (3, 1, 0)], arguments=[FRESH, FRESH])
    with engine.profile() as profile:
        program.launch(
            pack((out.ctypes.data, variables[0]), (out.ctypes.data + 8, variables[1])), (out, variables)
        )
        engine.wait(variables[0])
        engine.wait(variables[1])
    first, second = profile.events
    assert first.thread != second.thread
    assert second.start < first.end
    assert out[0] == out[1] != 0


def test_a_long_task_is_shared_by_worker_and_waiting_thread():
    engine.set_workers(1)
    out, variable = np.zeros(64, np.int64), Variable()
    program = Program(
        [task("spin", 0, 64, 1, uses=(0,), cost=BIG)], [0, 0, 500_000], [(0, 0, 0)], arguments=[FRESH]
    )
    with engine.profile() as profile:
        program.launch(pack((out.ctypes.data, variable)), (out, variable))
        engine.wait(variable)
    assert len({event.thread for event in profile.events}) == 2
    assert np.count_nonzero(out) == 64


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_unit_is_run_once(workers):
    """Whatever the number of chunks: fewer than shares, not a multiple of them, with a short last chunk."""
    engine.set_workers(workers)
    for units in range(1, 40):
        for chunk in (1, 3):
            out, variable = np.zeros(units, np.int64), Variable()
            program = Program(
                [task("count", 0, units, chunk, uses=(0,), cost=BIG)], [0], [(0, 0, 0)], arguments=[FRESH]
            )
            program.launch(pack((out.ctypes.data, variable)), (out, variable))
            engine.wait(variable)
            assert (out == 1).all()


def trails(chunks, launches):
    """In which order one thread runs the chunks of a task, launch after launch."""
    engine.set_workers(0)
    program = Program([task("trail", 0, chunks, 1, uses=(0,), cost=BIG)], [0], [(0, 0, 0)], arguments=[FRESH])
    found = []
    for _ in range(launches):
        out, variable = np.zeros(chunks + 1, np.int64), Variable()
        program.launch(pack((out.ctypes.data, variable)), (out, variable))
        engine.wait(variable)
        assert out[0] == chunks
        found.append(out[1:].tolist())
    return found


@pytest.mark.parametrize("chunks", [2, 9, 64, 67, 512, 1000])
def test_every_other_launch_goes_backwards_by_runs_of_neighbours(chunks):
    """What ran last runs first: its data lie in the second cache."""
    ways = trails(chunks, 4)
    assert ways[:2] == ways[2:]
    forward, back = sorted(ways[:2])
    assert forward == list(range(chunks))
    assert sorted(back) == forward
    run = -(-chunks // 64)  # of eight shares in eight runs
    starts = [n for n in range(chunks) if n == 0 or back[n] != back[n - 1] + 1]
    assert len(starts) <= 64
    assert all(b - a <= run for a, b in itertools.pairwise([*starts, chunks]))
    heads = [back[n] for n in starts]
    assert heads == sorted(heads, reverse=True)


def test_a_task_of_one_chunk_does_not_turn_the_next_one_round():
    engine.set_workers(0)
    program, variable = Program([task("nothing", uses=(0,), cost=BIG)], arguments=[WRITE]), Variable()
    (first,) = trails(64, 1)
    program.launch(pack((0, variable)), variable)
    (second,) = trails(64, 1)
    assert first != second


def test_priorities_order_ready_native_tasks():
    """With all ready at once and one thread, higher priority runs first, then program order."""
    engine.set_workers(0)
    priorities = [0, 5, -3, 5, 0, 9]
    tasks = [task("nothing", uses=(0,), cost=BIG, priority=p, name=str(i)) for i, p in enumerate(priorities)]
    program, variable = Program(tasks, arguments=[WRITE]), Variable()
    with engine.profile() as profile:
        program.launch(pack((0, variable)), variable)
    assert [event.name for event in profile.events] == ["5", "1", "3", "0", "4", "2"]


def test_naive_engine_runs_inside_the_call(monkeypatch):
    monkeypatch.setattr(config, "engine", "naive")
    memory, variable = np.zeros(2, np.int64), Variable()
    seen = []
    tasks = [
        task("mix", uses=(0,), cost=BIG),
        Task(
            "look",
            "x.py:1",
            0,
            0,
            0,
            1,
            after=(0,),
            uses=(0,),
            callable=lambda block: seen.append(int(memory[0])),
        ),
    ]
    program = Program(tasks, [0, 0, 9], [(0, 0, 0), (1, 0, 8)], arguments=[WRITE])
    program.launch(pack((memory.ctypes.data, variable)), (memory, variable))
    assert seen == [9]
    engine.push(lambda: engine.push(lambda: seen.append(2), writes=[variable]), reads=[])
    assert seen == [9, 2]


def test_python_tasks_in_a_program_see_their_block():
    memory, variable = np.zeros(2, np.int64), Variable()
    seen = []

    def look(block):
        seen.append(list((ctypes.c_int64 * 2).from_address(block)))

    tasks = [
        task("mix", 0, uses=(0,)),
        Task("look", "x.py:1", 0, 3, 0, 1, after=(0,), uses=(0,), callable=look),
        task("mix", 0, after=(1,), uses=(0,)),
    ]
    program = Program(
        tasks, [0, 0, 9, 0, 0], [(0, 0, 0), (1, 0, 8), (3, 0, 8), (4, 1, 0)], arguments=[WRITE, NUMBER]
    )
    for number in range(5):
        program.launch(pack((memory.ctypes.data, variable), (number, None)), (memory, variable))
    engine.wait(variable)
    assert seen == [[memory.ctypes.data + 8, number] for number in range(5)]


@pytest.mark.parametrize(
    ("tasks", "rest", "words"),
    [
        (lambda: [task("nothing", after=(0,))], {}, "after"),
        (lambda: [task("nothing", uses=(0,))], {}, "uses"),
        (lambda: [task("nothing", uses=(0,))], {"arguments": [NUMBER]}, "uses"),
        (lambda: [task("nothing", chunk=0)], {}, "chunk"),
        (lambda: [Task("no address", None, 0, 0, 1, 1)], {}, "function"),
        (lambda: [task("nothing", block=3)], {"template": [0, 0]}, "block"),
        (list, {"template": [0], "patches": [(1, ARENA, 0)]}, "patch"),
        (list, {"template": [0], "patches": [(0, 0, 0)]}, "patch"),
        (list, {"arguments": [4]}, "mode"),
    ],
)
def test_what_leads_nowhere_is_refused(tasks, rest, words):
    with pytest.raises(ArgumentError, match=words):
        Program(tasks(), **rest)


def test_packed_arguments_of_the_wrong_size_are_refused():
    program = Program([task("nothing", uses=(0,))], arguments=[READ])
    with pytest.raises(ArgumentError, match="16"):
        program.launch(struct.pack("q", 0), None)


def test_modes_are_distinct():
    assert len({NUMBER, READ, WRITE, OVERWRITE, FRESH}) == 5
    assert addresses()["nothing"] != 0


@pytest.mark.parametrize(
    "arguments", [(), (1, b""), (1, 2, 3, []), ("1", b"", 3, []), (1, bytearray(), 3, [])]
)
def test_a_native_call_with_other_arguments_raises(arguments):
    with pytest.raises(TypeError):
        native.calls().launch(*arguments)


def test_a_native_call_notes_what_it_returns():
    program, started = Program([task("nothing")]), []
    program.launch(b"", keep=(), started=started)
    assert started == [FINISHED]
    with pytest.raises(TypeError):
        native.calls().wait(1, 2, 3)
    with pytest.raises(TypeError):
        native.calls().take_finished("engine", [])


def filling(size):
    """A program that fills an arena of `size` words from a number, and reads the last word."""
    tasks = [task("fill", 0, units=size, chunk=64, cost=BIG), task("mix", 3, after=(0,), uses=(0,), cost=BIG)]
    patches = [(0, ARENA, 0), (2, 1, 0), (3, 0, 0), (4, ARENA, 8 * (size - 1))]
    return Program(
        tasks, [0] * 6, patches, arena_bytes=8 * size, scratch_bytes=64 * 8, arguments=[WRITE, NUMBER]
    )


def test_programs_share_an_arena_unless_they_run_at_the_same_time():
    """Many programs of different sizes, launched from three threads with and without waiting in between."""
    programs = [(size, filling(size)) for size in (64, 100, 200, 400, 640, 1600)]

    def use(seed, results):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            size, program = programs[rng.integers(len(programs))]
            memory, variable, number = np.zeros(1, np.int64), Variable(), int(rng.integers(1000))
            program.launch(pack((memory.ctypes.data, variable), (number, None)), (memory, variable))
            results.append((memory, (number + size - 1) * 7))
            if rng.random() < 0.3:
                engine.wait(variable)

    results = [[] for _ in range(3)]
    threads = [threading.Thread(target=use, args=(seed, found)) for seed, found in enumerate(results)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.wait_all()
    assert all(memory[0] == expected for found in results for memory, expected in found)
    assert sum(len(found) for found in results) == 900


def test_programs_that_run_one_after_the_other_have_one_arena():
    engine.wait_all()
    engine.pool.trim()
    programs = [filling(size) for size in (1000, 1500, 2000, 1200)]
    for program in programs * 3:
        memory, variable = np.zeros(1, np.int64), Variable()
        program.launch(pack((memory.ctypes.data, variable), (5, None)), (memory, variable))
        engine.wait(variable)
    assert [arena.nbytes for arena in engine.pool.idle.values()] == [8 * 2048]


def test_an_arena_comes_back_when_a_launch_has_failed():
    engine.wait_all()
    engine.pool.trim()
    values, variable = np.array([-1]), Variable()
    for cost in (0, BIG):
        failing = Program(
            [task("check", units=1, uses=(0,), cost=cost, can_fail=True)],
            [0, 0, 0],
            [(0, ARENA, 0), (1, 0, 0)],
            arena_bytes=64,
            arguments=[READ],
        )
        failing.launch(pack((values.ctypes.data, variable)), (values, variable))
        with pytest.raises(EngineError):
            engine.wait_all()
        assert len(engine.pool.idle) == 1


def test_a_launch_that_needs_more_scratch_has_not_started(monkeypatch):
    program = Program([task("fill", units=4)], [0, 0, 0], [(0, 0, 0)], scratch_bytes=64, arguments=[WRITE])
    memory, variable, started, native_launch = np.zeros(4, np.int64), Variable(), [], program._launch

    def interrupted(*arguments):
        if native_launch(*arguments) == NEEDS_SCRATCH:
            raise KeyboardInterrupt
        raise AssertionError

    threads.current().words[THREAD_SCRATCH_BYTES >> 3] = 0
    monkeypatch.setattr(program, "_launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        program.launch(pack((memory.ctypes.data, variable)), (memory, variable), started)
    assert (started, IN_FLIGHT) == ([], {})
    monkeypatch.undo()
    program.launch(pack((memory.ctypes.data, variable)), (memory, variable), started)
    assert started == [FINISHED]
    assert memory.tolist() == [0, 1, 2, 3]


def test_a_launch_by_a_signal_handler_of_a_thread_that_waits_gets_its_scratch():
    program = Program([task("fill", units=4)], [0, 0, 0], [(0, 0, 0)], scratch_bytes=64, arguments=[WRITE])
    memory, variable, started = np.zeros(4, np.int64), Variable(), []
    thread = threads.current()
    thread.words[THREAD_SCRATCH_BYTES >> 3] = 0
    thread.busy = True  # as in `block`, between two looks at signals
    try:
        program.launch(pack((memory.ctypes.data, variable)), (memory, variable), started)
    finally:
        thread.busy = False
    assert started == [FINISHED]
    assert memory.tolist() == [0, 1, 2, 3]
