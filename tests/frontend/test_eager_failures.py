"""A statement of eager code that fails takes only what depends on it with it."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.frontend.recording import eager, partial, storage

LINE = r"test_eager_failures\.py:\d+"
HERE = "test_eager_failures.py"


@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    """Nothing is computed at once, so that statements wait for one another."""
    tj.wait_all()
    monkeypatch.setattr(eager, "SMALL", -1)
    yield
    partial.unreported.clear()


@pytest.fixture
def small_memory(monkeypatch):
    """Memory for arrays of less than a megabyte each, and for no others."""
    allocate = storage.engine.pool.allocate

    def refuse(nbytes):
        if nbytes >= 1 << 20:
            raise MemoryError(f"{nbytes} bytes")
        return allocate(nbytes)

    monkeypatch.setattr(storage.engine.pool, "allocate", refuse)


def oversized():
    row = tj.ones(1024)
    return row[:, None] * row


def test_an_array_without_memory_fails_alone(small_memory):
    x = tj.asarray(np.arange(4.0))
    before = x + 1
    big = oversized()
    after = x * 3
    assert before.tolist() == [1, 2, 3, 4]
    assert after.tolist() == [0, 3, 6, 9]
    assert (x - 1).tolist() == [-1, 0, 1, 2]  # and later statements work while it lives
    for look in (lambda: big.numpy(), lambda: big + 1, lambda: float(big[0, 0]), lambda: big.__iadd__(1)):
        with pytest.raises(MemoryError, match=rf"float32\[1024,1024\][\s\S]*{LINE}") as found:
            look()
        assert isinstance(found.value, tj.TracejitError)
    assert (x - 2).tolist() == [-2, -1, 0, 1]


def test_what_needs_no_memory_for_the_array_is_computed(small_memory):
    big = oversized()
    total = big.sum()
    assert float(total) == 1 << 20
    with pytest.raises(MemoryError):
        big.numpy()


def test_a_write_survives_an_array_without_memory(small_memory):
    x = tj.asarray(np.arange(4.0))
    big = oversized()
    x += 1
    x[0] = 9
    y = x * 2
    assert y.tolist() == [18, 4, 6, 8]
    assert x.tolist() == [9, 2, 3, 4]
    del big


def test_a_write_that_needs_too_much_leaves_the_array(small_memory, monkeypatch):
    """Where intermediate results have no memory, the results that need them fail."""
    x, y = tj.asarray(np.arange(4.0)).wait(), tj.ones(4).wait()
    run = eager.run

    def refuse(graph, *args, **kwargs):
        if any(node.op.name == "exp" for node in graph.nodes):
            raise MemoryError("arena")
        return run(graph, *args, **kwargs)

    monkeypatch.setattr(eager, "run", refuse)
    x += tj.exp(y)
    z = y + 1
    bad = tj.exp(y)
    assert z.tolist() == [2, 2, 2, 2]
    with pytest.raises(MemoryError, match=LINE):
        bad.tolist()
    with pytest.raises(tj.TracejitError, match="no memory to compute"):
        x.tolist()
    assert x.tolist() == [0, 1, 2, 3]


def test_wait_all_tells_of_an_array_that_nobody_looked_at(small_memory):
    big = oversized()
    with pytest.raises(MemoryError):
        tj.wait_all()
    tj.wait_all()
    del big


def test_a_swap_survives(small_memory):
    x, y = tj.asarray([1.0, 2.0]), tj.asarray([3.0, 4.0])
    x.wait(), y.wait()
    big = oversized()
    old = x + 0
    x[...] = y
    y[...] = old
    assert (x.tolist(), y.tolist(), old.tolist()) == ([3, 4], [1, 2], [1, 2])
    del big


def test_zeros_without_memory_name_the_line(small_memory):
    with pytest.raises(MemoryError, match=LINE):
        tj.zeros((1024, 1024))


def test_an_index_error_fails_what_depends_on_it():
    x, i = tj.asarray(np.arange(4.0)), tj.asarray([7])
    x.wait(), i.wait()
    before = x + 1
    row = tj.take(x, i)
    twice = row * 2
    after = x * 3
    x += 1
    assert after.tolist() == [0, 3, 6, 9]
    assert before.tolist() == [1, 2, 3, 4]
    assert x.tolist() == [1, 2, 3, 4]
    for failed in (row, twice):
        with pytest.raises(IndexError, match=LINE):
            failed.tolist()


def test_two_index_errors_are_two():
    x, i, j, k = tj.asarray(np.arange(4.0)), tj.asarray([7]), tj.asarray([8]), tj.asarray([1])
    a, b, c = tj.take(x, i), tj.take(x, j), tj.take(x, k)
    both = a + b
    good = tj.exp(x) * 0 + c
    for failed, number in ((a, "7"), (b, "8"), (both, "[78]")):
        with pytest.raises(IndexError, match=f"index {number}"):
            failed.tolist()
    assert good.tolist() == [1] * 4


def test_writes_around_a_gather_keep_their_order():
    x, y, i = tj.asarray(np.arange(4.0)), tj.zeros(2), tj.asarray([1, 3])
    for z in (x, y, i):
        z.wait()
    y[...] = tj.take(x, i)  # reads x before it is written
    x *= 10
    later = tj.take(x, i) + y
    x += 1
    assert y.tolist() == [1, 3]
    assert later.tolist() == [11, 33]
    assert x.tolist() == [1, 11, 21, 31]


def test_a_sum_of_bytes_takes_no_memory_for_the_cast(monkeypatch):
    monkeypatch.setattr(eager, "MAX_BYTES", 1 << 16)
    sizes, allocate = [], storage.engine.pool.allocate
    x = tj.asarray(np.ones(1 << 16, np.uint8)).wait()

    def note(nbytes):
        sizes.append(nbytes)
        return allocate(nbytes)

    monkeypatch.setattr(storage.engine.pool, "allocate", note)
    total = x.sum()
    half = x.mean()
    assert int(total) == 1 << 16
    assert float(half) == 1
    assert max(sizes) < 1 << 16


def test_results_beside_an_array_without_memory_are_computed_together(small_memory, monkeypatch):
    launched, run = [], eager.run

    def note(graph, *args, **kwargs):
        launched.append(graph)
        return run(graph, *args, **kwargs)

    monkeypatch.setattr(eager, "run", note)
    x = tj.asarray(np.arange(4.0))
    kept, big = [x + n for n in range(5)], oversized()
    total = big.sum()
    assert [k.tolist() for k in kept] == [[n, n + 1, n + 2, n + 3] for n in range(5)]
    assert float(total) == 1 << 20
    assert len(launched) <= 4  # the whole, the rest, the array alone, and what was pending before
