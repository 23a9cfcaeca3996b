"""Kernels: handwritten native code, and the building blocks of generated kernels.

The package is imported as `tracejit.kernels`. Packages, from callers down; each imports only packages to its
right and below:

    arrays     operators and indexing of small arrays, as slots of a Python type
    ranks      exchanges between ranks of one machine, in shared memory
    attention  attention in a single kernel, forward and backward
    gpu        handwritten GPU kernels, and the compiler's GPU target
    executor   the native executor of the engine: queues, threads, launches
    images     convolution and pooling, and their plans
    library    handwritten kernels with the interface of generated ones, and their plans
    gemm       matrix products: plans, packing, register tiles, BLAS
    streams    building blocks of streaming kernels: prefetch, non-temporal stores, transposition
    scalar     elementwise operators on one element
    compiler   the Numba target, typed memory access, typed values
    c_functions, split
               functions of the C library; definitions shared by all plans, which split work into units

Kernels import no other package of tracejit. *Plans* and *layouts* (`c_functions`, `split`, and modules that a
contract of import-linter lists) are arithmetic: they import neither Numba nor llvmlite, so all layers may use
them at any time. All other modules are imported when something must be compiled. This module imports nothing.
"""
