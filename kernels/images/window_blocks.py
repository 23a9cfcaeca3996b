"""Slots of the argument blocks of kernels that slide windows over images. Needs no Numba.

`tracejit.kernels.images.windows` fills the blocks, and does not need the names. The last slots are the
addresses of the operands, inputs first: FIRST, SECOND and, if there is one, THIRD.
"""

from __future__ import annotations

import enum


class Convolution(enum.IntEnum):
    """Slots of the three convolutions; CHANNELS and FILTERS are the numbers per group.

    FIRST, SECOND, THIRD are x, w, y of ``conv2d``; y, w, x of ``conv2d_input_gradient``; x, y, w of
    ``conv2d_weight_gradient``, where w may be several arrays, each the sum over TOGETHER rows of output
    positions. RANGE_SIZE: the number of filters in a unit of ``conv2d``, of channels or rows of columns in a
    unit of the gradients.
    """

    ENTRY = 0  # address of `?gemm`
    IMAGES = 1
    GROUPS = 2
    CHANNELS = 3
    FILTERS = 4
    HEIGHT = 5
    WIDTH = 6
    WINDOW_HEIGHT = 7
    WINDOW_WIDTH = 8
    STRIDE_DOWN = 9
    STRIDE_ACROSS = 10
    TOP = 11  # padding
    LEFT = 12
    DILATION_DOWN = 13
    DILATION_ACROSS = 14
    OUT_HEIGHT = 15
    OUT_WIDTH = 16
    DIRECT = 17
    ROWS = 18  # rows of output positions in a panel
    PANELS = 19
    RANGE_SIZE = 20
    RANGES = 21
    TOGETHER = (
        22  # images in a unit; for a weight gradient: rows of output positions, of all images, in a sum
    )
    PACKED = 23  # offset in scratch memory of the workspace of products
    FIRST = 24
    SECOND = 25
    THIRD = 26


class Pooling(enum.IntEnum):
    """Slots of pooling, over PLANES images of one channel; a unit is UNIT_PLANES of them.

    FIRST is x (for ``average_pool_gradient`` y), followed by y or z if there is one, and the result.
    """

    PLANES = 0
    UNIT_PLANES = 1
    HEIGHT = 2
    WIDTH = 3
    WINDOW_HEIGHT = 4
    WINDOW_WIDTH = 5
    STRIDE_DOWN = 6
    STRIDE_ACROSS = 7
    TOP = 8
    LEFT = 9
    OUT_HEIGHT = 10
    OUT_WIDTH = 11
    FIRST = 12
    SECOND = 13
    THIRD = 14
