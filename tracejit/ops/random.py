"""Counter-based random bits: Philox 4x32-10.

Method: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A draw is a pure
function of a key and a position, so it can be computed in any order and recomputed. Element i of
``random_bits(key, counter, index)`` encrypts the 128-bit block whose low half is counter + index[i] with the
two 32-bit halves of the key. A uint32 result is the first word of the encrypted block, a uint64 result the
first two words (low word first). Key and counter are host numbers, or arrays of the shape of the index, for
generators whose state is an array.
"""

from __future__ import annotations

import numpy as np

from tracejit.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.ops.rules import INT64, UINT64, check_count, describe_types
from tracejit.ops.symbolic import Operator

UINT32 = np.dtype("uint32")
LOW_WORD = np.uint64(0xFFFFFFFF)
WORD_BITS = np.uint64(32)
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)

Words = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def philox(block: Words, key: tuple[np.ndarray, np.ndarray]) -> Words:
    """Apply ten Philox rounds to four 32-bit words (stored as uint64) with a key of two words."""
    (x0, x1, x2, x3), (k0, k1) = block, key
    for _ in range(10):
        first, second = x0 * MULTIPLIERS[0], x2 * MULTIPLIERS[1]
        x0, x1, x2, x3 = (
            (second >> WORD_BITS) ^ x1 ^ k0,
            second & LOW_WORD,
            (first >> WORD_BITS) ^ x3 ^ k1,
            first & LOW_WORD,
        )
        k0, k1 = (k0 + WEYL[0]) & LOW_WORD, (k1 + WEYL[1]) & LOW_WORD
    return x0, x1, x2, x3


def _infer(*types: ArrayType, dtype: np.dtype) -> ArrayType:
    check_count("random_bits", types, 3)
    key, counter, index = types
    if index.on_host:
        raise DeviceError(
            f"random_bits needs two numbers and an array of indices, got {describe_types(types)}"
        )
    for operand in (key, counter):
        if not operand.on_host and (operand.shape, operand.device) != (index.shape, index.device):
            raise ShapeError(
                f"random_bits needs numbers, or arrays like the index, got {describe_types(types)}"
            )
    if key.dtype != UINT64 or counter.dtype != UINT64 or index.dtype != INT64:
        raise DTypeError(
            f"random_bits needs a uint64 key and counter and an int64 index, got {describe_types(types)}"
        )
    if dtype not in (UINT32, UINT64):
        raise ArgumentError(f"random_bits returns uint32 or uint64, not {dtype}")
    return ArrayType(index.shape, dtype, index.device)


def _evaluate(key: np.ndarray, counter: np.ndarray, index: np.ndarray, *, dtype: np.dtype) -> np.ndarray:
    position = index.astype(UINT64) + counter
    zero = np.zeros_like(position)
    x0, x1, _, _ = philox(
        (position & LOW_WORD, position >> WORD_BITS, zero, zero), (key & LOW_WORD, key >> WORD_BITS)
    )
    return np.asarray(x0 if dtype == UINT32 else x0 | (x1 << WORD_BITS)).astype(dtype)


random_bits = Operator(
    "random_bits",
    _infer,
    _evaluate,
    None,
    "random_bits",
    frozenset({Trait.ELEMENTWISE, Trait.EXACT, Trait.EXPENSIVE, Trait.TYPED}),
    "Random bits, a pure function of key, counter and index.",
    admits=frozenset({UINT32, UINT64}),
)
register(random_bits)
