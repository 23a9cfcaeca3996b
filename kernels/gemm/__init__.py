"""Matrix products: BLAS and its calls, plans, register tiles, packing, the kernel.

Modules; each imports only modules to its right and below:

    products       the kernel, built on products of a panel
    packed, tiles  products of a panel from packed copies, and in register tiles
    plan, calls    argument block, operands and split into panels; calls of CBLAS from kernels
    blas           OpenBLAS and LAPACK as addresses of functions

`plan` and `blas` need no Numba. The kernels import `streams`, `scalar`, `compiler` and `split`.
"""
