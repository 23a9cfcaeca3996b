"""Library kernels: hand-written kernels with the interface of generated ones, and their plans.

Modules; each imports only modules to its right and below:

    table         the kernels by name
    sorting       ``sort``, ``argsort`` and ``search_sorted``, of short lines
    integers      ``gcd``
    comparisons   the order of numbers
    systems       ``solve`` and ``inv`` of small systems
    plan, blocks  calls and argument blocks, except those of ``gemm``; need no Numba

The package imports `compiler`, `gemm`, `scalar` and `split`.
"""
