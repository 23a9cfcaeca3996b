"""The pool: alignment, size classes, recycling, statistics."""

import itertools
import random
import threading

import pytest

from tracejit.engine import Pool, variable, wait
from tracejit.engine.memory import COLOUR, COLOURS, HUGE, HUGE_BLOCK, size_class
from tracejit.errors import ArgumentError
from tracejit.kernels.executor.layout import VARIABLE_FAILURE, VARIABLE_HEAD, VARIABLE_POISON


def test_buffers_are_aligned_and_do_not_overlap():
    pool, rng = Pool(), random.Random(0)
    sizes = [rng.randrange(1, 10_000) for _ in range(300)]
    buffers = [pool.allocate(size) for size in sizes]
    assert all(buffer.memory % 64 == 0 for buffer in buffers)
    spans = sorted((b.memory, b.memory + size) for b, size in zip(buffers, sizes, strict=True))
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_large_buffers_begin_at_different_places_of_huge_pages():
    pool = Pool()
    buffers = [pool.allocate(HUGE_BLOCK + n) for n in range(COLOURS)]
    assert len({buffer.memory % HUGE for buffer in buffers}) == COLOURS
    assert all(buffer.memory % HUGE % COLOUR == 0 for buffer in buffers)
    for n, buffer in enumerate(buffers):
        owned, _ = buffer._owner
        assert owned.ctypes.data <= buffer.memory
        assert buffer.memory + HUGE_BLOCK + n <= owned.ctypes.data + owned.size


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
    memory = first.memory
    assert pool.statistics() == type(pool.statistics())(in_use=1024, cached=0, allocations=1)
    del first
    assert pool.statistics().cached == 1024
    again = pool.allocate(1010)
    assert again.memory == memory
    assert pool.statistics().allocations == 1
    del again
    assert pool.trim() == 1024
    statistics = pool.statistics()
    assert (statistics.in_use, statistics.cached) == (0, 0)


def test_a_buffer_is_a_variable_as_good_as_new():
    pool = Pool()
    first = pool.allocate(100)
    memory, words = first.memory, first._words
    words[VARIABLE_POISON >> 3] = words[VARIABLE_FAILURE >> 3] = 7
    assert not first.ready
    del first
    again = pool.allocate(100)
    assert (again.memory, again.ready, again.poison) == (memory, True, None)
    assert words[VARIABLE_FAILURE >> 3] == 0
    wait(again)


def test_a_block_that_a_launch_still_uses_is_not_given_out():
    pool = Pool()
    first = pool.allocate(100)
    memory, words = first.memory, first._words
    words[VARIABLE_HEAD >> 3] = 1  # a request, of a launch that did not keep it
    del first
    second, third = pool.allocate(100), pool.allocate(100)
    assert memory not in (second.memory, third.memory)
    words[VARIABLE_HEAD >> 3] = 0
    assert pool.allocate(100).memory == memory


def test_trimming_gives_variables_back():
    pool = Pool()
    buffers = [pool.allocate(100) for _ in range(10)]
    before = len(variable._free)
    buffers.clear()
    pool.trim()
    assert len(variable._free) == before + 10


def put_back(pool, arena):
    pool.idle[arena.number] = arena


def test_an_arena_is_lent_to_one_at_a_time():
    pool = Pool()
    first, second = pool.borrow(1000), pool.borrow(1000)
    assert not ranges_overlap(first, second)
    assert first.nbytes >= 1000
    put_back(pool, first)
    assert pool.borrow(900) is first


def ranges_overlap(a, b):
    return a.memory < b.memory + b.nbytes and b.memory < a.memory + a.nbytes


def test_the_smallest_arena_is_lent_that_is_large_enough_and_not_much_too_large():
    pool = Pool()
    arenas = {size: pool.borrow(size) for size in (1 << 10, 1 << 12, 1 << 14)}
    for arena in arenas.values():
        put_back(pool, arena)
    assert pool.borrow(3000) is arenas[1 << 12]
    assert pool.borrow(3000) not in arenas.values()  # 2 ** 14 is more than four times as much
    assert arenas[1 << 14].number in pool.idle


def test_a_larger_arena_takes_the_place_of_those_it_could_have_been():
    pool = Pool()
    tiny, small = pool.borrow(64), pool.borrow(1000)
    put_back(pool, tiny)
    put_back(pool, small)
    del small
    large = pool.borrow(3000)
    assert list(pool.idle.values()) == [tiny]
    assert pool.statistics().in_use == large.nbytes


def test_a_fitting_arena_lets_smaller_ones_be():
    pool = Pool()
    small, large = pool.borrow(1000), pool.borrow(4000)
    put_back(pool, small)
    put_back(pool, large)
    assert pool.borrow(2000) is large
    assert pool.borrow(1000) is small


def test_idle_arenas_are_unused_memory():
    pool = Pool()
    put_back(pool, pool.borrow(1 << 20))
    assert pool.statistics().cached == 1 << 20
    assert pool.trim() == 1 << 20
    assert pool.idle == {}
    assert pool.statistics().cached == 0


def test_no_memory_is_an_error_and_loses_nothing():
    pool = Pool()
    kept = pool.allocate(100)
    with pytest.raises(MemoryError):
        pool.allocate(1 << 60)
    assert pool.statistics().in_use == size_class(100)
    assert pool.allocate(100).memory % 64 == 0
    del kept
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
                if buffer.memory in held:
                    errors.append(buffer)
                held[buffer.memory] = buffer

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert pool.statistics().in_use == 0
