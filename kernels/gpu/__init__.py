"""GPU kernels: intrinsics (thread indices, barriers, shared memory), the compiler's target, and handwritten
kernels.

Modules; each imports only modules to its right and below:

    table                            the handwritten kernels by name
    fourier, images, sorting         Fourier transforms; convolution and pooling; sorting and searching
    rotations, reflections, systems  decompositions by Jacobi rotations and Householder reflections; linear
                                     systems
    kernel_graph                     the first and the last kernel of a graph of kernels
    threads, numbers, words          loops over units; routines for real and complex numbers; thread
                                     indices, barriers, shared memory
    target                           the compiler's target for GPUs
    plan                             argument blocks and launches; needs no Numba

Matrix products of GPUs are generated (`tracejit.codegen.gpu.product`). The package imports `compiler`,
`executor`, `images`, `library`, `scalar` and `split`. Of `executor` it imports layouts only.
"""
