"""Random bits: the published test vectors of Philox 4x32-10, addressing, and a look at the statistics."""

import numpy as np
import pytest

from tracejit.ops import random_bits
from tracejit.ops.random import philox

# kat_vectors of the Random123 distribution: counter words, key words, result words.
VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return tuple(np.uint64(int(word, 16)) for word in text.split())


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_philox_gives_the_published_vectors(counter, key, expected):
    with np.errstate(over="ignore"):
        assert philox(words(counter), words(key)) == words(expected)


def draw(key, counter, index, dtype):
    index = np.asarray(index, np.int64)
    return random_bits.evaluate(np.uint64(key), np.uint64(counter), index, dtype=np.dtype(dtype))


def test_bits_are_addressed_by_counter_and_index():
    first = draw(0, 0, [0], "uint32")
    assert first.tolist() == [0x6627E8D5]
    assert draw(0, 0, [0], "uint64").tolist() == [0xE169C58D6627E8D5]
    np.testing.assert_array_equal(draw(5, 10, [0, 1, 2], "uint64"), draw(5, 0, [10, 11, 12], "uint64"))
    assert draw(5, 2**64 - 1, [1], "uint32").tolist() == draw(5, 0, [0], "uint32").tolist()
    high = philox(words("00000007 00000003 0 0"), words("00000001 00000002"))
    assert draw((2 << 32) | 1, 3 << 32, [7], "uint32").tolist() == [int(high[0])]


def test_bits_look_uniform():
    bits = draw(1234, 0, np.arange(20000), "uint64")
    share = [float(((bits >> np.uint64(i)) & np.uint64(1)).mean()) for i in range(64)]
    assert max(abs(s - 0.5) for s in share) < 0.02
    assert len(np.unique(bits)) == bits.size
