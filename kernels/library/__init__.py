"""Library kernels: hand-written kernels with the interface of generated ones, and their plans.

Modules; each imports only modules to its right and below:

    table         the kernels by name
    systems       ``solve`` and ``inv`` of small systems
    plan, blocks  calls and argument blocks, except those of ``gemm``; need no Numba

The package imports `compiler`, `gemm` and `split`.
"""
