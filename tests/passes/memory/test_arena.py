"""The arena: random histories never give a live byte twice, nor one whose users are no ancestors."""

import numpy as np
import pytest

from tracejit.passes.memory.arena import ALIGNMENT, ArenaLayout


@pytest.mark.parametrize("seed", range(100))
def test_random_histories(seed):
    """A byte may be handed on only if it is free and its last users are ancestors of the new first writer."""
    rng = np.random.default_rng(seed)
    arena, live = ArenaLayout(), {}
    owner = np.zeros(1 << 16, np.int64)  # 0: free
    users = [0] * (1 << 16)  # bit sets, for each byte
    before = [0]  # ancestors of each task, closed
    for task in range(1, 120):
        ancestors = 0
        for parent in rng.integers(0, task, 3).tolist():
            ancestors |= before[parent] | 1 << parent
        before.append(ancestors)
        nbytes = int(rng.choice([0, 1, 64, 65, 200, 640]))
        offset, touched_before = arena.allocate(task, nbytes, ancestors)
        assert offset % ALIGNMENT == 0
        assert nbytes == 0 or offset + nbytes <= arena.size
        for byte in range(offset, offset + nbytes):
            assert owner[byte] == 0
            assert users[byte] & ~ancestors == 0
            assert users[byte] & ~touched_before == 0
        owner[offset : offset + nbytes] = task
        live[task] = offset, nbytes
        while live and rng.random() < 0.5:
            dead = list(live)[int(rng.integers(len(live)))]
            offset, nbytes = live.pop(dead)
            readers = [t for t in range(dead, task + 1) if before[t] >> dead & 1]
            touched = 1 << dead | sum(1 << t for t in readers if rng.random() < 0.5)
            arena.release(offset, nbytes, touched, 1000)
            owner[offset : offset + nbytes] = 0
            padded = -(-nbytes // ALIGNMENT) * ALIGNMENT
            users[offset : offset + padded] = [touched] * padded


def test_best_fit_takes_the_smallest_hole():
    arena = ArenaLayout()
    places = [arena.allocate(1, n, 0)[0] for n in (640, 64, 128, 64)]
    arena.release(places[0], 640, 1, 9)
    arena.release(places[2], 128, 1, 9)
    assert arena.allocate(1, 100, 1) == (places[2], 1)


def test_a_hole_of_the_same_size_is_taken_before_neighbours():
    arena = ArenaLayout()
    places = [arena.allocate(1, n, 0)[0] for n in (64, 64, 64, 128)]
    for place, size in ((places[0], 64), (places[1], 64), (places[3], 128)):
        arena.release(place, size, 1, 9)
    assert arena.allocate(1, 128, 1) == (places[3], 1)
    assert arena.allocate(1, 128, 1) == (places[0], 1)
    assert arena.size == 320


def test_neighbouring_holes_join():
    arena = ArenaLayout()
    places = [arena.allocate(1, 64, 0)[0] for _ in range(3)]
    for place in places:
        arena.release(place, 64, 1, 9)
    assert arena.allocate(1, 192, 1) == (0, 1)
    assert arena.size == 192


def test_the_end_grows():
    arena = ArenaLayout()
    (first, _), (last, _) = arena.allocate(1, 64, 0), arena.allocate(1, 64, 0)
    arena.release(last, 64, 1, 9)
    assert arena.allocate(1, 256, 1) == (last, 1)
    assert arena.size == 64 + 256
    assert first == 0


def test_nothing_takes_no_memory():
    arena = ArenaLayout()
    arena.release(arena.allocate(1, 64, 0)[0], 64, 1, 9)
    assert arena.allocate(1, 0, 1) == (0, 0)
    assert arena.allocate(1, 64, 1) == (0, 1)
