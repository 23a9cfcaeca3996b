"""Convolution where every group is one channel and one filter, in vectors of channels.

As `tracejit.kernels.images.depthwise`, for narrow images of some channels: `LANES` are transposed to a
patch (`tracejit.kernels.images.patches`), and then neighbouring places, however few there are in a row, are
sums of products of vectors. The blocks are `tracejit.kernels.images.window_blocks.Convolution`; GROUPS are
the channels, a *panel* is ROWS rows of a result.

    channelwise_conv2d, channelwise_conv2d_input_gradient     unit = (image, LANES channels, panel)
    channelwise_conv2d_weight_gradient                        unit = LANES channels: all images in order
"""

from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.compiler.memory import I64, pointer, slot, vector_type
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.images.patches import make_patches, make_runs
from tracejit.kernels.images.places import clear, inside, window_of
from tracejit.kernels.images.window_blocks import Convolution as C
from tracejit.kernels.images.windows import LANES

TOGETHER = 6
"""Places whose sums are in registers at once."""

TAPS = 3
"""Neighbouring elements of a window whose gradients are in registers at once."""


def _fma(builder, x, y, z):
    """``x * y + z`` of vectors, rounded once."""
    bits = 32 if isinstance(x.type.element, ir.FloatType) else 64
    kind = ir.FunctionType(x.type, [x.type] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{x.type.count}f{bits}")
    return builder.call(function, [x, y, z])


def _access(context, builder, pointer):
    """(load, store) of the vector that begins at an element of a pointer."""
    element = pointer.type.pointee
    vector, alignment = vector_type(context, element, LANES).as_pointer(), context.get_abi_sizeof(element)

    def place(index):
        return builder.bitcast(builder.gep(pointer, [index]), vector)

    return (
        lambda index: builder.load(place(index), align=alignment),
        lambda value, index: builder.store(value, place(index), align=alignment),
    )


@intrinsic
def multiply_add(typingctx, out, o, x, i, y, j):
    """``out[o:] += x[i:] * y[j:]``, of LANES elements."""

    def codegen(context, builder, signature, args):
        out, o, x, i, y, j = args
        load, store = _access(context, builder, out)
        first, second = _access(context, builder, x)[0](i), _access(context, builder, y)[0](j)
        store(_fma(builder, first, second, load(o)), o)
        return context.get_dummy_value()

    return types.void(out, int64, x, int64, y, int64), codegen


def _window_sums(count):
    """Make the intrinsic ``window_sums(x, first, steps, w, window, out, start)`` for `count` places side by
    side.

    Place p is ``out[start + p * LANES:]``, the sum over k and m of ``w[(k * width + m) * LANES:]`` times
    ``x[first + k * down + m * across + p * step:]``; steps: down, across, step; window: height, width.
    """

    @intrinsic
    def window_sums(typingctx, x, first, steps, w, window, out, start):
        def codegen(context, builder, signature, args):
            x, first, steps, w, window, out, start = args
            down, across, step = cgutils.unpack_tuple(builder, steps, 3)
            height, width = cgutils.unpack_tuple(builder, window, 2)
            load, (factor, _), (_, store) = (
                _access(context, builder, x)[0],
                _access(context, builder, w),
                _access(context, builder, out),
            )
            vector = vector_type(context, x.type.pointee, LANES)
            sums = [cgutils.alloca_once(builder, vector) for _ in range(count)]
            for total in sums:
                builder.store(ir.Constant(vector, [0.0] * LANES), total)
            with cgutils.for_range(builder, height, intp=I64) as rows:
                line = builder.add(first, builder.mul(rows.index, down))
                taps = builder.mul(rows.index, width)
                with cgutils.for_range(builder, width, intp=I64) as columns:
                    seen = builder.add(line, builder.mul(columns.index, across))
                    tap = factor(builder.mul(builder.add(taps, columns.index), I64(LANES)))
                    for p, total in enumerate(sums):
                        value = load(builder.add(seen, builder.mul(step, I64(p))))
                        builder.store(_fma(builder, value, tap, builder.load(total)), total)
            for p, total in enumerate(sums):
                store(builder.load(total), builder.add(start, I64(p * LANES)))
            return context.get_dummy_value()

        kinds = (types.UniTuple(int64, 3), w, types.UniTuple(int64, 2))
        return types.void(x, int64, *kinds, out, int64), codegen

    return window_sums


def _tap_sums(count):
    """Make the intrinsic ``tap_sums(sums, tap, y, place, places, x, first, steps)`` for `count` taps side by
    side in the window.

    Tap t of them, ``sums[tap + t * LANES:]``, gets for all `places` p the products of
    ``y[place + p * LANES:]`` and ``x[first + p * step + t * across:]``; steps: step, across.
    """

    @intrinsic
    def tap_sums(typingctx, sums, tap, y, place, places, x, first, steps):
        def codegen(context, builder, signature, args):
            sums, tap, y, place, places, x, first, steps = args
            step, across = cgutils.unpack_tuple(builder, steps, 2)
            known, store = _access(context, builder, sums)
            (factor, _), (load, _) = _access(context, builder, y), _access(context, builder, x)
            taps = [builder.add(tap, I64(t * LANES)) for t in range(count)]
            totals = [cgutils.alloca_once(builder, vector_type(context, x.type.pointee, LANES)) for _ in taps]
            for total, at in zip(totals, taps, strict=True):
                builder.store(known(at), total)
            with cgutils.for_range(builder, places, intp=I64) as loop:
                value = factor(builder.add(place, builder.mul(loop.index, I64(LANES))))
                seen = builder.add(first, builder.mul(loop.index, step))
                for t, total in enumerate(totals):
                    element = load(builder.add(seen, builder.mul(across, I64(t))))
                    builder.store(_fma(builder, value, element, builder.load(total)), total)
            for total, at in zip(totals, taps, strict=True):
                store(builder.load(total), at)
            return context.get_dummy_value()

        where = (int64, y, int64, int64, x, int64)
        return types.void(sums, *where, types.UniTuple(int64, 2)), codegen

    return tap_sums


one_tap, several_taps = _tap_sums(1), _tap_sums(TAPS)
one_sum, several_sums = _window_sums(1), _window_sums(TOGETHER)


@subroutine
def unit_of(block, unit):
    """(image, first channel, channels, first row, last row) of a unit."""
    groups, panels, rows = slot(block, C.GROUPS), slot(block, C.PANELS), slot(block, C.ROWS)
    parts = (groups + LANES - 1) // LANES
    first, r0 = unit // panels % parts * LANES, unit % panels * rows
    return unit // panels // parts, first, min(LANES, groups - first), r0, r0 + rows


def make_sums(dtype, itemsize):
    """Make ``sums(block, x, extents, channels, corner, steps, rows, columns, taps, room)``: rows of places.

    x: address of the first channel of an image of `extents`; corner: the row and column, before the image, of
    the window of the first place; steps: strides; rows, columns: of places; taps: address of the weights in
    lanes; room: address of scratch memory, where the places come to lie. Returns their address.
    """
    load_patch = make_patches(dtype, itemsize)

    @subroutine
    def sums(block, x, extents, channels, corner, steps, rows, columns, taps, room):
        (stride_down, stride_across), (_, width), (_, before) = steps, extents, corner
        spread_down, spread_across = slot(block, C.DILATION_DOWN), slot(block, C.DILATION_ACROSS)
        window_height, window_width, _ = window_of(block)
        height = (rows - 1) * stride_down + (window_height - 1) * spread_down + 1
        wide = max((columns - 1) * stride_across + (window_width - 1) * spread_across + 1, width - before)
        result = room + height * wide * LANES * itemsize
        load_patch(x, extents, channels, corner, room, (height, wide), result)
        patch, out, w = pointer(room, dtype), pointer(result, dtype), pointer(taps, dtype)
        moves = (spread_down * wide * LANES, spread_across * LANES, stride_across * LANES)
        for r in range(rows):
            line, start = r * stride_down * wide * LANES, r * columns * LANES
            whole = columns // TOGETHER * TOGETHER
            for q in range(0, whole, TOGETHER):
                at = line + q * stride_across * LANES
                several_sums(patch, at, moves, w, (window_height, window_width), out, start + q * LANES)
            for q in range(whole, columns):
                at = line + q * stride_across * LANES
                one_sum(patch, at, moves, w, (window_height, window_width), out, start + q * LANES)
        return result

    return sums


def make_convolution(dtype, itemsize):
    """The convolution."""
    sums = make_sums(dtype, itemsize)
    load_run, store_run = make_runs(dtype, itemsize)

    def channelwise_conv2d(block, lo, hi, scratch):
        groups, height, width = slot(block, C.GROUPS), slot(block, C.HEIGHT), slot(block, C.WIDTH)
        out_height, out_width = slot(block, C.OUT_HEIGHT), slot(block, C.OUT_WIDTH)
        down, across = slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS)
        _, _, window = window_of(block)
        room = scratch + window * LANES * itemsize
        for unit in range(lo, hi):
            image, c0, channels, r0, r1 = unit_of(block, unit)
            rows, plane = min(r1, out_height) - r0, image * groups + c0
            load_run(slot(block, C.SECOND) + c0 * window * itemsize, window, channels, window, scratch)
            x = slot(block, C.FIRST) + plane * height * width * itemsize
            y = slot(block, C.THIRD) + (plane * out_height + r0) * out_width * itemsize
            corner, steps = (r0 * down - slot(block, C.TOP), -slot(block, C.LEFT)), (down, across)
            found = sums(block, x, (height, width), channels, corner, steps, rows, out_width, scratch, room)
            store_run(y, out_height * out_width, channels, rows * out_width, found)
        return int64(0)

    return channelwise_conv2d


def make_input_gradient(dtype, itemsize):
    """The gradient with respect to the images: a convolution by the turned window where the stride is 1, else
    the adjoint of one.
    """
    sums = make_sums(dtype, itemsize)
    load_run, store_run = make_runs(dtype, itemsize)

    @subroutine
    def turn(taps, window):
        w = pointer(taps, dtype)
        for k in range(window // 2):
            for c in range(LANES):
                a, b = k * LANES + c, (window - 1 - k) * LANES + c
                w[a], w[b] = w[b], w[a]

    @subroutine
    def adjoint(block, y, channels, r0, r1, taps, room):
        """Rows `r0` to `r1` of an image, in lanes; returns their address."""
        width, out_height, out_width = (
            slot(block, C.WIDTH),
            slot(block, C.OUT_HEIGHT),
            slot(block, C.OUT_WIDTH),
        )
        down, across = slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS)
        window_height, window_width, _ = window_of(block)
        top, left = slot(block, C.TOP), slot(block, C.LEFT)
        span = (window_height - 1) * slot(block, C.DILATION_DOWN)
        first, last = (
            max((r0 + top - span + down - 1) // down, 0),
            min((r1 - 1 + top) // down + 1, out_height),
        )
        last = max(first, last)
        result = room + (last - first) * out_width * LANES * itemsize
        load_run(
            y + first * out_width * itemsize,
            out_height * out_width,
            channels,
            (last - first) * out_width,
            room,
        )
        places, image, w = pointer(room, dtype), pointer(result, dtype), pointer(taps, dtype)
        clear(image, (r1 - r0) * width * LANES, dtype(0))
        for r in range(first, last):
            for i in range(window_height):
                row = r * down + i * slot(block, C.DILATION_DOWN) - top
                if r0 <= row < r1:
                    for j in range(window_width):
                        before = j * slot(block, C.DILATION_ACROSS) - left
                        start, stop = inside(before, across, out_width, width)
                        for q in range(start, stop):
                            at = (row - r0) * width + q * across + before
                            place, tap = (r - first) * out_width + q, i * window_width + j
                            multiply_add(image, at * LANES, places, place * LANES, w, tap * LANES)
        return result

    def channelwise_conv2d_input_gradient(block, lo, hi, scratch):
        groups, height, width = slot(block, C.GROUPS), slot(block, C.HEIGHT), slot(block, C.WIDTH)
        out_height, out_width = slot(block, C.OUT_HEIGHT), slot(block, C.OUT_WIDTH)
        extents = (out_height, out_width)
        window_height, window_width, window = window_of(block)
        top = (window_height - 1) * slot(block, C.DILATION_DOWN) - slot(block, C.TOP)
        left = (window_width - 1) * slot(block, C.DILATION_ACROSS) - slot(block, C.LEFT)
        steps = (slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS))
        turned = (
            (slot(block, C.STRIDE_DOWN) == 1) & (slot(block, C.STRIDE_ACROSS) == 1) & (top >= 0) & (left >= 0)
        )
        room = scratch + window * LANES * itemsize
        for unit in range(lo, hi):
            image, c0, channels, r0, r1 = unit_of(block, unit)
            r1, plane = min(r1, height), image * groups + c0
            load_run(slot(block, C.SECOND) + c0 * window * itemsize, window, channels, window, scratch)
            y = slot(block, C.FIRST) + plane * out_height * out_width * itemsize
            x = slot(block, C.THIRD) + (plane * height + r0) * width * itemsize
            if turned:
                turn(scratch, window)
                found = sums(
                    block, y, extents, channels, (r0 - top, -left), steps, r1 - r0, width, scratch, room
                )
            else:
                found = adjoint(block, y, channels, r0, r1, scratch, room)
            store_run(x, height * width, channels, (r1 - r0) * width, found)
        return int64(0)

    return channelwise_conv2d_input_gradient


def make_weight_gradient(dtype, itemsize):
    """The gradient with respect to the weights."""
    load_run, store_run = make_runs(dtype, itemsize)
    load_patch = make_patches(dtype, itemsize)

    def channelwise_conv2d_weight_gradient(block, lo, hi, scratch):
        groups, height, width = slot(block, C.GROUPS), slot(block, C.HEIGHT), slot(block, C.WIDTH)
        out_height, out_width = slot(block, C.OUT_HEIGHT), slot(block, C.OUT_WIDTH)
        down, across, left = slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS), slot(block, C.LEFT)
        spread_down, spread_across = slot(block, C.DILATION_DOWN), slot(block, C.DILATION_ACROSS)
        window_height, window_width, window = window_of(block)
        rows, wide = slot(block, C.ROWS), (out_width - 1) * across + (window_width - 1) * spread_across + 1
        wide, room = max(wide, width + left), scratch + window * LANES * itemsize
        places = room + rows * out_width * LANES * itemsize
        sums, y, x = pointer(scratch, dtype), pointer(room, dtype), pointer(places, dtype)
        for unit in range(lo, hi):
            c0 = unit * LANES
            channels = min(LANES, groups - c0)
            clear(sums, window * LANES, dtype(0))
            for step in range(slot(block, C.IMAGES) * slot(block, C.PANELS)):
                plane = step // slot(block, C.PANELS) * groups + c0
                r0 = step % slot(block, C.PANELS) * rows
                count = min(rows, out_height - r0)
                start = slot(block, C.SECOND) + (plane * out_height + r0) * out_width * itemsize
                load_run(start, out_height * out_width, channels, count * out_width, room)
                seen = (count - 1) * down + (window_height - 1) * spread_down + 1
                image = slot(block, C.FIRST) + plane * height * width * itemsize
                after, corner = (
                    places + seen * wide * LANES * itemsize,
                    (r0 * down - slot(block, C.TOP), -left),
                )
                load_patch(image, (height, width), channels, corner, places, (seen, wide), after)
                steps, whole = (across * LANES, spread_across * LANES), window_width // TAPS * TAPS
                for r in range(count):
                    for i in range(window_height):
                        place, line = r * out_width * LANES, (r * down + i * spread_down) * wide * LANES
                        for j in range(0, whole, TAPS):
                            tap, at = (i * window_width + j) * LANES, line + j * spread_across * LANES
                            several_taps(sums, tap, y, place, out_width, x, at, steps)
                        for j in range(whole, window_width):
                            tap, at = (i * window_width + j) * LANES, line + j * spread_across * LANES
                            one_tap(sums, tap, y, place, out_width, x, at, steps)
            store_run(slot(block, C.THIRD) + c0 * window * itemsize, window, channels, window, scratch)
        return int64(0)

    return channelwise_conv2d_weight_gradient


MAKERS = {
    "channelwise_conv2d": make_convolution,
    "channelwise_conv2d_input_gradient": make_input_gradient,
    "channelwise_conv2d_weight_gradient": make_weight_gradient,
}
"""``make(dtype, itemsize)`` of the kernels by name."""
