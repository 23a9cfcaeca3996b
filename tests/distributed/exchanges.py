"""Many exchanges at once, in another order on each rank, through shared memory of any size, read where they
lie, and as messages, and one after the other, as a thread waits for them; ``exchanges.py`` says how many;
`test_window.py` starts it.
"""

import functools
import random
import time

import numpy as np
from mpi4py import MPI

from tests.distributed.checks import tree_of
from tracejit.distributed.transport import MpiTransport
from tracejit.distributed.window import BLOCK, SharedWindow
from tracejit.ir.graph import Node
from tracejit.ops.communicate import exchange

WORLD = MPI.COMM_WORLD
NODE = Node(exchange, (), (), {"combine": "sum", "priority": 0, "token": None})
SIZES = [10, 9_000, 70_000, 180_001, 300_001, 1_100_003]
ROUNDS = 3
SHIFT = 997


@functools.cache
def numbers(rank):
    """A rank's numbers, whose sum depends on the order in which they are added."""
    rng = np.random.default_rng(rank)
    count = max(SIZES) + 300 * SHIFT
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float32)


def value(rank, number, size):
    """Those that a rank exchanges under a number: a part of them, which begins elsewhere for each."""
    return numbers(rank)[number * SHIFT : number * SHIFT + size].copy()


def exchange_all(transport, number):
    """Each size twice, begun in an order of this rank's own."""
    sizes = dict(enumerate(SIZES * 2, start=number))
    arrays = {n: value(WORLD.rank, n, size) for n, size in sizes.items()}
    order, ended = list(arrays), []
    random.Random(WORLD.rank + number).shuffle(order)
    for n in order:
        transport.post(NODE, [arrays[n]], [arrays[n]], n, ended.append)
        transport.progress(lambda seconds=0.0: True)
    transport.progress(lambda seconds=0.0: False)
    assert ended == [None] * len(order), ended
    for n, size in sizes.items():
        expected = tree_of([value(rank, n, size) for rank in range(WORLD.size)])
        assert arrays[n].tobytes() == expected.tobytes(), (n, size)
    return len(order)


def exchange_in_turn(transport, number):
    """Each size, waited for; ranks come to it at other times."""
    for n, size in enumerate(SIZES * 2, start=number):
        array = value(WORLD.rank, n, size)
        time.sleep(1e-3 * (n % WORLD.size == WORLD.rank))
        transport.run(NODE, [array], [array])
        assert array.tobytes() == tree_of([value(rank, n, size) for rank in range(WORLD.size)]).tobytes()


for nbytes, link, direct in (
    (0, None, False),
    (BLOCK, None, False),
    (8 * BLOCK, None, True),
    (2 * BLOCK, (1e-4, 1e10), True),
):
    window = SharedWindow.allocate(WORLD, nbytes, direct=direct)
    assert not direct or window.reads, "this system does not let ranks read one another's memory"
    transport = MpiTransport(WORLD, 60.0, link, window)
    count = sum(exchange_all(transport, 100 * number) for number in range(ROUNDS))
    for number in range(ROUNDS):
        exchange_in_turn(transport, 100 * number)
    assert transport.leave(None, 60.0)
    print(f"exchanged {count} with {window.blocks if window else 0} blocks", flush=True)
