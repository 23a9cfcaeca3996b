"""Philox 4x32-10, the counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011).

A draw is a pure function of key, stream position and element: block `counter + index` of the stream `key`. So
the numbers are the same for any number of workers, on CPU and GPU, and vector code draws a vector at a time.
The 128-bit counter is (low half, high half, 0, 0) of the 64-bit block number; the 64-bit key is split into
its two words.
"""

from tracejit.kernels.compiler.intrinsics import convert

MULTIPLIER = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
LOW = 0xFFFFFFFF


def _block(key, counter, index):
    """Lanes 0 and 1 of the block, as uint64 values below 2**32."""
    block = counter + convert(index, "uint64")
    c0, c1, c2, c3 = block & LOW, block >> 32, block & 0, block & 0
    k0, k1 = key & LOW, key >> 32
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIER[0], c2 * MULTIPLIER[1]
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & LOW, (p0 >> 32) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1


def random_bits_uint32(key, counter, index):
    """32 random bits; the arguments are a uint64 key, a uint64 counter and an int64 index."""
    return convert(_block(key, counter, index)[0], "uint32")


def random_bits_uint64(key, counter, index):
    """64 random bits; the arguments are a uint64 key, a uint64 counter and an int64 index."""
    low, high = _block(key, counter, index)
    return low | (high << 32)
