"""Convolution where every group is one channel and one filter: sums of products of vectors along rows.

A matrix product of a single row has nothing to reuse, and gathering columns for it would take longer than the
arithmetic. Instead a *plane*, a channel of an image, is laid out in scratch memory so that what places see is
the same vectors, moved by an *offset* for each element of the window:

    spread(...)          # rows of an image, a line apart, zeros around them; a stride parts them into phases
    sums(...)            # for each vector of places: taps times the vectors at their offsets, in registers
    unspread(...)        # lines to the rows of the result

With strides (2, 2) rows and columns of the image are parted into even and odd ones, four phases, and the
window's elements into those that see each. In the gradient to the images, places are laid out, and the
elements of each phase are sums of the taps that see it; rows of phases then take turns in the image.

The blocks are `tracejit.kernels.images.window_blocks.Convolution`; a *panel* is ROWS rows of a result.

    depthwise_conv2d, depthwise_conv2d_input_gradient     unit = (PART planes, panel)
    depthwise_conv2d_weight_gradient                      unit = group: its planes of all images in order
"""

from functools import cache

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.plan import VECTOR_BYTES
from tracejit.kernels.images.places import clear, inside, window_of
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
    """(down, across)."""
    return slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS)


@subroutine
def reach(block):
    """Lines and columns of a phase that a place sees beyond its own."""
    (height, width, _), (down, across) = window_of(block), strides(block)
    return (
        (height - 1) * slot(block, C.DILATION_DOWN) // down,
        (width - 1) * slot(block, C.DILATION_ACROSS) // across,
    )


@subroutine
def line_of(block, to_image):
    """Elements of a line of a phase."""
    across = slot(block, C.STRIDE_ACROSS)
    _, more = reach(block)
    columns = (slot(block, C.WIDTH) - 1 + slot(block, C.LEFT)) // across + 1
    return (columns if to_image else slot(block, C.OUT_WIDTH)) + more


@subroutine
def areas(block):
    """(elements of a plane of images, of places)."""
    return (
        slot(block, C.HEIGHT) * slot(block, C.WIDTH),
        slot(block, C.OUT_HEIGHT) * slot(block, C.OUT_WIDTH),
    )


@subroutine
def start_of_patch(block, scratch):
    """The address behind the tables: offsets and numbers of taps, and the first ones of phases."""
    down, across = strides(block)
    _, _, window = window_of(block)
    return scratch + (8 * (2 * window + down * across + 1) + LINE - 1) // LINE * LINE


@subroutine
def unit_of(block, unit, extent):
    """(first plane, last, first row of a panel of `extent` rows in all, last) of a unit."""
    part, panels, rows = slot(block, C.PART), slot(block, C.PANELS), slot(block, C.ROWS)
    first, r0 = unit // panels * part, unit % panels * rows
    total = slot(block, C.IMAGES) * slot(block, C.GROUPS)
    return first, min(first + part, total), r0, min(r0 + rows, extent)


@cache
def make_layout(dtype, itemsize):
    """(spread, unspread): rows of an image to lines of phases, and lines of one phase to rows."""
    lanes = VECTOR_BYTES // itemsize

    @subroutine
    def copy(source, target, seen, rows):
        """Rows of neighbours; short ones are a chunk."""
        _, _, count = seen
        if count <= lanes:
            copy_neighbours(source, target, seen, rows, dtype)
        else:
            copy_rows(source, target, seen, rows, dtype)

    @subroutine
    def spread(x, extents, corner, steps, patch, rows, line, area):
        """``patch[(a * across + b) * area + u * line + v]``, for `rows` u and all v of a line, is the element
        of the image at ``corner + (u * down + a, v * across + b)``, 0 beyond it; `area`: of a phase.
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
                    places = pointer(out + u * line * itemsize, dtype)
                    clear(places, line, dtype(0))
                    for v in range(start, stop):
                        places[v] = elements[v * across]

    @subroutine
    def unspread(lines, line, out, step, count, rows):
        """`count` elements of each of `rows` lines, to rows that are `step` elements apart."""
        copy((lines, line * itemsize), (out, step * itemsize), (int64(0), count, count), rows)

    return spread, unspread


def make_sums(dtype, itemsize):
    """Make ``sums(x, out, count, table, taps, ahead)``: `count` neighbouring places, rounded up to whole
    vectors. ahead: addresses from which as much is read, and to which it is written, next.
    """
    lanes = VECTOR_BYTES // itemsize

    @subroutine
    def sums(x, out, count, table, taps, ahead):
        vectors, done, (source, target) = (count + lanes - 1) // lanes, 0, ahead
        while vectors > done:
            before = done * VECTOR_BYTES
            at, to, following = x + before, out + before, (source + before, target + before)
            if vectors - done >= 8:
                eight_vectors(at, to, table, taps, following, dtype)
                done += 8
            elif vectors - done >= 4:
                four_vectors(at, to, table, taps, following, dtype)
                done += 4
            elif vectors - done >= 2:
                two_vectors(at, to, table, taps, following, dtype)
                done += 2
            else:
                one_vector(at, to, table, taps, following, dtype)
                done += 1

    return sums


@cache
def make_table(itemsize):
    """Make ``write_table(block, scratch, line, area)``: for each element of the window, where in the phases
    the first place sees it. Returns (address of offsets, of numbers, how many there are).
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
    """The convolution."""
    (spread, unspread), sums = make_layout(dtype, itemsize), make_sums(dtype, itemsize)
    write_table = make_table(itemsize)

    def depthwise_conv2d(block, lo, hi, scratch):
        extents = slot(block, C.HEIGHT), slot(block, C.WIDTH)
        groups, places, steps = slot(block, C.GROUPS), slot(block, C.OUT_WIDTH), strides(block)
        (size, out_size), (_, _, window) = areas(block), window_of(block)
        line, patch = line_of(block, False), start_of_patch(block, scratch)
        (more, _), (down, across) = reach(block), steps
        area = (slot(block, C.ROWS) + more) * line
        lines = patch + (down * across * area * itemsize + LINE - 1) // LINE * LINE + VECTOR_BYTES
        table = write_table(block, scratch, line, area)
        for unit in range(lo, hi):
            first, last, r0, r1 = unit_of(block, unit, slot(block, C.OUT_HEIGHT))
            corner = (r0 * down - slot(block, C.TOP), -slot(block, C.LEFT))
            for n in range(first, last):
                x = slot(block, C.FIRST) + n * size * itemsize
                spread(x, extents, corner, steps, patch, r1 - r0 + more, line, area)
                taps = slot(block, C.SECOND) + n % groups * window * itemsize
                y = slot(block, C.THIRD) + (n * out_size + r0 * places) * itemsize
                sums(patch, lines, (r1 - r0) * line, table, taps, (x + size * itemsize, y))
                unspread(lines, line, y, places, places, r1 - r0)
        return int64(0)

    return depthwise_conv2d


def make_input_gradient(dtype, itemsize):
    """The gradient with respect to the images."""
    (spread, unspread), sums = make_layout(dtype, itemsize), make_sums(dtype, itemsize)

    @subroutine
    def write_tables(block, scratch, line):
        """The table of each phase, one after the other, and where they begin."""
        (down, across), (height, width, window) = strides(block), window_of(block)
        offsets, numbers = pointer(scratch, int64), pointer(scratch + 8 * window, int64)
        starts = pointer(scratch + 16 * window, int64)
        (lines, columns), entries = reach(block), 0
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
    def take_turns(block, lines, size, line, out, rows):
        """The lines of the phases of a row, to `rows` rows of an image at `out`."""
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
        (down, across), (more, margin) = strides(block), reach(block)
        line, patch = line_of(block, True), start_of_patch(block, scratch)
        most = (slot(block, C.ROWS) + down - 2) // down + 1
        lines = patch + ((most + more) * line * itemsize + LINE - 1) // LINE * LINE
        lines += (margin * itemsize + LINE - 1) // LINE * LINE + VECTOR_BYTES
        each = (most * line * itemsize + LINE - 1) // LINE * LINE + VECTOR_BYTES
        write_tables(block, scratch, line)
        starts = pointer(scratch + 16 * window, int64)
        for unit in range(lo, hi):
            first, last, r0, r1 = unit_of(block, unit, height)
            m0, m1 = (r0 + top) // down, (r1 - 1 + top) // down + 1
            for n in range(first, last):
                y = slot(block, C.FIRST) + n * out_size * itemsize
                corner, rows = (m0 - more, -margin), m1 - m0 + more
                spread(y, extents, corner, (int64(1), int64(1)), patch, rows, line, rows * line)
                taps = slot(block, C.SECOND) + n % groups * window * itemsize
                x = slot(block, C.THIRD) + n * size * itemsize
                for a in range(down):
                    for b in range(across):
                        begin, end = starts[a * across + b], starts[a * across + b + 1]
                        table = (scratch + 8 * begin, scratch + 8 * (window + begin), end - begin)
                        sums(
                            patch,
                            lines + b * each,
                            (m1 - m0) * line,
                            table,
                            taps,
                            (y + out_size * itemsize, x),
                        )
                    u0, u1 = inside(m0 * down + a - top - r0, down, m1 - m0, r1 - r0)
                    row = (m0 + u0) * down + a - top
                    take_turns(
                        block, lines + u0 * line * itemsize, each, line, x + row * width * itemsize, u1 - u0
                    )
        return int64(0)

    return depthwise_conv2d_input_gradient


def make_weight_gradient(dtype, itemsize):
    """The gradient with respect to the weights: a vector of sums for each element of the window."""
    spread, _ = make_layout(dtype, itemsize)
    write_table, lanes = make_table(itemsize), VECTOR_BYTES // itemsize

    @subroutine
    def add(sums, patch, offsets, y, places, rows, window):
        """Add the products of `rows` rows of places and what each element of the window sees."""
        k = 0
        while window - k >= 9:
            nine_taps(sums + k * VECTOR_BYTES, patch, offsets + 8 * k, y, places, rows, dtype)
            k += 9
        while window - k >= 3:
            three_taps(sums + k * VECTOR_BYTES, patch, offsets + 8 * k, y, places, rows, dtype)
            k += 3
        while window > k:
            one_tap(sums + k * VECTOR_BYTES, patch, offsets + 8 * k, y, places, rows, dtype)
            k += 1

    def depthwise_conv2d_weight_gradient(block, lo, hi, scratch):
        extents = slot(block, C.HEIGHT), slot(block, C.WIDTH)
        height, places, groups = slot(block, C.OUT_HEIGHT), slot(block, C.OUT_WIDTH), slot(block, C.GROUPS)
        (size, out_size), (_, _, window), panels = areas(block), window_of(block), slot(block, C.PANELS)
        line, sums = line_of(block, False), start_of_patch(block, scratch)
        (more, _), (down, across), rows = reach(block), strides(block), slot(block, C.ROWS)
        area, patch = (rows + more) * line, sums + window * VECTOR_BYTES
        offsets, _, _ = write_table(block, scratch, line, area)
        totals = pointer(sums, dtype)
        for group in range(lo, hi):
            clear(totals, window * lanes, dtype(0))
            for step in range(slot(block, C.IMAGES) * panels):
                n, r0 = step // panels * groups + group, step % panels * rows
                count = min(rows, height - r0)
                corner = (r0 * down - slot(block, C.TOP), -slot(block, C.LEFT))
                x = slot(block, C.FIRST) + n * size * itemsize
                spread(x, extents, corner, (down, across), patch, count + more, line, area)
                y = slot(block, C.SECOND) + (n * out_size + r0 * places) * itemsize
                seen, of = (patch, line * itemsize), (y, places * itemsize)
                add(sums, seen, offsets, of, places, count, window)
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
"""``make(dtype, itemsize)`` of the kernels by name."""
