"""Threads that help with a loop, round after round: the same bits and errors as on one thread."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

import tracejit as tj
from tests.engine.test_lifecycle import run_script
from tracejit import engine
from tracejit.engine.native import TEAM
from tracejit.errors import OutOfBoundsError
from tracejit.kernels.executor.layout import TEAM_INVITATIONS, TEAM_LEADER, TEAM_TASK

SIZE, ROUNDS = 256, 200


def sweep(a, b, n):
    """Two tasks of several chunks a round, and a small one."""
    total = a[0, 0] * 0.0
    for _ in tj.range(n):
        b[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
        a[1:-1, 1:-1] = 0.25 * (b[:-2, 1:-1] + b[2:, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:])
        total = total * 0.5 + a[1, 1]
    return total


def given(seed=0):
    return [tj.asarray(x) for x in np.random.default_rng(seed).normal(size=(2, SIZE, SIZE))]


def results(body, seed=0, rounds=ROUNDS):
    a, b = given(seed)
    total = body(a, b, rounds)
    return [x.numpy().copy() for x in (a, b, total)]


def number():
    """How many tasks the team has been given."""
    return TEAM.words[TEAM_TASK >> 3]


@pytest.fixture(autouse=True)
def _workers():
    yield
    engine.set_workers(1)


def helped(call, seconds=40):
    """The results of calls until one had help: on a busy machine other threads come late."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before, found = number(), call()
        if number() != before:
            return found
    raise AssertionError("no thread has helped")


@pytest.mark.parametrize("count", [1, 3])
def test_help_does_not_show_in_the_results(count):
    """In a process of its own: where other tests have made more devices, there are no teams."""
    done = run_script(f"from tests.engine.test_team import see_help; see_help({count})")
    assert done.returncode == 0, done.stderr


def see_help(count):
    body = tj.jit(sweep)
    engine.set_workers(0)
    alone = results(body)
    engine.set_workers(count)
    for found, expected in zip(helped(lambda: results(body)), alone, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert TEAM.words[TEAM_LEADER >> 3] == TEAM.words[TEAM_INVITATIONS >> 3] == 0


def test_loops_at_once():
    """One has help, others not, and all threads wait and help."""
    body = tj.jit(sweep)
    engine.set_workers(0)
    alone = [results(body, seed, 40) for seed in range(4)]
    engine.set_workers(3)
    wrong: list[int] = []

    def work(seed):
        for _ in range(6):
            for found, expected in zip(results(body, seed, 40), alone[seed], strict=True):
                if not np.array_equal(found, expected):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_bad_index_is_the_first_one_whoever_finds_it():
    @tj.jit
    def walk(x, places, n):
        total = x[: len(places)] * 0.0
        for i in tj.range(n):
            total = total * 0.5 + x[places] * i
        x[: len(total)] = total

    engine.set_workers(3)
    x = tj.arange(200_000.0)
    places = np.arange(150_000) % 1000
    walk(x, tj.asarray(places), 50)
    before = x.numpy().copy()
    places[[70_001, 140_000]] = 1 << 20
    told = set()

    def walked():
        walk(x, tj.asarray(places), 50)
        x.wait()

    for _ in range(5):
        with pytest.raises(OutOfBoundsError) as raised:
            walked()
        told.add(str(raised.value))
        np.testing.assert_array_equal(x.numpy(), before)
    assert len(told) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_has_no_helpers():
    body = tj.jit(sweep)
    engine.set_workers(2)
    expected = results(body, rounds=40)
    a, b = given()
    total = body(a, b, 40)
    pid = os.fork()
    same = all(map(np.array_equal, [x.numpy() for x in (a, b, total)], expected))
    if pid == 0:
        os._exit(0 if same else 1)
    assert same
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
