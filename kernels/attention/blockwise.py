"""Attention over blocks of scores that stay in the caches; plans: `tracejit.kernels.attention.plan`.

Forward, for a block of rows of queries (Milakov and Gimelshein, Online normalizer calculation for softmax,
2018; Dao et al., FlashAttention, 2022):

    for each block of keys:
        scores = queries @ keys.T
        maximum, previous = max(maximum, scores), maximum      # of each row
        weights = exp(scores - maximum)
        total = total * exp(previous - maximum) + sum(weights)
        result = result * exp(previous - maximum) + weights @ values
    result, log_sums = result / total, maximum + log(total)

Backward, for a block of keys, from results of the forward pass; `dots` is the sum over each row of cotangent
* result:

    for each block of rows:
        weights = exp(queries @ keys.T - log_sums)
        slopes = weights * (cotangent @ values.T - dots) * scale      # gradients of the unscaled scores
        values' += weights.T @ cotangent
        keys' += slopes.T @ queries
        queries' += slopes @ keys

If attention is causal, blocks of keys that are visible to no row are skipped. A mask is added to the scores.
A row without visible keys, all of whose scores are minus infinity, has no weights: its result is 0 and its
log_sum infinite; or both are nan.
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
    """See `tracejit.kernels.attention.plan.line_of`."""
    lanes = 64 // itemsize
    return ((width + lanes - 1) // lanes + 1) * lanes


@subroutine
def visible_keys(row, keys, causal):
    """The number of keys that are visible to the rows up to `row`."""
    return min(row + 1, keys) if causal else keys


@subroutine
def mask_of(block, number, matrix, row, key, itemsize):
    """The address of the mask elements of a query from the key `key` on; the mask is operand `number`."""
    rows = slot(block, A.MASK_ROWS)
    mask = matrix // slot(block, A.SPREAD) % slot(block, A.MASKS)
    line = mask * rows + (row if rows > 1 else 0)
    return slot(block, A.FIRST + number) + itemsize * (line * slot(block, A.KEYS) + key)


def make_rows(dtype, itemsize):
    """Return the operations on a row of a block: ``(maximum_of, exponentiate, multiply_row, add_mask)``."""
    single = itemsize == 4
    rank, float_of_rank = (
        (rank_float32, float_of_rank_float32) if single else (rank_float64, float_of_rank_float64)
    )
    larger, exp = FUNCTIONS["maximum"], FUNCTIONS["exp"]

    @subroutine
    def maximum_of(scores, start, count, scale, previous):
        """The largest of `previous` and the scaled scores; nan if there is one."""
        maximum = rank(previous)
        for c in range(start, start + count):
            maximum = larger(maximum, rank(scores[c] * scale))
        return float_of_rank(maximum)

    @subroutine
    def exponentiate(scores, start, count, scale, shift):
        """Replace scores by weights. Returns the sum of the weights."""
        total = dtype(0)
        for c in range(start, start + count):
            weight = exp(scores[c] * scale - shift)
            scores[c] = weight
            total = add_reassoc(total, weight)
        return total

    @subroutine
    def multiply_row(x, start, count, factor):
        for c in independent(start, start + count):
            x[c] = x[c] * factor

    @subroutine
    def add_mask(scores, start, count, scale, address):
        """Scale the scores and add a mask."""
        mask = pointer(address, dtype)
        for c in independent(0, count):
            scores[start + c] = scores[start + c] * scale + mask[c]

    return maximum_of, exponentiate, multiply_row, add_mask


def make_attention(dtype, itemsize):
    """Return the kernel of the averages of values and of the logarithms of the sums of weights."""
    multiply = make_product(dtype, itemsize)
    maximum_of, exponentiate, multiply_row, add_mask = make_rows(dtype, itemsize)
    exp, log = FUNCTIONS["exp"], FUNCTIONS["log"]

    @subroutine
    def compute_weights(block, scores, row_facts, out, matrix, first, rows, j, width):
        """Replace the scores of a block by weights, and rescale the results of the previous blocks."""
        rows_of_block, keys, values = slot(block, A.BLOCK_ROWS), slot(block, A.KEYS), slot(block, A.VALUES)
        causal, scale = slot(block, A.CAUSAL) != 0, number_slot(block, A.SCALE, dtype)
        line, masked = line_of(slot(block, A.BLOCK_KEYS), itemsize), slot(block, A.MASKS) != 0
        for r in range(rows):
            start, visible = r * line, min(max(visible_keys(first + r, keys, causal) - j, 0), width)
            for c in range(start + visible, start + width):
                scores[c] = dtype(0)
            if visible == 0:
                continue
            previous, factor = row_facts[r], scale
            if masked:
                add_mask(scores, start, visible, scale, mask_of(block, 3, matrix, first + r, j, itemsize))
                factor = dtype(1)
            maximum = maximum_of(scores, start, visible, factor, previous)
            shift = dtype(0) if masked & (maximum == dtype(-inf)) else maximum
            total = exponentiate(scores, start, visible, factor, shift)
            row_facts[r] = maximum
            if j == 0:
                row_facts[rows_of_block + r] = total
            else:
                correction = exp(previous - shift)
                row_facts[rows_of_block + r] = row_facts[rows_of_block + r] * correction + total
                if correction != dtype(1):
                    multiply_row(out, r * values, values, correction)

    def attention(block, lo, hi, scratch):
        queries, keys = slot(block, A.QUERIES), slot(block, A.KEYS)
        features, values = slot(block, A.FEATURES), slot(block, A.VALUES)
        size, block_keys, splits = slot(block, A.BLOCK_ROWS), slot(block, A.BLOCK_KEYS), slot(block, A.RANGES)
        entry, workspace, causal = (
            slot(block, A.ENTRY),
            scratch + slot(block, A.PACKED),
            slot(block, A.CAUSAL) != 0,
        )
        line, masked = line_of(block_keys, itemsize), int64(slot(block, A.MASKS) != 0)
        scores, row_facts = pointer(scratch, dtype), pointer(scratch + size * line * itemsize, dtype)
        for unit in range(lo, hi):
            # the units with most work first
            matrix, first = unit // splits, (splits - 1 - unit % splits) * size
            rows, key_matrix = min(size, queries - first), matrix // slot(block, A.HEADS)
            q = slot(block, A.FIRST) + itemsize * (matrix * queries + first) * features
            k = slot(block, A.FIRST + 1) + itemsize * key_matrix * keys * features
            v = slot(block, A.FIRST + 2) + itemsize * key_matrix * keys * values
            o = slot(block, A.FIRST + 3 + masked) + itemsize * (matrix * queries + first) * values
            out = pointer(o, dtype)
            for r in range(rows):
                row_facts[r] = dtype(-inf)
            visible = visible_keys(first + rows - 1, keys, causal)
            for j in range(0, visible, block_keys):
                width = min(block_keys, visible - j)
                right = (k + itemsize * j * features, features, True)
                multiply(
                    entry,
                    (q, features, False),
                    right,
                    (scratch, line),
                    (rows, width, features),
                    False,
                    workspace,
                )
                compute_weights(block, scores, row_facts, out, matrix, first, rows, j, width)
                right, extents = (v + itemsize * j * values, values, False), (rows, values, width)
                multiply(entry, (scratch, line, False), right, (o, values), extents, j > 0, workspace)
            empty_scale, empty_log_sum = dtype(0), dtype(inf)
            if slot(block, A.NAN) != 0:
                empty_scale = empty_log_sum = dtype(nan)
            sums = pointer(slot(block, A.FIRST + 4 + masked) + itemsize * (matrix * queries + first), dtype)
            for r in range(rows):
                total = row_facts[size + r]
                has_keys = (masked == 0) | (row_facts[r] != dtype(-inf))
                multiply_row(out, r * values, values, dtype(1) / total if has_keys else empty_scale)
                sums[r] = row_facts[r] + log(total) if has_keys else empty_log_sum
        return int64(0)

    return attention


def make_attention_gradient(dtype, itemsize):
    """Return the kernel of the gradients of queries (one contribution for each range of keys), of keys and of
    values.
    """
    multiply = make_product(dtype, itemsize)
    _, _, _, add_mask = make_rows(dtype, itemsize)
    exp = FUNCTIONS["exp"]

    @subroutine
    def compute_slopes(weights, slopes, start, visible, width, factor, scale, log_sum, dot, cut):
        """Replace scores by weights of the scores times `factor`, and products of cotangents and values by
        slopes.
        """
        for c in independent(start, start + visible):
            score = weights[c] * factor
            weight = exp(score - log_sum)
            weights[c] = weight
            slope = weight * (slopes[c] - dot) * scale
            slopes[c] = dtype(0) if cut & (score == dtype(-inf)) else slope
        for c in independent(start + visible, start + width):
            weights[c] = dtype(0)
            slopes[c] = dtype(0)

    @subroutine
    def clear(address, count):
        out = pointer(address, dtype)
        for c in independent(0, count):
            out[c] = dtype(0)

    @subroutine
    def add_block(block, scratch, matrix, begin, j, width):
        """Add the contribution of the block of rows from `begin` on to the gradients, for `width` keys from
        `j` on.
        """
        queries, keys = slot(block, A.QUERIES), slot(block, A.KEYS)
        features, values = slot(block, A.FEATURES), slot(block, A.VALUES)
        size, line = slot(block, A.BLOCK_ROWS), line_of(slot(block, A.BLOCK_KEYS), itemsize)
        entry, workspace, causal = (
            slot(block, A.ENTRY),
            scratch + slot(block, A.PACKED),
            slot(block, A.CAUSAL) != 0,
        )
        scale, stop = number_slot(block, A.SCALE, dtype), min(begin + size, queries)
        cut = slot(block, A.CUT) != 0
        first = max(begin, j) if causal else begin  # none of these keys is visible to rows before `j`
        rows, width = stop - first, min(width, visible_keys(stop - 1, keys, causal) - j)
        row, key = matrix * queries + first, matrix // slot(block, A.HEADS) * keys + j
        q = slot(block, A.FIRST) + itemsize * row * features
        k = slot(block, A.FIRST + 1) + itemsize * key * features
        v = slot(block, A.FIRST + 2) + itemsize * key * values
        log_sums = pointer(slot(block, A.FIRST + 3) + itemsize * row, dtype)
        dots = pointer(slot(block, A.FIRST + 4) + itemsize * row, dtype)
        ct = slot(block, A.FIRST + 5) + itemsize * row * values
        key_range, masked = (
            j // slot(block, A.BLOCK_KEYS) // slot(block, A.RANGE_SIZE),
            slot(block, A.MASKS) != 0,
        )
        query_row, result_slot = (
            key_range * slot(block, A.MATRICES) * queries + row,
            A.FIRST + 6 + int64(masked),
        )
        to_q = slot(block, result_slot) + itemsize * query_row * features
        to_k = slot(block, result_slot + 1) + itemsize * key * features
        to_v = slot(block, result_slot + 2) + itemsize * key * values
        slopes_address = scratch + size * line * itemsize
        weights, slopes = pointer(scratch, dtype), pointer(slopes_address, dtype)
        score_extents, key_extents, value_extents = (
            (rows, width, features),
            (width, features, rows),
            (width, values, rows),
        )
        multiply(
            entry, (q, features, False), (k, features, True), (scratch, line), score_extents, False, workspace
        )
        multiply(
            entry,
            (ct, values, False),
            (v, values, True),
            (slopes_address, line),
            (rows, width, values),
            False,
            workspace,
        )
        for r in range(rows):
            visible, factor = min(max(visible_keys(first + r, keys, causal) - j, 0), width), scale
            if masked:
                add_mask(weights, r * line, visible, scale, mask_of(block, 6, matrix, first + r, j, itemsize))
                factor = dtype(1)
            compute_slopes(
                weights, slopes, r * line, visible, width, factor, scale, log_sums[r], dots[r], cut
            )
        multiply(
            entry, (scratch, line, True), (ct, values, False), (to_v, values), value_extents, True, workspace
        )
        multiply(
            entry,
            (slopes_address, line, True),
            (q, features, False),
            (to_k, features),
            key_extents,
            True,
            workspace,
        )
        extents = (rows, features, width)
        multiply(
            entry,
            (slopes_address, line, False),
            (k, features, False),
            (to_q, features),
            extents,
            True,
            workspace,
        )

    def attention_gradient(block, lo, hi, scratch):
        queries, keys, heads = slot(block, A.QUERIES), slot(block, A.KEYS), slot(block, A.HEADS)
        features, values = slot(block, A.FEATURES), slot(block, A.VALUES)
        size, block_keys = slot(block, A.BLOCK_ROWS), slot(block, A.BLOCK_KEYS)
        unit_blocks, splits, causal = (
            slot(block, A.RANGE_SIZE),
            slot(block, A.RANGES),
            slot(block, A.CAUSAL) != 0,
        )
        result_slot = A.FIRST + 6 + int64(slot(block, A.MASKS) != 0)
        for unit in range(lo, hi):
            key_matrix = unit // splits
            start = unit % splits * slot(block, A.MATRICES) + key_matrix * heads
            area = queries * features
            clear(slot(block, result_slot) + itemsize * start * area, heads * area)
            for j in range(
                unit % splits * unit_blocks * block_keys,
                min((unit % splits + 1) * unit_blocks * block_keys, keys),
                block_keys,
            ):
                width, key = min(block_keys, keys - j), key_matrix * keys + j
                clear(slot(block, result_slot + 1) + itemsize * key * features, width * features)
                clear(slot(block, result_slot + 2) + itemsize * key * values, width * values)
                for h in range(heads):
                    for i in range(j // size * size if causal else 0, queries, size):
                        add_block(block, scratch, key_matrix * heads + h, i, j, width)
        return int64(0)

    return attention_gradient
