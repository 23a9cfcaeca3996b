"""Attention in a single kernel over blocks of rows, forward and backward.

Modules; each imports only modules to its right and below:

    table      the kernels by name
    blockwise  the kernels: blocks of scores stay in the caches
    plan       calls, argument blocks and splits into units; needs no Numba

The kernels are built on `gemm`, `images`, `scalar` and `compiler`.
"""
