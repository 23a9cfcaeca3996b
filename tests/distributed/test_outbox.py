"""Messages on their way out: on a slow link the most urgent overtake those that wait."""

import time

import numpy as np

from tracejit.distributed.outbox import CHUNK, WINDOW, Outbox


class Comm:
    """Notes what MPI is given, which takes it at once, or not before it `takes`."""

    def __init__(self, *, takes=True):
        self.sent, self.sizes, self.takes = [], [], takes

    def Isend(self, buffer, peer, tag):
        self.sent.append(tag)
        self.sizes.append(len(buffer))
        return self

    def Test(self):
        return self.takes


def pump(outbox, comm, count):
    end = time.monotonic() + 20
    while len(comm.sent) < count:
        outbox.pump()
        assert time.monotonic() < end


def test_the_first_layer_overtakes_on_a_slow_link():
    """Layer 3's gradient is on the link, those of 2 and 1 wait, when that of layer 0 comes."""
    comm, outbox = Comm(), Outbox(link=(1e-3, 1e6))
    for layer in (3, 2, 1):
        outbox.add(comm, 1, np.zeros(5000, np.uint8), tag=layer, priority=-layer)
        if layer == 3:
            outbox.pump()
    outbox.add(comm, 1, np.zeros(100, np.uint8), tag=0, priority=0)
    pump(outbox, comm, 4)
    assert comm.sent == [3, 0, 1, 2]


def test_an_urgent_message_overtakes_one_that_is_on_the_link():
    """A long one takes 0.2 s; what is added meanwhile waits for a packet of 6.6 ms at most."""
    comm, outbox = Comm(), Outbox(link=(0.0, 1e7), local_ranks=[1])
    outbox.add(comm, 1, np.zeros(2_000_000, np.uint8), tag=1, priority=-1)
    time.sleep(0.01)
    assert not outbox.pump()
    assert 0.0 < outbox.due() <= 0.19
    outbox.add(comm, 1, np.zeros(100, np.uint8), tag=0, priority=0)
    pump(outbox, comm, 2)
    assert comm.sent == [0, 1]
    assert outbox.due() == float("inf")


def test_a_message_between_machines_is_overtaken_between_two_pieces():
    comm, outbox = Comm(takes=False), Outbox()
    long = outbox.add(comm, 1, np.zeros((WINDOW + 1) * CHUNK + 5, np.uint8), tag=1, priority=-1)
    outbox.pump()
    urgent = outbox.add(comm, 1, np.zeros(100, np.uint8), tag=0, priority=0)
    assert comm.sizes == WINDOW * [CHUNK]
    assert not long.Test()
    comm.takes = True
    outbox.pump()
    assert comm.sent == [*WINDOW * [1], 0, 1, 1]
    assert comm.sizes[WINDOW:] == [100, CHUNK, 5]
    assert long.Test()
    assert urgent.Test()


def test_a_link_does_not_know_when_somebody_looks():
    """Whoever looks late finds everything that has arrived meanwhile, in the order in which it did."""
    comm, outbox = Comm(), Outbox(link=(1e-3, 1e6))
    for tag in (1, 0):
        outbox.add(comm, 1, np.zeros(1000, np.uint8), tag=tag, priority=-tag)
        time.sleep(5e-3)
    assert outbox.pump()
    assert comm.sent == [1, 0]


def test_a_link_takes_latency_and_bytes_over_bandwidth():
    comm, outbox = Comm(), Outbox(link=(5e-3, 1e6))
    begun = time.monotonic()
    for tag in range(3):
        outbox.add(comm, 1, np.zeros(2000, np.uint8), tag=tag, priority=0)
    pump(outbox, comm, 3)
    assert time.monotonic() - begun >= 3 * 2e-3 + 5e-3 - 1e-3
