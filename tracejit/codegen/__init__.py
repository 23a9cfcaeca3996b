"""Code generation for fused kernels: kernel structure, source text, machine code, and the object-code store.

Modules; each imports only modules to its right and below:

    lower           a `fused` node with concrete shapes to a `Lowered` kernel
    cpu, gpu        emitters: the source of a kernel for each kind of device; they do not know one another
    encode, units   scheduled terms as a `KernelSpec`; division of the domain into units
    text, prefetch  source text common to all targets; insertion of prefetches
    spec            `KernelSpec`: the structure of a kernel, its slots and units
    objects         object code: compilation, linking, the kernel store; knows no IR

The package imports `ir`, `kernels`, `loopnest` and `tuning`. Only `targets` and the modules for one kind of
device in `assembly` import the emitters. Numba is imported behind the gate in `objects.loader`.
"""
