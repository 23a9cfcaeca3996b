"""Exchanges that machine code moves: several ranks on one memory, advanced in turn."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.distributed.test_window import windows
from tests.thorough import some
from tracejit.distributed import window as windows_module
from tracejit.distributed.link import Link
from tracejit.distributed.window import SharedWindow
from tracejit.kernels.ranks.layout import KEYS, STAGE_BYTES
from tracejit.ops.communicate import combined

pytestmark = pytest.mark.usefixtures("read_from_less_on")
RNG = np.random.default_rng(0)
KEY = 6
NUMBERS = [3, 4, 9, 11]  # of ranks in a world with others


@pytest.fixture
def read_from_less_on(monkeypatch):
    monkeypatch.setattr(windows_module, "DIRECT_BYTES", 1 << 18)


def values(ranks, size, dtype=np.float32):
    return [
        (RNG.standard_normal(size) * 10.0 ** RNG.integers(-3, 4, size)).astype(dtype) for _ in range(ranks)
    ]


def tree_of(arrays):
    out = np.empty_like(arrays[0])
    combined(arrays, "sum", out)
    return out


def advance(windows, exchanges, rounds=50):
    """Poll all in turn until all exchanges have ended or stopped."""
    for _ in range(rounds):
        for window in windows:
            window.notices.poll()
        if all(each.Test() for each in exchanges):
            return
    raise AssertionError(f"waiting for {[each.peers for each in exchanges]}")


@pytest.mark.parametrize("replicated", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_all_ranks_have_the_bits_of_the_tree(ranks, dtype, replicated):
    members = tuple(range(ranks))
    board = windows(members, blocks=1)
    for number, size in enumerate((ranks, 9_001, 70_000)):  # blocks are used again
        arrays = values(ranks, size, dtype)
        expected = tree_of(arrays)
        begun = [
            window.exchange(array, "sum", members, KEY + 2 * number, replicated=replicated)
            for window, array in zip(board, arrays, strict=True)
        ]
        advance(board, begun)
        for window, exchange, array in zip(board, begun, arrays, strict=True):
            assert exchange.ended
            window.retire(exchange)
            assert array.tobytes() == expected.tobytes()


def assert_sums_in_other_orders(board, groups, arrays):
    """Sums of the arrays of each group, which the seats begin in other orders."""
    expected = {key: tree_of(found) for key, found in arrays.items()}
    begun = []
    for seat in (2, 0, 3, 1):
        keys = [key for key, seats in groups.items() if seat in seats]
        for key in keys if seat % 2 else reversed(keys):
            members = tuple(NUMBERS[s] for s in groups[key])
            array = arrays[key][groups[key].index(seat)]
            begun.append(board[seat].exchange(array, "sum", members, key, replicated=False))
            board[seat].notices.poll()
    advance(board, begun)
    for key, found in arrays.items():
        assert all(array.tobytes() == expected[key].tobytes() for array in found)


def test_exchanges_begun_in_other_orders_and_by_some_of_the_ranks():
    board = windows(NUMBERS, blocks=4)
    groups = {10: [0, 1, 2, 3], 12: [1, 3], 14: [0, 2], 16: [2, 1]}  # key: positions, in order
    arrays = {key: values(len(seats), 5000 + key) for key, seats in groups.items()}
    assert_sums_in_other_orders(board, groups, arrays)


def test_who_is_awaited_is_known():
    board = windows([0, 1, 2], blocks=2)
    arrays = values(3, 9000)
    first = board[0].exchange(arrays[0], "sum", (0, 1, 2), KEY, replicated=False)
    assert (first.Test(), first.peers) == (False, [1, 2])
    second = board[1].exchange(arrays[1], "sum", (0, 1, 2), KEY, replicated=False)
    board[0].notices.poll()
    assert (first.peers, second.peers) == ([2], [0, 2])
    third = board[2].exchange(arrays[2], "sum", (0, 1, 2), KEY, replicated=False)
    board[0].notices.poll()
    assert first.peers == [1, 2]  # it has combined its slice
    board[2].notices.poll()
    board[0].notices.poll()
    assert first.peers == [1]
    advance(board, [first, second, third])
    assert first.peers == []


def test_an_exchange_stops_where_slices_come_as_messages():
    """Nothing of it has been taken then, and its block is free once the others have left its slices."""
    one, two = windows([0, 1], blocks=1)
    a, b = values(2, 9000)
    before = a.copy()
    exchange = one.exchange(a, "sum", (0, 1), KEY, replicated=False)
    two.notices.send(0, KEY, -1)
    advance([one, two], [exchange])
    assert not exchange.ended
    assert not exchange.has_slices
    assert exchange.missing_sums() == [1]
    assert (one.notices.pop(1, KEY), a.tobytes()) == (-1, before.tobytes())
    one.retire(exchange)
    place = two.notices.pop(0, KEY)
    np.testing.assert_array_equal(two.view(0, place, a[4500:]), before[4500:])
    assert one.store({1: b}) == {}
    two.mark_read(0, place)
    assert one.store({1: b}) != {}


def test_an_exchange_stops_where_sums_come_as_messages():
    one, two = windows([0, 1], blocks=1)
    a, b = values(2, 9000)
    expected = tree_of([a, b])
    exchange = one.exchange(a, "sum", (0, 1), KEY, replicated=False)
    places = two.store({0: b[:4500]})
    two.notices.send(0, KEY, places[0])
    two.notices.send(0, KEY + 1, -1)
    advance([one, two], [exchange])
    assert not exchange.ended
    assert exchange.has_slices
    assert exchange.missing_sums() == [1]
    assert a[:4500].tobytes() == expected[:4500].tobytes()
    two.notices.pop(0, KEY)
    place = two.notices.pop(0, KEY + 1)
    assert two.view(0, place, a[:4500]).tobytes() == expected[:4500].tobytes()
    two.mark_read(0, place)
    assert one.store({1: b}) == {}  # the slice has not been read
    two.mark_read(0, place & ~1)
    assert one.store({1: b}) != {}


def test_what_machine_code_does_not_combine_is_not_begun():
    one, _ = windows([0, 1], blocks=1)
    a = np.ones(9000, np.float32)
    assert one.exchange(a.astype(np.int32), "sum", (0, 1), KEY, replicated=False) is None
    assert one.exchange(a, "max", (0, 1), KEY, replicated=False) is None
    assert one.exchange(np.ones((4 << 18) + 1, np.float32), "sum", (0, 1), KEY, replicated=False) is None
    assert one.exchange(a, "sum", (0, 1), KEY, replicated=False) is not None
    assert one.exchange(a, "sum", (0, 1), KEY + 2, replicated=False) is None  # no block is free


def test_a_cancelled_exchange_leaves_its_array_alone():
    one, two = windows([0, 1], blocks=2)
    a, b = values(2, 9000)
    before = a.copy()
    cancelled = one.exchange(a, "sum", (0, 1), KEY, replicated=False)
    kept = one.exchange(b, "sum", (0, 1), KEY + 2, replicated=False)
    one.retire(cancelled)
    expected = b + b
    two.exchange(a.copy(), "sum", (0, 1), KEY, replicated=False)
    other = two.exchange(b.copy(), "sum", (0, 1), KEY + 2, replicated=False)
    advance([one, two], [kept, other])
    assert kept.ended
    assert b.tobytes() == expected.tobytes()
    assert a.tobytes() == before.tobytes()


def test_more_notices_than_there_is_room_for():
    one, two = windows([0, 1], blocks=0)
    for number in range(1000):
        one.notices.send(1, number, number)
        if number % 50 == 0:
            two.notices.poll()
            one.notices.poll()
    for _ in range(20):
        two.notices.poll()
        one.notices.poll()
    assert [two.notices.pop(0, number) for number in range(1000)] == list(range(1000))


# -- read where arrays lie -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ranks", some([2, 3, 4, 5, 8], 2))
def test_large_arrays_that_are_read_have_the_bits_of_the_tree(ranks, dtype):
    members = tuple(range(ranks))
    board = windows(members, blocks=0, direct=True)
    for number, size in enumerate((70_000, 262_147, 1_000_003, 1_500_000)):  # also beyond a block
        arrays = values(ranks, size, dtype)
        expected = tree_of(arrays)
        begun = [
            window.exchange(array, "sum", members, KEYS * number, replicated=False)
            for window, array in zip(board, arrays, strict=True)
        ]
        advance(board, begun)
        for window, exchange, array in zip(board, begun, arrays, strict=True):
            assert exchange.ended
            window.retire(exchange)
            assert array.tobytes() == expected.tobytes()


def test_arrays_that_are_read_in_other_orders_beside_ones_in_blocks():
    board = windows(NUMBERS, blocks=4, direct=True)
    groups = {0: [0, 1, 2, 3], 3: [1, 3], 6: [0, 2], 9: [2, 1]}  # key: positions, in order
    sizes = dict(zip(groups, (300_000, 2_000_003, 9_000, 70_000), strict=True))
    arrays = {key: values(len(seats), sizes[key]) for key, seats in groups.items()}
    assert_sums_in_other_orders(board, groups, arrays)


def test_an_array_is_kept_until_all_have_read_it():
    one, two, three = board = windows([0, 1, 2], blocks=0, direct=True)
    arrays = values(3, 90_000)
    expected = tree_of(arrays)
    first = one.exchange(arrays[0], "sum", (0, 1, 2), KEY, replicated=False)
    assert (first.Test(), first.peers) == (False, [1, 2])
    second = two.exchange(arrays[1], "sum", (0, 1, 2), KEY, replicated=False)
    third = three.exchange(arrays[2], "sum", (0, 1, 2), KEY, replicated=False)
    two.notices.poll()  # its sum is there
    one.notices.poll()
    assert (first.Test(), first.peers) == (False, [2])
    three.notices.poll()
    one.notices.poll()
    assert arrays[0].tobytes() == expected.tobytes()
    assert (first.Test(), first.peers) == (False, [1])  # which has not read the sum
    advance(board, [first, second, third])
    assert all(array.tobytes() == expected.tobytes() for array in arrays)


@pytest.mark.parametrize("late", [False, True])
def test_what_is_read_of_a_cancelled_exchange_is_not_used(late):
    """Its array may be used for something else by then; who has read it waits, and knows for whom."""
    one, two = windows([0, 1], blocks=0, direct=True)
    a, b = values(2, 90_000)
    cancelled = one.exchange(a, "sum", (0, 1), KEY, replicated=False)
    if late:
        other = two.exchange(b, "sum", (0, 1), KEY, replicated=False)
        one.notices.poll()  # its sum is there
    one.retire(cancelled)
    before = a.copy()
    if not late:
        other = two.exchange(b, "sum", (0, 1), KEY, replicated=False)
    for _ in range(5):
        one.notices.poll()
        two.notices.poll()
    assert (other.Test(), other.peers) == (False, [0])
    assert a.tobytes() == before.tobytes()
    two.retire(other)


def test_memory_that_cannot_be_read_is_waited_for():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    memory = windows([0, 1], blocks=0)[0]._board._keep
    one, two = (SharedWindow(None, [0, 1], n, memory, [os.getpid(), ended.pid]) for n in (0, 1))
    a, b = values(2, 90_000)
    exchange = one.exchange(a, "sum", (0, 1), KEY, replicated=False)
    two.exchange(b, "sum", (0, 1), KEY, replicated=False)
    for _ in range(5):
        one.notices.poll()
    assert (exchange.Test(), exchange.peers) == (False, [1])


# -- piece by piece ------------------------------------------------------------------------------------------


def begin_staged(board, arrays, members, key):
    return [
        window.exchange(array, "sum", members, key, replicated=False, in_order=True)
        for window, array in zip(board, arrays, strict=True)
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ranks", some([2, 3, 4, 5, 8], 2))
def test_exchanges_piece_by_piece_have_the_bits_of_the_tree(ranks, dtype):
    """Sizes around whole pieces, slices of unequal sizes, and more than a block; one after the other."""
    members = tuple(range(ranks))
    board = windows(members, blocks=0)
    piece = STAGE_BYTES // (2 * ranks) // 64 * 64 // np.dtype(dtype).itemsize
    sizes = [33_000, 70_001, 262_147, 1_500_000]
    sizes += [ranks * piece * count + more for count in (1, 3) for more in (-1, 0, 1)]
    for number, size in enumerate(size for size in sizes if size * np.dtype(dtype).itemsize >= 1 << 17):
        arrays = values(ranks, size, dtype)
        expected = tree_of(arrays)
        begun = begin_staged(board, arrays, members, KEYS * number)
        advance(board, begun, rounds=1000)
        for window, exchange, array in zip(board, begun, arrays, strict=True):
            assert exchange.ended
            window.retire(exchange)
            assert array.tobytes() == expected.tobytes()


def test_one_exchange_after_the_other_goes_piece_by_piece():
    """They have begun in the same order; groups of them share no pieces, and others go on beside them."""
    board = windows(NUMBERS, blocks=4)
    groups = {0: [0, 1, 2, 3], 3: [1, 3], 6: [0, 2], 9: [1, 2], 12: [0, 1, 2, 3]}  # key: positions, in order
    arrays = {key: values(len(seats), 300_000 + key) for key, seats in groups.items()}
    beside = values(4, 50_000)
    expected = {key: tree_of(found) for key, found in arrays.items()} | {15: tree_of(beside)}
    begun = []
    for seat in (2, 0, 3, 1):
        begun.append(board[seat].exchange(beside[seat], "sum", tuple(NUMBERS), 15, replicated=False))
        for key, seats in groups.items():
            if seat in seats:
                members = tuple(NUMBERS[s] for s in seats)
                array = arrays[key][seats.index(seat)]
                begun.append(
                    board[seat].exchange(array, "sum", members, key, replicated=False, in_order=True)
                )
                board[seat].notices.poll()
    advance(board, begun, rounds=1000)
    for key, found in {**arrays, 15: beside}.items():
        assert all(array.tobytes() == expected[key].tobytes() for array in found)


def test_who_is_behind_is_awaited():
    one, two, three = board = windows([0, 1, 2], blocks=0)
    arrays = values(3, 900_000)
    first, second = begin_staged(board[:2], arrays[:2], (0, 1, 2), KEY)
    for _ in range(3):
        one.notices.poll()
        two.notices.poll()
    assert (first.Test(), first.peers, second.peers) == (False, [2], [2])
    (third,) = begin_staged([three], arrays[2:], (0, 1, 2), KEY)
    for _ in range(9):
        one.notices.poll()
        two.notices.poll()
    assert (first.Test(), first.peers, second.peers) == (False, [2], [2])
    advance(board, [first, second, third], rounds=1000)
    assert (first.peers, second.peers, third.peers) == ([], [], [])


def test_an_array_is_the_ranks_own_again_before_the_others_have_all_pieces():
    board = windows([0, 1], blocks=0)
    arrays, later = values(2, 100_000), values(2, 100_000)
    expected, last = tree_of(arrays), tree_of(later)
    begun = begin_staged(board, arrays, (0, 1), KEY)
    for window in board * 50:
        if not any(exchange.ended for exchange in begun):
            window.notices.poll()
    first = 0 if begun[0].ended else 1
    assert [exchange.ended for exchange in begun] == [first == 0, first == 1]
    assert arrays[first].tobytes() == expected.tobytes()
    arrays[first][...] = 0
    (third,) = begin_staged([board[first]], [later[first]], (0, 1), KEY + KEYS)
    board[first].notices.poll()
    assert (third.Test(), third.peers) == (False, [1 - first])  # which has not taken all that is on the stage
    advance(board, begun)
    assert arrays[1 - first].tobytes() == expected.tobytes()
    (fourth,) = begin_staged([board[1 - first]], [later[1 - first]], (0, 1), KEY + KEYS)
    advance(board, [third, fourth])
    assert all(array.tobytes() == last.tobytes() for array in later)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_the_pieces_of_a_later_exchange_are_none_of_a_cancelled_one(steps):
    one, two = board = windows([0, 1], blocks=0)
    arrays, later = values(2, 900_000), values(2, 900_000)
    cancelled, other = begin_staged(board, arrays, (0, 1), KEY)
    for _ in range(steps):
        one.notices.poll()
        two.notices.poll()
    one.retire(cancelled)
    left = arrays[0].copy()
    begin_staged([one], later[:1], (0, 1), KEY + KEYS)
    for _ in range(50):
        one.notices.poll()
        two.notices.poll()
    assert (other.Test(), other.peers) == (False, [0])
    assert arrays[0].tobytes() == left.tobytes()


def test_pieces_over_a_link_take_its_time():
    board, _ = linked((0, 1, 2), 0, 2e-3, 1e8)
    arrays = values(3, 100_000)
    expected = tree_of(arrays)
    start = time.monotonic()
    begun = begin_staged(board, arrays, (0, 1, 2), KEY)
    wait(board, begun)
    assert time.monotonic() - start >= 4 * 100_000 * 2 * 2 / 3 / 1e8 + 2e-3
    assert all(array.tobytes() == expected.tobytes() for array in arrays)


# -- on an emulated link -------------------------------------------------------------------------------------


def linked(ranks, blocks, latency, bandwidth, direct=False):
    """Windows of ranks, each with a link of its own."""
    board = windows(ranks, blocks, direct)
    links = [Link(latency, bandwidth) for _ in board]
    for window, link in zip(board, links, strict=True):
        window.attach_link(link)
    return board, links


def wait(windows, exchanges):
    """Poll all in turn until all exchanges have ended or stopped."""
    begun = time.monotonic()
    while not all(each.Test() for each in exchanges):
        for window in windows:
            window.notices.poll()
        assert time.monotonic() - begun < 20, [each.peers for each in exchanges]


@pytest.mark.parametrize(("replicated", "size"), [(False, 12_000), (True, 12_000), (False, 90_000)])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_exchanges_over_a_link_have_the_same_bits_and_take_its_time(ranks, replicated, size):
    members = tuple(range(ranks))
    board, links = linked(members, 2, 2e-3, 1e7, direct=True)
    arrays = [values(ranks, size) for _ in range(2)]
    expected = [tree_of(each) for each in arrays]
    start = time.monotonic()
    begun = [
        window.exchange(arrays[n][rank], "sum", members, KEYS * n, replicated=replicated)
        for n in range(2)
        for rank, window in enumerate(board)
    ]
    wait(board, begun)
    seconds = time.monotonic() - start
    sent = 4 * size * (ranks - 1) * (1 if replicated else 2 / ranks)  # by each rank, in each exchange
    assert seconds >= 2 * sent / 1e7 + 2e-3
    for found, right in zip(arrays, expected, strict=True):
        assert all(array.tobytes() == right.tobytes() for array in found)
    assert all(exchange.ended for exchange in begun)
    assert all(link.due() == float("inf") for link in links)


def test_an_urgent_exchange_overtakes_on_the_link():
    board, _ = linked((0, 1), 2, 0.0, 1e7)
    arrays = [values(2, 200_000), values(2, 2_000)]
    late, soon = [
        [
            window.exchange(each, "sum", (0, 1), KEY + 2 * n, priority, replicated=False)
            for each, window in zip(arrays[n], board, strict=True)
        ]
        for n, priority in ((0, -1), (1, 0))
    ]
    wait(board, soon)
    assert not any(exchange.Test() for exchange in late)
    wait(board, late)


def test_messages_of_python_and_notices_share_a_link():
    (one, two), (link, _) = linked((0, 1), 2, 0.0, 1e7)
    sent = []
    link.add(100_000, 1, lambda: sent.append(time.monotonic()))
    begun = time.monotonic()
    arrays = values(2, 2_000)
    exchanges = [
        w.exchange(a, "sum", (0, 1), KEY, replicated=False) for w, a in zip((one, two), arrays, strict=True)
    ]
    wait((one, two), exchanges)
    assert time.monotonic() - begun >= 0.01  # the message was first
    assert link.pump()
    assert len(sent) == 1
    assert not link.pump()


def test_who_has_not_been_told_is_awaited():
    (one, two), _ = linked((0, 1), 2, 0.5, 1e9)
    a, b = values(2, 9_000)
    exchange = one.exchange(a, "sum", (0, 1), KEY, replicated=True)
    two.notices.send(0, KEY, two.store({0: b})[0])
    one.notices.poll()
    assert (exchange.Test(), exchange.peers) == (False, [1])
    wait((one, two), [exchange])
    assert exchange.peers == []


def test_an_exchange_that_stops_has_told_the_others_first():
    """They may have combined what it has given them, and go on from there."""
    (one, two), _ = linked((0, 1), 1, 0.5, 1e9)
    a, _ = values(2, 9_000)
    exchange = one.exchange(a, "sum", (0, 1), KEY, replicated=False)
    two.notices.send(0, KEY, -1)
    one.notices.poll()
    assert not exchange.Test()
    wait((one, two), [exchange])
    assert not exchange.has_slices
    two.notices.poll()
    assert two.notices.pop(0, KEY) is not None


def test_a_cancelled_exchange_tells_nobody():
    (one, two), (link, _) = linked((0, 1), 2, 1e-3, 1e9)
    a, b = values(2, 9_000)
    cancelled = one.exchange(a, "sum", (0, 1), KEY, replicated=False)
    kept = one.exchange(b, "sum", (0, 1), KEY + 2, replicated=False)
    one.retire(cancelled)
    other = two.exchange(b.copy(), "sum", (0, 1), KEY + 2, replicated=False)
    wait((one, two), [kept, other])
    assert two.notices.pop(0, KEY) is None
    assert link.due() == float("inf")


def test_sums_that_python_has_stored_are_read_where_they_lie():
    """A rank that found no block for the exchange, and then one for slices, stores its sums in another."""
    one, two = windows([0, 1], blocks=2)
    a, b = values(2, 9_000)
    expected = tree_of([a, b])
    exchange = one.exchange(a, "sum", (0, 1), KEY, replicated=False)
    two.notices.send(0, KEY, two.store({0: b[:4500]})[0])
    two.notices.send(0, KEY + 1, two.store({0: expected[4500:]})[0])
    advance([one, two], [exchange])
    assert exchange.ended
    assert a.tobytes() == expected.tobytes()
