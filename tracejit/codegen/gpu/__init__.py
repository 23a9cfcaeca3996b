"""CUDA kernels and their launch dimensions.

Modules; each imports only modules to its right and below:

    emit     the source of a kernel, from its `KernelSpec`
    product  matrix products, in tiles of a block of threads
    launch   launch dimensions

Emitters import `spec` and `text` of `codegen`; only the GPU's target, jobs and kernels import this one.
"""
