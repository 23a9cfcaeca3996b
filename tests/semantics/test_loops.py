"""Programs with loops over rows, columns and time steps equal NumPy's, recorded and replayed."""

from __future__ import annotations

import numpy as np
import pytest

import tracejit as tj
from tests.fuzz import running
from tests.loops import PROGRAMS
from tracejit.loopnest.analysis import analyse

simulated = pytest.mark.cpu("plans are run by NumPy, on memory that it sees")

COMPILED = ("lu", "durbin", "fdtd_2d", "cavity", "rounds_of_rows")
"""The programs that also run as machine code."""

IN_ORDER = pytest.param("cavity", marks=pytest.mark.cpu("GPUs have no sweeps, which take rows in order"))


def arrays(arguments, wrap):
    return [wrap(a) if isinstance(a, np.ndarray) else a for a in arguments]


def check(name, n=7):
    """Two calls of a program of size `n`, against NumPy."""
    function, make = PROGRAMS[name]
    traced = tj.jit(function, strict=True)
    for _ in range(2):
        given, expected = (arrays(make(n), wrap) for wrap in (tj.asarray, np.copy))
        results = traced(*given), function(*expected)
        for one, other in ((given, expected), (results[:1], results[1:])):
            for found, wanted in zip(one, other, strict=True):
                if wanted is not None:
                    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-9, atol=1e-9)
    assert traced.cache_info().replays == 1
    return traced


@simulated
@pytest.mark.parametrize("name", PROGRAMS)
def test_plans(name):
    """On the simulator of memory plans, which needs no kernels."""
    with running.simulated():
        check(name)


@pytest.mark.parametrize("name", COMPILED)
def test_machine_code(name):
    check(name)


@pytest.mark.parametrize("name", ["fdtd_2d", "jacobi_2d", "heat_3d", IN_ORDER])
def test_stencils_need_no_memory_of_their_own(name):
    """Every round is written once, over the one before."""
    function, make = PROGRAMS[name]
    memory = tj.jit(function).plan(*arrays(make(9), tj.asarray)).memory
    assert memory.arena_bytes == 0
    assert all(task.node.op.name == "fused" for task in memory.tasks)


@simulated
def test_an_old_value_is_kept_where_its_elements_are_overwritten_before_it_is_read():
    def step(a, b):
        row = b * 2.0
        a[1] = row
        a[:, 2:] = 0.0
        return a.sum() + row @ b

    a, b = np.ones((3, 4)), np.arange(4.0)
    given = tj.asarray(a.copy())
    with running.simulated():
        assert float(tj.jit(step)(given, tj.asarray(b))) == 2 * (0 + 1) + 4 + 2 * 14
    np.testing.assert_array_equal(given, [[1, 1, 0, 0], [0, 2, 0, 0], [1, 1, 0, 0]])


def test_a_value_is_kept_where_its_array_is_replaced_before_it_is_read():
    def step(a, b):
        row = b * 2.0
        a[1] = row
        a[:] = a.sum()
        return row + a[2]

    memory = tj.jit(step).plan(tj.ones((40, 8)), tj.ones(8)).memory
    assert all(task.node.op.name == "fused" for task in memory.tasks)


@pytest.mark.parametrize("name", ["rounds_of_rows", "floyd_warshall"])
def test_kernels_compute_little_again(name):
    """Each element of a round needs a row and a column of the round before, which need others."""
    function, make = PROGRAMS[name]
    memory = tj.jit(function).plan(*arrays(make(28), tj.asarray)).memory
    bodies = [task.node.attrs["body"] for task in memory.tasks]
    assert max(len(analyse(body).program.terms) for body in bodies) < 64
    assert len(bodies) < 28


@pytest.mark.parametrize(("name", "most"), [("trmm", 26), ("cholesky", 80), ("gramschmidt", 19)])
def test_reads_beside_the_stores_of_a_kernel_are_part_of_it(name, most):
    """One kernel for some elements of a row, for an element, for a column."""
    function, make = PROGRAMS[name]
    memory = tj.jit(function).plan(*arrays(make(12), tj.asarray)).memory
    assert len(memory.tasks) <= most


def test_a_stored_value_is_not_read_from_a_row_that_is_stored_again():
    """The second kernel writes a row beside the value, and the value's own; its reader waits for both."""

    def step(xp, a, x, b):
        value = xp.where(x > 0.5, x, 0.25)
        a[2] = value
        a[1] = value + b[3]
        before = xp.sort(a, axis=0)
        other = before[2] * x
        a[3] = xp.where(other > b[1], other, b[2])
        a[2] = other * 2.0
        return value * xp.sort(a, axis=0)[1], before

    rng = np.random.default_rng(0)
    given = rng.random((5, 40)), rng.random(40), rng.random((5, 40))
    traced = [tj.array(x) for x in given]
    results = tj.jit(lambda *arrays: step(tj, *arrays))(*traced)
    expected = step(np, *given)
    for found, wanted in zip((*results, traced[0]), (*expected, given[0]), strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)
