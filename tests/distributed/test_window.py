"""Shared memory of ranks: what is stored is read where it lies, and overwritten when all have read it."""

import os
import pathlib

import numpy as np

from tests.distributed import jobs
from tracejit.distributed.window import BLOCK, SharedWindow
from tracejit.kernels.ranks.layout import ROOM, head_bytes, start_bytes

PROGRAM = pathlib.Path(__file__).with_name("exchanges.py")


def windows(ranks, blocks, direct=False):
    """The windows of ranks on one memory; direct: they read one another's arrays, in this very process."""
    size = start_bytes(len(ranks)) + blocks * (BLOCK + head_bytes(len(ranks)))
    memory = [np.zeros(size, np.uint8) for _ in ranks]
    processes = [os.getpid()] * len(ranks) if direct else []
    return [SharedWindow(None, ranks, rank, memory, processes) for rank in ranks]


def test_what_is_stored_is_read_where_it_lies():
    one, two, three = windows([1, 2, 5], blocks=2)  # numbers in a world with others
    a, b = np.arange(100, dtype=np.float32), np.arange(7, dtype=np.int64)
    places = one.store({2: a, 5: b})
    assert two.view(1, places[2], a).tolist() == a.tolist()
    assert three.view(1, places[5], b).tolist() == b.tolist()
    assert np.shares_memory(three.view(1, places[2], a), two.view(1, places[2], a))
    assert one.peers == {2, 5}


def test_a_block_is_lent_again_when_all_have_read():
    one, two, three = windows([0, 1, 2], blocks=1)
    a = np.ones(10)
    places = one.store({1: a, 2: a})
    assert places[1] == places[2]  # stored once
    two.mark_read(0, places[1])
    assert one.store({1: a}) == {}  # rank 2 has not read
    assert two.store({0: a}) != {}  # each rank has blocks of its own
    three.mark_read(0, places[2])
    assert one.store({1: a}) == {1: places[1]}
    assert one.store({2: a}) == {}  # rank 1 has not read


def test_what_is_larger_than_a_block_has_no_place():
    one, _ = windows([0, 1], blocks=2)
    assert one.store({1: np.zeros(BLOCK + 1, np.uint8)}) == {}
    assert one.store({1: np.zeros(BLOCK, np.uint8)}) != {}


def test_notices_arrive_in_order_by_key_also_where_there_is_no_room_for_them():
    one, two, three = (window.notices for window in windows([4, 6, 7], blocks=0))
    for number in range(2 * ROOM + 5):
        one.send(6, number % 3, number)
    one.send(7, 1, -1)
    three.poll()
    assert (three.pop(4, 0), three.pop(4, 1), three.pop(4, 1)) == (None, -1, None)
    heard = {0: [], 1: [], 2: []}
    for _ in range(4):
        two.poll()
        for key, words in heard.items():
            while (word := two.pop(4, key)) is not None:
                words.append(word)
        one.poll()
    assert heard == {key: list(range(key, 2 * ROOM + 5, 3)) for key in heard}
    two.send(4, 9, 1 << 40)  # the other way
    one.poll()
    assert one.pop(6, 9) == 1 << 40


def test_exchanges_in_any_order_through_any_memory():
    """Three ranks: without shared memory, with too little, and reading arrays where they lie."""
    status, output = jobs.run(3, PROGRAM)
    assert status == 0, output
    for blocks in (0, 1, 8, 2):
        assert output.count(f"exchanged 36 with {blocks} blocks") == 3, output
