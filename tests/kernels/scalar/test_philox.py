"""Philox against a slow one written from the paper, which is itself checked with published known answers."""

import numpy as np
import pytest

from tests.kernels.loops import Loops

MASK = 0xFFFFFFFF


def philox4x32(counter, key, rounds=10):
    """The four words of a block: counter of four words, key of two, lowest first (from the paper)."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(rounds):
        first, second = x0 * 0xD2511F53, x2 * 0xCD9E8D57
        x0, x1, x2, x3 = (second >> 32) ^ x1 ^ k0, second & MASK, (first >> 32) ^ x3 ^ k1, first & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return x0, x1, x2, x3


@pytest.mark.parametrize(
    ("counter", "key", "block"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_oracle_gives_the_published_answers(counter, key, block):
    words = [[int(word, 16) for word in text.split()] for text in (counter, key, block)]
    assert list(philox4x32(*words[:2])) == words[2]


def expected(key, counter, index):
    block = (counter + index) % 2**64
    words = philox4x32((block & MASK, block >> 32, 0, 0), (key & MASK, key >> 32))
    return words[0], words[0] | words[1] << 32


def test_draws_of_every_key_counter_and_index():
    g = np.random.default_rng(0)
    key, counter = (g.integers(0, 2**64, 500, dtype=np.uint64) for _ in range(2))
    index = g.integers(0, 2**40, 500)
    key[:3], counter[:3], index[:3] = 0, (0, 2**64 - 1, 2**32 - 1), (0, 1, 1)
    operands = ["uint64", "uint64", "int64"]
    cases = [([f"random_bits_{dtype}"], operands, [dtype]) for dtype in ("uint32", "uint64")]
    loops = Loops(cases)
    answers = [expected(*map(int, row)) for row in zip(key, counter, index, strict=True)]
    assert loops(0, key, counter, index)[0].tolist() == [answer[0] for answer in answers]
    assert loops(1, key, counter, index)[0].tolist() == [answer[1] for answer in answers]
    assert answers[0][0] == 0x6627E8D5
    assert " x i64>" in loops.body(0), "the loop is not vectorised"
