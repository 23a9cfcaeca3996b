"""Library kernels: hand-written kernels with the interface of generated ones, and their plans.

Modules; each imports only modules to its right and below:

    table         the kernels by name
    transforms    ``fft``, ``rfft`` and ``irfft``
    sorting       ``sort``, ``argsort`` and ``search_sorted``, of short lines
    integers      ``gcd``
    comparisons   the order of numbers
    systems       ``solve`` and ``inv`` of small systems
    plan          calls, except those of ``gemm``; needs no Numba, nor do the next two
    inner_loops   the inner loops of NumPy's transforms
    blocks        argument blocks

The package imports `compiler`, `gemm`, `scalar` and `split`.
"""
