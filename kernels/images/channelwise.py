"""Convolution with groups of one channel and one filter, in vectors of channels.

This is the variant of `tracejit.kernels.images.depthwise` for narrow images with several channels. `LANES`
channels are transposed to a patch (`tracejit.kernels.images.patches`); neighbouring output positions are then
sums of products of vectors, however few positions a row has. The blocks are
`tracejit.kernels.images.window_blocks.Convolution`; GROUPS is the number of channels, a *panel* is ROWS rows
of a result.

    channelwise_conv2d, channelwise_conv2d_input_gradient     unit = (image, LANES channels, panel)
    channelwise_conv2d_weight_gradient                        unit = LANES channels: all images in order
"""

from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.compiler.memory import I64, pointer, slot, vector_type
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.images.common import clear, inside, window_of
from tracejit.kernels.images.patches import make_patches, make_runs
from tracejit.kernels.images.window_blocks import Convolution as C
from tracejit.kernels.images.windows import LANES

TOGETHER = 6
"""Output positions whose sums are kept in registers simultaneously."""

TAPS = 3
"""Neighbouring elements of a window whose gradients are kept in registers simultaneously."""


def _fma(builder, x, y, z):
    """The fused multiply-add ``x * y + z`` of vectors."""
    bits = 32 if isinstance(x.type.element, ir.FloatType) else 64
    kind = ir.FunctionType(x.type, [x.type] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{x.type.count}f{bits}")
    return builder.call(function, [x, y, z])


def _access(context, builder, pointer):
    """The functions ``(load, store)`` for the vector that begins at an element of a pointer."""
    element = pointer.type.pointee
    vector, alignment = vector_type(context, element, LANES).as_pointer(), context.get_abi_sizeof(element)

    def vector_address(index):
        return builder.bitcast(builder.gep(pointer, [index]), vector)

    return (
        lambda index: builder.load(vector_address(index), align=alignment),
        lambda value, index: builder.store(value, vector_address(index), align=alignment),
    )


@intrinsic
def multiply_add(typingctx, out, o, x, i, y, j):
    """Add ``x[i:] * y[j:]`` to ``out[o:]``, for LANES elements."""

    def codegen(context, builder, signature, args):
        out, o, x, i, y, j = args
        load, store = _access(context, builder, out)
        first, second = _access(context, builder, x)[0](i), _access(context, builder, y)[0](j)
        store(_fma(builder, first, second, load(o)), o)
        return context.get_dummy_value()

    return types.void(out, int64, x, int64, y, int64), codegen


def _window_sums(count):
    """Return the intrinsic ``window_sums(x, first, steps, w, window, out, start)`` for `count` neighbouring
    output positions.

    Position p is stored in ``out[start + p * LANES:]``, the sum over k and m of
    ``w[(k * width + m) * LANES:]`` times ``x[first + k * down + m * across + p * step:]``; steps: down,
    across, step; window: height, width.
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
                    element = builder.add(line, builder.mul(columns.index, across))
                    tap = factor(builder.mul(builder.add(taps, columns.index), I64(LANES)))
                    for p, total in enumerate(sums):
                        value = load(builder.add(element, builder.mul(step, I64(p))))
                        builder.store(_fma(builder, value, tap, builder.load(total)), total)
            for p, total in enumerate(sums):
                store(builder.load(total), builder.add(start, I64(p * LANES)))
            return context.get_dummy_value()

        kinds = (types.UniTuple(int64, 3), w, types.UniTuple(int64, 2))
        return types.void(x, int64, *kinds, out, int64), codegen

    return window_sums


def _tap_sums(count):
    """Return the intrinsic ``tap_sums(sums, tap, y, start, positions, x, first, steps)`` for `count`
    neighbouring taps of the window.

    Tap t, ``sums[tap + t * LANES:]``, is increased by the products of ``y[start + p * LANES:]`` and
    ``x[first + p * step + t * across:]`` for all `positions` p; steps: step, across.
    """

    @intrinsic
    def tap_sums(typingctx, sums, tap, y, start, positions, x, first, steps):
        def codegen(context, builder, signature, args):
            sums, tap, y, start, positions, x, first, steps = args
            step, across = cgutils.unpack_tuple(builder, steps, 2)
            load_sum, store = _access(context, builder, sums)
            (factor, _), (load, _) = _access(context, builder, y), _access(context, builder, x)
            taps = [builder.add(tap, I64(t * LANES)) for t in range(count)]
            totals = [cgutils.alloca_once(builder, vector_type(context, x.type.pointee, LANES)) for _ in taps]
            for total, index in zip(totals, taps, strict=True):
                builder.store(load_sum(index), total)
            with cgutils.for_range(builder, positions, intp=I64) as loop:
                value = factor(builder.add(start, builder.mul(loop.index, I64(LANES))))
                element = builder.add(first, builder.mul(loop.index, step))
                for t, total in enumerate(totals):
                    x_value = load(builder.add(element, builder.mul(across, I64(t))))
                    builder.store(_fma(builder, value, x_value, builder.load(total)), total)
            for total, index in zip(totals, taps, strict=True):
                store(builder.load(total), index)
            return context.get_dummy_value()

        rest_kinds = (int64, y, int64, int64, x, int64)
        return types.void(sums, *rest_kinds, types.UniTuple(int64, 2)), codegen

    return tap_sums


one_tap, several_taps = _tap_sums(1), _tap_sums(TAPS)
one_sum, several_sums = _window_sums(1), _window_sums(TOGETHER)


@subroutine
def unit_of(block, unit):
    """The range of a unit: (image, first channel, channels, first row, last row)."""
    groups, panels, rows = slot(block, C.GROUPS), slot(block, C.PANELS), slot(block, C.ROWS)
    vectors = (groups + LANES - 1) // LANES
    first, r0 = unit // panels % vectors * LANES, unit % panels * rows
    return unit // panels // vectors, first, min(LANES, groups - first), r0, r0 + rows


def make_sums(dtype, itemsize):
    """Return ``sums(block, x, extents, channels, corner, steps, rows, columns, taps, workspace)``, which
    computes rows of output positions.

    x: address of the first channel of an image of `extents`; steps: strides
    corner: row and column, before the image, of the window of the first position
    rows, columns: of output positions; taps: address of the weights in lanes
    workspace: address of scratch memory, in which the outputs are stored

    Returns the address of the outputs.
    """
    load_patch = make_patches(dtype, itemsize)

    @subroutine
    def sums(block, x, extents, channels, corner, steps, rows, columns, taps, workspace):
        (stride_down, stride_across), (_, width), (_, left) = steps, extents, corner
        spread_down, spread_across = slot(block, C.DILATION_DOWN), slot(block, C.DILATION_ACROSS)
        window_height, window_width, _ = window_of(block)
        height = (rows - 1) * stride_down + (window_height - 1) * spread_down + 1
        patch_width = max(
            (columns - 1) * stride_across + (window_width - 1) * spread_across + 1, width - left
        )
        result = workspace + height * patch_width * LANES * itemsize
        load_patch(x, extents, channels, corner, workspace, (height, patch_width), result)
        patch, out, w = pointer(workspace, dtype), pointer(result, dtype), pointer(taps, dtype)
        strides = (spread_down * patch_width * LANES, spread_across * LANES, stride_across * LANES)
        for r in range(rows):
            line, start = r * stride_down * patch_width * LANES, r * columns * LANES
            blocked = columns // TOGETHER * TOGETHER
            for q in range(0, blocked, TOGETHER):
                source = line + q * stride_across * LANES
                several_sums(patch, source, strides, w, (window_height, window_width), out, start + q * LANES)
            for q in range(blocked, columns):
                source = line + q * stride_across * LANES
                one_sum(patch, source, strides, w, (window_height, window_width), out, start + q * LANES)
        return result

    return sums


def make_convolution(dtype, itemsize):
    """Return the kernel of the convolution."""
    sums = make_sums(dtype, itemsize)
    load_run, store_run = make_runs(dtype, itemsize)

    def channelwise_conv2d(block, lo, hi, scratch):
        groups, height, width = slot(block, C.GROUPS), slot(block, C.HEIGHT), slot(block, C.WIDTH)
        out_height, out_width = slot(block, C.OUT_HEIGHT), slot(block, C.OUT_WIDTH)
        down, across = slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS)
        _, _, window = window_of(block)
        workspace = scratch + window * LANES * itemsize
        for unit in range(lo, hi):
            image, c0, channels, r0, r1 = unit_of(block, unit)
            rows, plane = min(r1, out_height) - r0, image * groups + c0
            load_run(slot(block, C.SECOND) + c0 * window * itemsize, window, channels, window, scratch)
            x = slot(block, C.FIRST) + plane * height * width * itemsize
            y = slot(block, C.THIRD) + (plane * out_height + r0) * out_width * itemsize
            corner, steps = (r0 * down - slot(block, C.TOP), -slot(block, C.LEFT)), (down, across)
            result = sums(
                block, x, (height, width), channels, corner, steps, rows, out_width, scratch, workspace
            )
            store_run(y, out_height * out_width, channels, rows * out_width, result)
        return int64(0)

    return channelwise_conv2d


def make_input_gradient(dtype, itemsize):
    """Return the kernel of the gradient with respect to the images: a convolution by the rotated window if
    the stride is 1, otherwise the adjoint of a convolution.
    """
    sums = make_sums(dtype, itemsize)
    load_run, store_run = make_runs(dtype, itemsize)

    @subroutine
    def rotate(taps, window):
        w = pointer(taps, dtype)
        for k in range(window // 2):
            for c in range(LANES):
                a, b = k * LANES + c, (window - 1 - k) * LANES + c
                w[a], w[b] = w[b], w[a]

    @subroutine
    def adjoint(block, y, channels, r0, r1, taps, workspace):
        """Compute rows `r0` to `r1` of an image, in lanes. Returns their address."""
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
        result = workspace + (last - first) * out_width * LANES * itemsize
        load_run(
            y + first * out_width * itemsize,
            out_height * out_width,
            channels,
            (last - first) * out_width,
            workspace,
        )
        outputs, image, w = pointer(workspace, dtype), pointer(result, dtype), pointer(taps, dtype)
        clear(image, (r1 - r0) * width * LANES, dtype(0))
        for r in range(first, last):
            for i in range(window_height):
                row = r * down + i * slot(block, C.DILATION_DOWN) - top
                if r0 <= row < r1:
                    for j in range(window_width):
                        offset = j * slot(block, C.DILATION_ACROSS) - left
                        start, stop = inside(offset, across, out_width, width)
                        for q in range(start, stop):
                            target = (row - r0) * width + q * across + offset
                            source, tap = (r - first) * out_width + q, i * window_width + j
                            multiply_add(image, target * LANES, outputs, source * LANES, w, tap * LANES)
        return result

    def channelwise_conv2d_input_gradient(block, lo, hi, scratch):
        groups, height, width = slot(block, C.GROUPS), slot(block, C.HEIGHT), slot(block, C.WIDTH)
        out_height, out_width = slot(block, C.OUT_HEIGHT), slot(block, C.OUT_WIDTH)
        extents = (out_height, out_width)
        window_height, window_width, window = window_of(block)
        top = (window_height - 1) * slot(block, C.DILATION_DOWN) - slot(block, C.TOP)
        left = (window_width - 1) * slot(block, C.DILATION_ACROSS) - slot(block, C.LEFT)
        steps = (slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS))
        is_convolution = (
            (slot(block, C.STRIDE_DOWN) == 1) & (slot(block, C.STRIDE_ACROSS) == 1) & (top >= 0) & (left >= 0)
        )
        workspace = scratch + window * LANES * itemsize
        for unit in range(lo, hi):
            image, c0, channels, r0, r1 = unit_of(block, unit)
            r1, plane = min(r1, height), image * groups + c0
            load_run(slot(block, C.SECOND) + c0 * window * itemsize, window, channels, window, scratch)
            y = slot(block, C.FIRST) + plane * out_height * out_width * itemsize
            x = slot(block, C.THIRD) + (plane * height + r0) * width * itemsize
            if is_convolution:
                rotate(scratch, window)
                result = sums(
                    block, y, extents, channels, (r0 - top, -left), steps, r1 - r0, width, scratch, workspace
                )
            else:
                result = adjoint(block, y, channels, r0, r1, scratch, workspace)
            store_run(x, height * width, channels, (r1 - r0) * width, result)
        return int64(0)

    return channelwise_conv2d_input_gradient


def make_weight_gradient(dtype, itemsize):
    """Return the kernel of the gradient with respect to the weights."""
    load_run, store_run = make_runs(dtype, itemsize)
    load_patch = make_patches(dtype, itemsize)

    def channelwise_conv2d_weight_gradient(block, lo, hi, scratch):
        groups, height, width = slot(block, C.GROUPS), slot(block, C.HEIGHT), slot(block, C.WIDTH)
        out_height, out_width = slot(block, C.OUT_HEIGHT), slot(block, C.OUT_WIDTH)
        down, across, left = slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS), slot(block, C.LEFT)
        spread_down, spread_across = slot(block, C.DILATION_DOWN), slot(block, C.DILATION_ACROSS)
        window_height, window_width, window = window_of(block)
        rows, patch_width = (
            slot(block, C.ROWS),
            (out_width - 1) * across + (window_width - 1) * spread_across + 1,
        )
        patch_width, workspace = max(patch_width, width + left), scratch + window * LANES * itemsize
        patch = workspace + rows * out_width * LANES * itemsize
        sums, y, x = pointer(scratch, dtype), pointer(workspace, dtype), pointer(patch, dtype)
        for unit in range(lo, hi):
            c0 = unit * LANES
            channels = min(LANES, groups - c0)
            clear(sums, window * LANES, dtype(0))
            for step in range(slot(block, C.IMAGES) * slot(block, C.PANELS)):
                plane = step // slot(block, C.PANELS) * groups + c0
                r0 = step % slot(block, C.PANELS) * rows
                count = min(rows, out_height - r0)
                start = slot(block, C.SECOND) + (plane * out_height + r0) * out_width * itemsize
                load_run(start, out_height * out_width, channels, count * out_width, workspace)
                patch_rows = (count - 1) * down + (window_height - 1) * spread_down + 1
                image = slot(block, C.FIRST) + plane * height * width * itemsize
                after, corner = (
                    patch + patch_rows * patch_width * LANES * itemsize,
                    (r0 * down - slot(block, C.TOP), -left),
                )
                load_patch(image, (height, width), channels, corner, patch, (patch_rows, patch_width), after)
                steps, blocked = (across * LANES, spread_across * LANES), window_width // TAPS * TAPS
                for r in range(count):
                    for i in range(window_height):
                        y_start, line = (
                            r * out_width * LANES,
                            (r * down + i * spread_down) * patch_width * LANES,
                        )
                        for j in range(0, blocked, TAPS):
                            tap, x_start = (i * window_width + j) * LANES, line + j * spread_across * LANES
                            several_taps(sums, tap, y, y_start, out_width, x, x_start, steps)
                        for j in range(blocked, window_width):
                            tap, x_start = (i * window_width + j) * LANES, line + j * spread_across * LANES
                            one_tap(sums, tap, y, y_start, out_width, x, x_start, steps)
            store_run(slot(block, C.THIRD) + c0 * window * itemsize, window, channels, window, scratch)
        return int64(0)

    return channelwise_conv2d_weight_gradient


MAKERS = {
    "channelwise_conv2d": make_convolution,
    "channelwise_conv2d_input_gradient": make_input_gradient,
    "channelwise_conv2d_weight_gradient": make_weight_gradient,
}
"""``make(dtype, itemsize)`` of each kernel."""
