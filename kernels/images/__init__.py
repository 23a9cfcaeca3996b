"""Kernels that slide windows over images: convolution, pooling, and their plans.

Modules; each imports only modules to its right and below:

    table                               the kernels by name
    convolution, channelwise, depthwise, winograd
                                        convolution: by matrix products; with groups of one channel, in
                                        vectors of channels or along rows; by 3 x 3 windows with fewer
                                        multiplications
    pooling                             the largest element or the mean of windows, and gradients
    patches, transforms                 regions with contiguous channels; the transforms of Winograd's
                                        convolution
    common, products, slivers, vectors  subroutines: windows, matrix products, gathered columns, masked
                                        vectors
    winograd_plan, windows, window_blocks
                                        plans and argument blocks; need no Numba

The package imports `compiler`, `gemm`, `split` and `streams`.
"""
