"""Attention over blocks of scores that stay in the caches; plans: `tracejit.kernels.attention.plan`.

Forward, for a block of rows of queries (Milakov and Gimelshein, Online normalizer calculation for softmax,
2018; Dao et al., FlashAttention, 2022):

    for each block of keys:
        scores = queries @ keys.T
        highest, before = max(highest, scores), highest        # of each row
        weights = exp(scores - highest)
        total = total * exp(before - highest) + sum(weights)
        result = result * exp(before - highest) + weights @ values
    result, log_sums = result / total, highest + log(total)

Backward, for a block of keys, from what the forward pass has kept; `along` is the sum over each row of
cotangent * result:

    for each block of rows:
        weights = exp(queries @ keys.T - log_sums)
        slopes = weights * (cotangent @ values.T - along) * scale
        values' += weights.T @ cotangent
        keys' += slopes.T @ queries
        queries' += slopes @ keys

If attention is causal, blocks that no row sees are not computed at all. A mask is added to the scores. A row
that sees no key, as all of its scores are minus infinity, has no weights: its result is 0, its log_sum
infinite; or both are nan.
"""

from math import inf, nan

from numba import int64

from tracejit.kernels.attention.plan import Attention as A
from tracejit.kernels.compiler.memory import number_slot, pointer, slot
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.images.products import make_product
from tracejit.kernels.scalar import FUNCTIONS
from tracejit.kernels.scalar.accumulate import (
    add_reassoc,
    float_of_rank_float32,
    float_of_rank_float64,
    rank_float32,
    rank_float64,
)


@subroutine
def line_of(width, itemsize):
    """`tracejit.kernels.attention.plan.line_of`."""
    lanes = 64 // itemsize
    return ((width + lanes - 1) // lanes + 1) * lanes


@subroutine
def seen_by(row, keys, causal):
    """The number of keys that the rows up to `row` see."""
    return min(row + 1, keys) if causal else keys


@subroutine
def mask_of(block, number, matrix, row, key, itemsize):
    """The address of the mask's elements for a query from a key on: the mask is operand `number`."""
    rows = slot(block, A.MASK_ROWS)
    mask = matrix // slot(block, A.SPREAD) % slot(block, A.MASKS)
    line = mask * rows + (row if rows > 1 else 0)
    return slot(block, A.FIRST + number) + itemsize * (line * slot(block, A.KEYS) + key)


def make_rows(dtype, itemsize):
    """The operations on a row of a block: (highest_of, weigh, multiply_row, add_mask)."""
    single = itemsize == 4
    rank, float_of_rank = (
        (rank_float32, float_of_rank_float32) if single else (rank_float64, float_of_rank_float64)
    )
    larger, exp = FUNCTIONS["maximum"], FUNCTIONS["exp"]

    @subroutine
    def highest_of(scores, start, count, scale, before):
        """The largest of `before` and the scaled scores; nan if there is one."""
        best = rank(before)
        for c in range(start, start + count):
            best = larger(best, rank(scores[c] * scale))
        return float_of_rank(best)

    @subroutine
    def weigh(scores, start, count, scale, less):
        """Make weights of scores; returns their sum."""
        total = dtype(0)
        for c in range(start, start + count):
            weight = exp(scores[c] * scale - less)
            scores[c] = weight
            total = add_reassoc(total, weight)
        return total

    @subroutine
    def multiply_row(x, start, count, factor):
        for c in independent(start, start + count):
            x[c] = x[c] * factor

    @subroutine
    def add_mask(scores, start, count, scale, address):
        """Scale the scores, and add a mask."""
        mask = pointer(address, dtype)
        for c in independent(0, count):
            scores[start + c] = scores[start + c] * scale + mask[c]

    return highest_of, weigh, multiply_row, add_mask


def make_attention(dtype, itemsize):
    """The averages of values, and the logarithms of the sums of weights."""
    multiply = make_product(dtype, itemsize)
    highest_of, weigh, multiply_row, add_mask = make_rows(dtype, itemsize)
    exp, log = FUNCTIONS["exp"], FUNCTIONS["log"]

    @subroutine
    def weights_of_block(block, scores, facts, out, matrix, first, rows, j, width):
        """Make weights of the scores of a block; correct the results of the blocks before."""
        rows_of_block, keys, values = slot(block, A.BLOCK_ROWS), slot(block, A.KEYS), slot(block, A.VALUES)
        causal, scale = slot(block, A.CAUSAL) != 0, number_slot(block, A.SCALE, dtype)
        line, masked = line_of(slot(block, A.BLOCK_KEYS), itemsize), slot(block, A.MASKS) != 0
        for r in range(rows):
            start, seen = r * line, min(max(seen_by(first + r, keys, causal) - j, 0), width)
            for c in range(start + seen, start + width):
                scores[c] = dtype(0)
            if seen == 0:
                continue
            before, factor = facts[r], scale
            if masked:
                add_mask(scores, start, seen, scale, mask_of(block, 3, matrix, first + r, j, itemsize))
                factor = dtype(1)
            highest = highest_of(scores, start, seen, factor, before)
            less = dtype(0) if masked & (highest == dtype(-inf)) else highest
            total = weigh(scores, start, seen, factor, less)
            facts[r] = highest
            if j == 0:
                facts[rows_of_block + r] = total
            else:
                again = exp(before - less)
                facts[rows_of_block + r] = facts[rows_of_block + r] * again + total
                if again != dtype(1):
                    multiply_row(out, r * values, values, again)

    def attention(block, lo, hi, scratch):
        queries, keys = slot(block, A.QUERIES), slot(block, A.KEYS)
        features, values = slot(block, A.FEATURES), slot(block, A.VALUES)
        size, wide, parts = slot(block, A.BLOCK_ROWS), slot(block, A.BLOCK_KEYS), slot(block, A.PARTS)
        entry, room, causal = (
            slot(block, A.ENTRY),
            scratch + slot(block, A.PACKED),
            slot(block, A.CAUSAL) != 0,
        )
        line, masked = line_of(wide, itemsize), int64(slot(block, A.MASKS) != 0)
        scores, facts = pointer(scratch, dtype), pointer(scratch + size * line * itemsize, dtype)
        for unit in range(lo, hi):
            matrix, first = unit // parts, (parts - 1 - unit % parts) * size  # the most work first
            rows, shared = min(size, queries - first), matrix // slot(block, A.HEADS)
            q = slot(block, A.FIRST) + itemsize * (matrix * queries + first) * features
            k = slot(block, A.FIRST + 1) + itemsize * shared * keys * features
            v = slot(block, A.FIRST + 2) + itemsize * shared * keys * values
            o = slot(block, A.FIRST + 3 + masked) + itemsize * (matrix * queries + first) * values
            out = pointer(o, dtype)
            for r in range(rows):
                facts[r] = dtype(-inf)
            seen = seen_by(first + rows - 1, keys, causal)
            for j in range(0, seen, wide):
                width = min(wide, seen - j)
                right = (k + itemsize * j * features, features, True)
                multiply(
                    entry, (q, features, False), right, (scratch, line), (rows, width, features), False, room
                )
                weights_of_block(block, scores, facts, out, matrix, first, rows, j, width)
                right, extents = (v + itemsize * j * values, values, False), (rows, values, width)
                multiply(entry, (scratch, line, False), right, (o, values), extents, j > 0, room)
            nothing, infinite = dtype(0), dtype(inf)
            if slot(block, A.NAN) != 0:
                nothing = infinite = dtype(nan)
            sums = pointer(slot(block, A.FIRST + 4 + masked) + itemsize * (matrix * queries + first), dtype)
            for r in range(rows):
                total = facts[size + r]
                sees = (masked == 0) | (facts[r] != dtype(-inf))
                multiply_row(out, r * values, values, dtype(1) / total if sees else nothing)
                sums[r] = facts[r] + log(total) if sees else infinite
        return int64(0)

    return attention


def make_attention_gradient(dtype, itemsize):
    """The gradients of queries (what each part of the keys adds to them), keys and values."""
    multiply = make_product(dtype, itemsize)
    _, _, _, add_mask = make_rows(dtype, itemsize)
    exp = FUNCTIONS["exp"]

    @subroutine
    def slopes_of_row(weights, slopes, start, seen, width, factor, scale, log_sum, along, cut):
        """Make weights of scores times `factor`, and slopes of products of cotangents and values."""
        for c in independent(start, start + seen):
            score = weights[c] * factor
            weight = exp(score - log_sum)
            weights[c] = weight
            slope = weight * (slopes[c] - along) * scale
            slopes[c] = dtype(0) if cut & (score == dtype(-inf)) else slope
        for c in independent(start + seen, start + width):
            weights[c] = dtype(0)
            slopes[c] = dtype(0)

    @subroutine
    def clear(address, count):
        out = pointer(address, dtype)
        for c in independent(0, count):
            out[c] = dtype(0)

    @subroutine
    def add_block(block, scratch, matrix, begin, j, width):
        """Add what the rows from `begin` on contribute to the gradients by `width` keys from `j` on."""
        queries, keys = slot(block, A.QUERIES), slot(block, A.KEYS)
        features, values = slot(block, A.FEATURES), slot(block, A.VALUES)
        size, line = slot(block, A.BLOCK_ROWS), line_of(slot(block, A.BLOCK_KEYS), itemsize)
        entry, room, causal = (
            slot(block, A.ENTRY),
            scratch + slot(block, A.PACKED),
            slot(block, A.CAUSAL) != 0,
        )
        scale, stop = number_slot(block, A.SCALE, dtype), min(begin + size, queries)
        cut = slot(block, A.CUT) != 0
        first = max(begin, j) if causal else begin  # rows before `j` see none of these keys
        rows, width = stop - first, min(width, seen_by(stop - 1, keys, causal) - j)
        row, key = matrix * queries + first, matrix // slot(block, A.HEADS) * keys + j
        q = slot(block, A.FIRST) + itemsize * row * features
        k = slot(block, A.FIRST + 1) + itemsize * key * features
        v = slot(block, A.FIRST + 2) + itemsize * key * values
        log_sums = pointer(slot(block, A.FIRST + 3) + itemsize * row, dtype)
        along = pointer(slot(block, A.FIRST + 4) + itemsize * row, dtype)
        ct = slot(block, A.FIRST + 5) + itemsize * row * values
        part, masked = j // slot(block, A.BLOCK_KEYS) // slot(block, A.PART), slot(block, A.MASKS) != 0
        to_row, to = part * slot(block, A.MATRICES) * queries + row, A.FIRST + 6 + int64(masked)
        to_q = slot(block, to) + itemsize * to_row * features
        to_k = slot(block, to + 1) + itemsize * key * features
        to_v = slot(block, to + 2) + itemsize * key * values
        other = scratch + size * line * itemsize
        weights, slopes = pointer(scratch, dtype), pointer(other, dtype)
        wide, deep, over = (rows, width, features), (width, features, rows), (width, values, rows)
        multiply(entry, (q, features, False), (k, features, True), (scratch, line), wide, False, room)
        multiply(
            entry, (ct, values, False), (v, values, True), (other, line), (rows, width, values), False, room
        )
        for r in range(rows):
            seen, factor = min(max(seen_by(first + r, keys, causal) - j, 0), width), scale
            if masked:
                add_mask(weights, r * line, seen, scale, mask_of(block, 6, matrix, first + r, j, itemsize))
                factor = dtype(1)
            slopes_of_row(weights, slopes, r * line, seen, width, factor, scale, log_sums[r], along[r], cut)
        multiply(entry, (scratch, line, True), (ct, values, False), (to_v, values), over, True, room)
        multiply(entry, (other, line, True), (q, features, False), (to_k, features), deep, True, room)
        extents = (rows, features, width)
        multiply(entry, (other, line, False), (k, features, False), (to_q, features), extents, True, room)

    def attention_gradient(block, lo, hi, scratch):
        queries, keys, heads = slot(block, A.QUERIES), slot(block, A.KEYS), slot(block, A.HEADS)
        features, values = slot(block, A.FEATURES), slot(block, A.VALUES)
        size, wide = slot(block, A.BLOCK_ROWS), slot(block, A.BLOCK_KEYS)
        part, parts, causal = slot(block, A.PART), slot(block, A.PARTS), slot(block, A.CAUSAL) != 0
        to = A.FIRST + 6 + int64(slot(block, A.MASKS) != 0)
        for unit in range(lo, hi):
            shared = unit // parts
            start = unit % parts * slot(block, A.MATRICES) + shared * heads
            area = queries * features
            clear(slot(block, to) + itemsize * start * area, heads * area)
            for j in range(unit % parts * part * wide, min((unit % parts + 1) * part * wide, keys), wide):
                width, key = min(wide, keys - j), shared * keys + j
                clear(slot(block, to + 1) + itemsize * key * features, width * features)
                clear(slot(block, to + 2) + itemsize * key * values, width * values)
                for h in range(heads):
                    for i in range(j // size * size if causal else 0, queries, size):
                        add_block(block, scratch, shared * heads + h, i, j, width)
        return int64(0)

    return attention_gradient
