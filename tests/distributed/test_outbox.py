"""Messages on their way out: on a slow link the most urgent overtake those that wait."""

import time

import numpy as np

from tracejit.distributed.outbox import Outbox


class Comm:
    """Notes what MPI is given, which takes it at once."""

    def __init__(self):
        self.sent = []

    def Isend(self, buffer, peer, tag):
        self.sent.append(tag)
        return self

    def Test(self):
        return True


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


def test_a_link_takes_latency_and_bytes_over_bandwidth():
    comm, outbox = Comm(), Outbox(link=(5e-3, 1e6))
    begun = time.monotonic()
    for tag in range(3):
        outbox.add(comm, 1, np.zeros(2000, np.uint8), tag=tag, priority=0)
    pump(outbox, comm, 3)
    assert time.monotonic() - begun >= 3 * 2e-3 + 5e-3 - 1e-3
