"""The calls of the attention kernels, their argument blocks and splits into units. Needs no Numba.

Operands are (batch, rows, elements), C-contiguous. Several matrices of queries, consecutive in their batch,
may share one matrix of keys and values: ``batch of queries = HEADS * batch of keys``. A mask, if there is
one, is the last operand: (MASKS, MASK_ROWS, keys), with a row for each query or one row for all. Matrix m of
the queries has the mask ``m // SPREAD % MASKS``.

    attention             unit = (matrix of queries, block of its rows)
    attention_gradient    unit = (matrix of keys, range of its rows): the gradients of its keys and values,
                          and its contribution to the gradient of the queries

Units write disjoint elements, and the split depends on shapes only: results are the same for any number of
workers.

>>> shapes, attrs = [(32, 128, 32)] * 4 + [(32, 128)], {"scale": 1.0, "causal": True}
>>> call = attention_call("attention", shapes, attrs, "float32")
>>> call.units, call.words[1:8]
(64, (32, 1, 128, 128, 32, 32, 1))
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import enum
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tracejit.kernels.gemm.blas import entry_points
from tracejit.kernels.images.windows import ENTRIES, PACKING
from tracejit.kernels.split import KernelCall, ceil_div

ROWS = 96  # queries in a block: keys and values are packed again for each
KEYS = 128  # keys in a block: the depth of a sliver of `tracejit.kernels.gemm.packed`
STEP = 6  # blocks of queries end on multiples of a register tile
UNITS = 8  # target number of units of the backward pass if there are fewer matrices
LINE = 64


MASKS = {"attention": (3, 6), "attention_gradient": (6, 10)}
"""For each operator, the position of the mask among its operands, and its number of operands and results with
a mask.
"""


class Attention(enum.IntEnum):
    """Slots of both blocks up to the addresses of the operands, which follow in the operator's order.

    scores = SCALE * query @ key.T; CAUSAL = 1: the keys up to i are visible to query i. BLOCK_ROWS,
    BLOCK_KEYS: extents of a block of scores, which is stored in scratch memory. RANGES: number of units for
    each matrix, of RANGE_SIZE blocks each. PACKED: offset in scratch memory of the workspace of products.
    MASKS = 0: there is no mask. NAN = 1: a row without visible keys is nan. CUT = 1: a score of minus
    infinity passes no cotangent, even if weights are nan.
    """

    ENTRY = 0  # address of `?gemm`
    MATRICES = 1  # of queries
    HEADS = 2
    QUERIES = 3
    KEYS = 4
    FEATURES = 5
    VALUES = 6
    CAUSAL = 7
    SCALE = 8  # a number of the operands' dtype
    BLOCK_ROWS = 9
    BLOCK_KEYS = 10
    RANGE_SIZE = 11
    RANGES = 12
    PACKED = 13
    MASKS = 14
    MASK_ROWS = 15
    SPREAD = 16
    NAN = 17
    CUT = 18
    FIRST = 19


def block_of(extent: int, most: int, step: int) -> int:
    """The extent of blocks of about equal size, at most `most`: a multiple of `step`.

    >>> block_of(128, 96, 6), block_of(50, 96, 6), block_of(4096, 128, 1)
    (66, 54, 128)
    """
    blocks = max(1, ceil_div(extent, most))
    return ceil_div(ceil_div(extent, blocks), step) * step


def gradient_ranges(keys: Sequence[int]) -> int:
    """The number of ranges into which the backward pass splits the rows of each matrix of keys, from the
    shape of all keys.

    >>> gradient_ranges((32, 128, 32)), gradient_ranges((1, 4096, 64)), gradient_ranges((3, 512, 64))
    (1, 8, 2)
    """
    blocks = max(1, ceil_div(keys[1], KEYS))
    range_blocks = ceil_div(blocks, min(blocks, ceil_div(UNITS, max(keys[0], 1))))
    return ceil_div(blocks, range_blocks)


def attention_call(
    name: str, shapes: Sequence[Sequence[int]], attrs: Mapping[str, Any], dtype: str
) -> KernelCall:
    """The call of an operator; `shapes`: those of its operands, followed by those of its results."""
    (matrices, queries, features), (shared, keys, _), (_, _, values) = shapes[:3]
    entry, itemsize = ENTRIES[dtype]
    rows, width = block_of(queries, ROWS, STEP), block_of(keys, KEYS, 1)
    backward = name == "attention_gradient"
    number, count = MASKS[name]
    masks, mask_rows = shapes[number][:2] if len(shapes) == count else (0, 0)
    if backward:
        ranges = attrs["parts"]
        range_size = ceil_div(max(1, ceil_div(keys, width)), ranges)
        units = shared * ranges
    else:
        range_size, ranges = 1, ceil_div(queries, rows)
        units = matrices * ranges
    lines = rows * (2 * line_of(width, itemsize) if backward else line_of(width, itemsize) + 2)
    workspace_offset = ceil_div(lines * itemsize, LINE) * LINE
    number = struct.pack("<d" if itemsize == 8 else "<f", attrs["scale"])
    scale = int.from_bytes(number, "little", signed=True)
    words = (
        *(entry_points()[entry], matrices, matrices // max(shared, 1), queries, keys, features, values),
        *(int(attrs["causal"]), scale, rows, width, range_size, ranges, workspace_offset),
        *(
            masks,
            mask_rows,
            attrs.get("spread", 1),
            int(attrs.get("nan", False)),
            int(attrs.get("cut", False)),
        ),
    )
    return KernelCall(name, dtype, words, units, 1, workspace_offset + PACKING)


def line_of(width: int, itemsize: int) -> int:
    """The distance of the rows of a block of scores, in elements.

    >>> line_of(128, 4)
    144
    """
    lanes = LINE // itemsize
    return (ceil_div(width, lanes) + 1) * lanes


CALLS = {"attention": attention_call, "attention_gradient": attention_call}
"""Calls of operators: ``call(name, shapes, attrs, dtype)``; shapes of operands, then of results."""
