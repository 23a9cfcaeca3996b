"""Object code: compilation of kernel sources, linking, and the kernel store.

Modules; each imports only modules to its right and below:

    listing         LLVM IR and assembly of a stored kernel
    loader          kernels as addresses, from memory, the store or the compiler; the only gate to Numba
    ptx             Numba functions to PTX
    build, machine  Numba functions to object code; LLVM's target machine, through llvmlite
    linker, orc     object code to addresses, with LLVM's linker, without Numba
    store, entry    the kernel store; the key and file format of one entry

The package knows sources and functions, but no IR: it never imports `ir`, `ops`, `loopnest` or `passes`.
"""
