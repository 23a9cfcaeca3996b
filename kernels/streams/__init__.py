"""Building blocks of streaming kernels: prefetch, non-temporal stores, transposition, quotients, sweeps.

Modules; each imports only modules to its right and below:

    transpose         tiles of an operand that is not contiguous along the loop, read by its rows
    sweep             rows of an in-place sweep that other bands still read
    quotient          division by a loop-invariant number
    prefetch, stream  software prefetching; non-temporal stores

The package imports `compiler`. Generated kernels and those of `gemm` and `images` use it.
"""
