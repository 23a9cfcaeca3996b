"""The Numba target for kernels, typed memory access, and the typed values of scalar functions.

Modules; each imports only modules to its right and below:

    outline, vector_variants           code called by loops that LLVM vectorises: rare cases, and functions
                                       expanded afterwards
    intrinsics, remainder              scalar functions: their intrinsics, the exact remainder
    typed_values, half                 the typed values of scalar functions; float16 and bfloat16
    words                              the front end for functions of int64 words
    target, typing, inference          Numba's front end for kernels: the target, typing rules, type
                                       inference
    loops, ranges                      loop metadata for LLVM; `range` as an induction variable
    memory                             typed access to raw memory, atomics, calls by address
    code                               LLVM IR of kernels and subroutines, and the calling convention

The package is the lowest one that uses Numba: it imports no other package of kernels.
"""
