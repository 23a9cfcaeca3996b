"""Convolution with groups of one channel and one filter: sums of products of vectors along rows.

A matrix product of a single row has nothing to reuse, and gathering columns for it would take longer than the
arithmetic. Instead a *plane*, a channel of an image, is laid out in scratch memory so that the inputs of a
vector of output positions are a contiguous vector, at an *offset* for each element of the window:

    spread(...)          # rows of an image, one line apart, padded with zeros; strides split them into phases
    sums(...)            # for each vector of positions: taps times the vectors at their offsets, in registers
    unspread(...)        # lines to the rows of the result

With strides (2, 2) the rows and columns of the image are split into even and odd ones, four phases, and the
elements of the window into those that are applied to each phase. In the gradient with respect to the images,
output positions are laid out, and the elements of each phase are sums over its taps; the rows of the phases
are then interleaved in the image.

The blocks are `tracejit.kernels.images.window_blocks.Convolution`; a *panel* is ROWS rows of a result.

    depthwise_conv2d, depthwise_conv2d_input_gradient     unit = (RANGE_SIZE planes, panel)
    depthwise_conv2d_weight_gradient                      unit = group: its planes of all images in order
"""

from functools import cache

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.plan import VECTOR_BYTES
from tracejit.kernels.images.common import clear, inside, window_of
from tracejit.kernels.images.vectors import (
    copy_every_second,
    copy_neighbours,
    copy_rows,
    copy_rows_of_every_second,
    eight_vectors,
    four_vectors,
    interleave_rows,
    nine_taps,
    one_tap,
    one_vector,
    three_taps,
    two_vectors,
)
from tracejit.kernels.images.window_blocks import Convolution as C

LINE = 64


@subroutine
def strides(block):
    """The strides (down, across)."""
    return slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS)


@subroutine
def window_overhang(block):
    """The numbers of lines and columns of a phase that the window of a position covers beyond the position's
    own.
    """
    (height, width, _), (down, across) = window_of(block), strides(block)
    return (
        (height - 1) * slot(block, C.DILATION_DOWN) // down,
        (width - 1) * slot(block, C.DILATION_ACROSS) // across,
    )


@subroutine
def line_of(block, to_image):
    """The number of elements of a line of a phase."""
    across = slot(block, C.STRIDE_ACROSS)
    _, extra_columns = window_overhang(block)
    columns = (slot(block, C.WIDTH) - 1 + slot(block, C.LEFT)) // across + 1
    return (columns if to_image else slot(block, C.OUT_WIDTH)) + extra_columns


@subroutine
def areas(block):
    """The numbers of elements (of a plane of images, of a plane of output positions)."""
    return (
        slot(block, C.HEIGHT) * slot(block, C.WIDTH),
        slot(block, C.OUT_HEIGHT) * slot(block, C.OUT_WIDTH),
    )


@subroutine
def start_of_patch(block, scratch):
    """The address after the tables: offsets and numbers of taps, and the first entries of phases."""
    down, across = strides(block)
    _, _, window = window_of(block)
    return scratch + (8 * (2 * window + down * across + 1) + LINE - 1) // LINE * LINE


@subroutine
def unit_of(block, unit, extent):
    """The range of a unit: (first plane, last plane, first row, last row); `extent`: rows of all panels."""
    range_size, panels, rows = slot(block, C.RANGE_SIZE), slot(block, C.PANELS), slot(block, C.ROWS)
    first, r0 = unit // panels * range_size, unit % panels * rows
    total = slot(block, C.IMAGES) * slot(block, C.GROUPS)
    return first, min(first + range_size, total), r0, min(r0 + rows, extent)


@cache
def make_layout(dtype, itemsize):
    """Return ``(spread, unspread)``, which copy rows of an image to lines of phases, and lines of one phase
    to rows.
    """
    lanes = VECTOR_BYTES // itemsize

    @subroutine
    def copy(source, target, positions, rows):
        """Copy rows of contiguous elements; short rows are copied as a chunk."""
        _, _, count = positions
        if count <= lanes:
            copy_neighbours(source, target, positions, rows, dtype)
        else:
            copy_rows(source, target, positions, rows, dtype)

    @subroutine
    def spread(x, extents, corner, steps, patch, rows, line, area):
        """Set ``patch[(a * across + b) * area + u * line + v]``, for `rows` values of u and all v of a line,
        to the element of the image at ``corner + (u * down + a, v * across + b)``, or to 0 beyond the image;
        `area`: elements of a phase.
        """
        (height, width), (top, left), (down, across) = extents, corner, steps
        for phase in range(down * across):
            a, b = phase // across, phase % across
            out = patch + phase * area * itemsize
            first, last = inside(top + a, down, rows, height)
            clear(pointer(out, dtype), first * line, dtype(0))
            clear(pointer(out + last * line * itemsize, dtype), (rows - last) * line, dtype(0))
            row = x + ((top + a + first * down) * width + left + b) * itemsize
            start, stop = inside(left + b, across, line, width)
            source, target = (row, down * width * itemsize), (out + first * line * itemsize, line * itemsize)
            if across == 1:
                copy(source, target, (start, stop, line), last - first)
            elif (across == 2) & (line <= lanes):
                copy_every_second(source, target, (start, stop, line), last - first, dtype)
            elif across == 2:
                copy_rows_of_every_second(source, target, (start, stop, line), last - first, dtype)
            else:
                for u in range(first, last):
                    elements = pointer(row + (u - first) * down * width * itemsize, dtype)
                    outputs = pointer(out + u * line * itemsize, dtype)
                    clear(outputs, line, dtype(0))
                    for v in range(start, stop):
                        outputs[v] = elements[v * across]

    @subroutine
    def unspread(lines, line, out, step, count, rows):
        """Copy `count` elements of each of `rows` lines to rows that are `step` elements apart."""
        copy((lines, line * itemsize), (out, step * itemsize), (int64(0), count, count), rows)

    return spread, unspread


def make_sums(dtype, itemsize):
    """Return ``sums(x, out, count, table, taps, ahead)``, which computes `count` neighbouring positions,
    rounded up to entire vectors. ahead: addresses of as much memory to prefetch, which is read and written
    next.
    """
    lanes = VECTOR_BYTES // itemsize

    @subroutine
    def sums(x, out, count, table, taps, ahead):
        vectors, done, (source, target) = (count + lanes - 1) // lanes, 0, ahead
        while vectors > done:
            offset = done * VECTOR_BYTES
            x_address, out_address, prefetched = x + offset, out + offset, (source + offset, target + offset)
            if vectors - done >= 8:
                eight_vectors(x_address, out_address, table, taps, prefetched, dtype)
                done += 8
            elif vectors - done >= 4:
                four_vectors(x_address, out_address, table, taps, prefetched, dtype)
                done += 4
            elif vectors - done >= 2:
                two_vectors(x_address, out_address, table, taps, prefetched, dtype)
                done += 2
            else:
                one_vector(x_address, out_address, table, taps, prefetched, dtype)
                done += 1

    return sums


@cache
def make_table(itemsize):
    """Return ``write_table(block, scratch, line, area)``, which stores for each element of the window the
    offset at which the first position reads the phases. It returns (address of the offsets, address of the
    numbers of taps, number of entries).
    """

    @subroutine
    def write_table(block, scratch, line, area):
        (down, across), (_, width, window) = strides(block), window_of(block)
        offsets, numbers = pointer(scratch, int64), pointer(scratch + 8 * window, int64)
        for k in range(window):
            i = k // width * slot(block, C.DILATION_DOWN)
            j = k % width * slot(block, C.DILATION_ACROSS)
            phase = i % down * across + j % across
            offsets[k] = itemsize * (phase * area + i // down * line + j // across)
            numbers[k] = k
        return scratch, scratch + 8 * window, window

    return write_table


def make_convolution(dtype, itemsize):
    """Return the kernel of the convolution."""
    (spread, unspread), sums = make_layout(dtype, itemsize), make_sums(dtype, itemsize)
    write_table = make_table(itemsize)

    def depthwise_conv2d(block, lo, hi, scratch):
        extents = slot(block, C.HEIGHT), slot(block, C.WIDTH)
        groups, row_positions, steps = slot(block, C.GROUPS), slot(block, C.OUT_WIDTH), strides(block)
        (size, out_size), (_, _, window) = areas(block), window_of(block)
        line, patch = line_of(block, False), start_of_patch(block, scratch)
        (extra_rows, _), (down, across) = window_overhang(block), steps
        area = (slot(block, C.ROWS) + extra_rows) * line
        lines = patch + (down * across * area * itemsize + LINE - 1) // LINE * LINE + VECTOR_BYTES
        table = write_table(block, scratch, line, area)
        for unit in range(lo, hi):
            first, last, r0, r1 = unit_of(block, unit, slot(block, C.OUT_HEIGHT))
            corner = (r0 * down - slot(block, C.TOP), -slot(block, C.LEFT))
            for n in range(first, last):
                x = slot(block, C.FIRST) + n * size * itemsize
                spread(x, extents, corner, steps, patch, r1 - r0 + extra_rows, line, area)
                taps = slot(block, C.SECOND) + n % groups * window * itemsize
                y = slot(block, C.THIRD) + (n * out_size + r0 * row_positions) * itemsize
                sums(patch, lines, (r1 - r0) * line, table, taps, (x + size * itemsize, y))
                unspread(lines, line, y, row_positions, row_positions, r1 - r0)
        return int64(0)

    return depthwise_conv2d


def make_input_gradient(dtype, itemsize):
    """Return the kernel of the gradient with respect to the images."""
    (spread, unspread), sums = make_layout(dtype, itemsize), make_sums(dtype, itemsize)

    @subroutine
    def write_tables(block, scratch, line):
        """Write the tables of all phases, one after the other, and the index of the first entry of each."""
        (down, across), (height, width, window) = strides(block), window_of(block)
        offsets, numbers = pointer(scratch, int64), pointer(scratch + 8 * window, int64)
        starts = pointer(scratch + 16 * window, int64)
        (lines, columns), entries = window_overhang(block), 0
        for phase in range(down * across):
            starts[phase] = entries
            for k in range(height * width):
                i = k // width * slot(block, C.DILATION_DOWN)
                j = k % width * slot(block, C.DILATION_ACROSS)
                if i % down * across + j % across == phase:
                    offsets[entries] = itemsize * ((lines - i // down) * line + columns - j // across)
                    numbers[entries] = k
                    entries += 1
        starts[down * across] = entries

    @subroutine
    def interleave_phases(block, lines, size, line, out, rows):
        """Interleave the lines of the phases of a row into `rows` rows of an image at `out`."""
        width, left, (down, across) = slot(block, C.WIDTH), slot(block, C.LEFT), strides(block)
        if across == 1:
            unspread(lines + left * itemsize, line, out, down * width, width, rows)
        elif across == 2:
            sources, target = (
                (lines, lines + size, line * itemsize),
                (out - left * itemsize, down * width * itemsize),
            )
            interleave_rows(sources, target, (left, left + width), rows, dtype)
        else:
            for u in range(rows):
                row = pointer(out + u * down * width * itemsize, dtype)
                for c in range(width):
                    start = lines + (c + left) % across * size + (u * line + (c + left) // across) * itemsize
                    row[c] = pointer(start, dtype)[0]

    def depthwise_conv2d_input_gradient(block, lo, hi, scratch):
        height, width, top = slot(block, C.HEIGHT), slot(block, C.WIDTH), slot(block, C.TOP)
        extents, groups = (slot(block, C.OUT_HEIGHT), slot(block, C.OUT_WIDTH)), slot(block, C.GROUPS)
        (size, out_size), (_, _, window) = areas(block), window_of(block)
        (down, across), (extra_rows, margin) = strides(block), window_overhang(block)
        line, patch = line_of(block, True), start_of_patch(block, scratch)
        phase_rows = (slot(block, C.ROWS) + down - 2) // down + 1
        lines = patch + ((phase_rows + extra_rows) * line * itemsize + LINE - 1) // LINE * LINE
        lines += (margin * itemsize + LINE - 1) // LINE * LINE + VECTOR_BYTES
        phase_bytes = (phase_rows * line * itemsize + LINE - 1) // LINE * LINE + VECTOR_BYTES
        write_tables(block, scratch, line)
        starts = pointer(scratch + 16 * window, int64)
        for unit in range(lo, hi):
            first, last, r0, r1 = unit_of(block, unit, height)
            m0, m1 = (r0 + top) // down, (r1 - 1 + top) // down + 1
            for n in range(first, last):
                y = slot(block, C.FIRST) + n * out_size * itemsize
                corner, rows = (m0 - extra_rows, -margin), m1 - m0 + extra_rows
                spread(y, extents, corner, (int64(1), int64(1)), patch, rows, line, rows * line)
                taps = slot(block, C.SECOND) + n % groups * window * itemsize
                x = slot(block, C.THIRD) + n * size * itemsize
                for a in range(down):
                    for b in range(across):
                        begin, end = starts[a * across + b], starts[a * across + b + 1]
                        table = (scratch + 8 * begin, scratch + 8 * (window + begin), end - begin)
                        sums(
                            patch,
                            lines + b * phase_bytes,
                            (m1 - m0) * line,
                            table,
                            taps,
                            (y + out_size * itemsize, x),
                        )
                    u0, u1 = inside(m0 * down + a - top - r0, down, m1 - m0, r1 - r0)
                    row = (m0 + u0) * down + a - top
                    interleave_phases(
                        block,
                        lines + u0 * line * itemsize,
                        phase_bytes,
                        line,
                        x + row * width * itemsize,
                        u1 - u0,
                    )
        return int64(0)

    return depthwise_conv2d_input_gradient


def make_weight_gradient(dtype, itemsize):
    """Return the kernel of the gradient with respect to the weights: a vector of sums for each element of the
    window.
    """
    spread, _ = make_layout(dtype, itemsize)
    write_table, lanes = make_table(itemsize), VECTOR_BYTES // itemsize

    @subroutine
    def add(sums, patch, offsets, y, positions, rows, window):
        """Add the products of `rows` rows of gradients and the inputs at each offset of the window."""
        k = 0
        while window - k >= 9:
            nine_taps(sums + k * VECTOR_BYTES, patch, offsets + 8 * k, y, positions, rows, dtype)
            k += 9
        while window - k >= 3:
            three_taps(sums + k * VECTOR_BYTES, patch, offsets + 8 * k, y, positions, rows, dtype)
            k += 3
        while window > k:
            one_tap(sums + k * VECTOR_BYTES, patch, offsets + 8 * k, y, positions, rows, dtype)
            k += 1

    def depthwise_conv2d_weight_gradient(block, lo, hi, scratch):
        extents = slot(block, C.HEIGHT), slot(block, C.WIDTH)
        height, row_positions, groups = (
            slot(block, C.OUT_HEIGHT),
            slot(block, C.OUT_WIDTH),
            slot(block, C.GROUPS),
        )
        (size, out_size), (_, _, window), panels = areas(block), window_of(block), slot(block, C.PANELS)
        line, sums = line_of(block, False), start_of_patch(block, scratch)
        (extra_rows, _), (down, across), rows = window_overhang(block), strides(block), slot(block, C.ROWS)
        area, patch = (rows + extra_rows) * line, sums + window * VECTOR_BYTES
        offsets, _, _ = write_table(block, scratch, line, area)
        totals = pointer(sums, dtype)
        for group in range(lo, hi):
            clear(totals, window * lanes, dtype(0))
            for step in range(slot(block, C.IMAGES) * panels):
                n, r0 = step // panels * groups + group, step % panels * rows
                count = min(rows, height - r0)
                corner = (r0 * down - slot(block, C.TOP), -slot(block, C.LEFT))
                x = slot(block, C.FIRST) + n * size * itemsize
                spread(x, extents, corner, (down, across), patch, count + extra_rows, line, area)
                y = slot(block, C.SECOND) + (n * out_size + r0 * row_positions) * itemsize
                inputs, gradients = (patch, line * itemsize), (y, row_positions * itemsize)
                add(sums, inputs, offsets, gradients, row_positions, count, window)
            w = pointer(slot(block, C.THIRD) + group * window * itemsize, dtype)
            for k in range(window):
                total = dtype(0)
                for lane in range(lanes):
                    total += totals[k * lanes + lane]
                w[k] = total
        return int64(0)

    return depthwise_conv2d_weight_gradient


MAKERS = {
    "depthwise_conv2d": make_convolution,
    "depthwise_conv2d_input_gradient": make_input_gradient,
    "depthwise_conv2d_weight_gradient": make_weight_gradient,
}
"""``make(dtype, itemsize)`` of each kernel."""
