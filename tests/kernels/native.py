"""Call library kernels by address, as the engine does; the GIL is released during a call. They come from the
kernel store, so tests of programs that use them need not compile them again.
"""

import ctypes
import functools
import threading

import numpy as np

from tracejit.assembly.cpu_kernels import library_kernel
from tracejit.codegen.objects.loader import load

SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)


@functools.cache
def kernel(name, dtype, table):
    """A compiled kernel of a table, which stays in memory."""
    return load([library_kernel(name, dtype, table)])[0][0]


def address(name, dtype, table="LIBRARY"):
    """The address of a compiled kernel of a table."""
    return kernel(name, dtype, table).addresses["kernel"]


def block_of(slots, values):
    """An argument block from a mapping of slots to integers; every slot must be given."""
    assert set(values) == set(slots)
    block = np.zeros(len(slots), np.int64)
    for slot, value in values.items():
        block[slot] = value
    return block


def run(kernel, block, ranges, threads=1, room=0):
    """Call the kernel for every (lo, hi) of `ranges`, shared out over threads; all must return 0. Each thread
    has `room` bytes of scratch memory, which hold nothing that should be read.
    """
    function, failures = SIGNATURE(kernel), []
    start = threading.Barrier(threads)

    def work(mine):
        scratch = np.full(room + 64, 255, np.uint8)
        place = scratch.ctypes.data + -scratch.ctypes.data % 64 if room else 0
        start.wait()
        for lo, hi in mine:
            failures.extend(filter(None, [function(block.ctypes.data, lo, hi, place)]))

    workers = [threading.Thread(target=work, args=(ranges[i::threads],)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


def random_ranges(rng, units):
    """The units 0 to `units` cut into ranges at random, in random order."""
    cuts = np.unique(np.concatenate([[0, units], rng.integers(0, units + 1, size=rng.integers(0, 5))]))
    ranges = list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
    rng.shuffle(ranges)
    return [tuple(r) for r in ranges]
