"""The pool: alignment, size classes, recycling, statistics."""

import itertools
import random
import threading

import numpy as np
import pytest

from tracejit.engine import Pool
from tracejit.engine.memory import COLOUR, COLOURS, FAR, HUGE, size_class
from tracejit.errors import ArgumentError


def test_buffers_are_aligned_and_do_not_overlap():
    pool, rng = Pool(), random.Random(0)
    buffers = [pool.allocate(rng.randrange(1, 10_000)) for _ in range(300)]
    assert all(buffer.address % 64 == 0 for buffer in buffers)
    spans = sorted((buffer.address, buffer.address + buffer.nbytes) for buffer in buffers)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_large_buffers_begin_at_different_places_of_huge_pages():
    pool = Pool()
    buffers = [pool.allocate(FAR + n) for n in range(COLOURS)]
    assert len({buffer.address % HUGE for buffer in buffers}) == COLOURS
    assert all(buffer.address % HUGE % COLOUR == 0 for buffer in buffers)
    for buffer in buffers:
        memory = np.frombuffer(buffer._memory, np.uint8)
        assert memory.ctypes.data <= buffer.address
        assert buffer.address + buffer.nbytes <= memory.ctypes.data + memory.size


def test_size_classes_fit_and_waste_at_most_a_fifth():
    for nbytes in [*range(1, 3000), *(random.Random(1).randrange(1, 1 << 40) for _ in range(1000))]:
        size = size_class(nbytes)
        assert size >= nbytes
        assert size % 64 == 0
        assert size - nbytes < max(64, size / (5 if nbytes <= 1 << 20 else 30))
        assert size_class(size) == size


def test_memory_is_recycled():
    pool = Pool()
    first = pool.allocate(1000)
    address = first.address
    assert pool.statistics() == type(pool.statistics())(in_use=1024, cached=0, allocations=1)
    del first
    assert pool.statistics().cached == 1024
    again = pool.allocate(1010)
    assert again.address == address
    assert pool.statistics().allocations == 1
    del again
    assert pool.trim() == 1024
    statistics = pool.statistics()
    assert (statistics.in_use, statistics.cached) == (0, 0)


def test_no_memory_is_an_error_and_loses_nothing():
    pool = Pool()
    kept = pool.allocate(100)
    with pytest.raises(MemoryError):
        pool.allocate(1 << 60)
    assert pool.statistics().in_use == size_class(kept.nbytes)
    assert pool.allocate(100).address % 64 == 0
    with pytest.raises(ArgumentError, match="-1"):
        pool.allocate(-1)


def test_many_threads_allocate():
    pool, errors = Pool(), []

    def use(seed):
        rng, held = random.Random(seed), {}
        for _ in range(2000):
            if held and rng.random() < 0.5:
                held.pop(rng.choice(list(held)))
            else:
                buffer = pool.allocate(rng.randrange(1, 4000))
                if buffer.address in held:
                    errors.append(buffer)
                held[buffer.address] = buffer

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert pool.statistics().in_use == 0
