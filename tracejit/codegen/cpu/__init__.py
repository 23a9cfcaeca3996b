"""CPU kernels: the loops that surround the steps, one module per orientation; serial kernels.

Modules; each imports only modules to its right and below:

    emit                the source of a kernel, from its `KernelSpec`
    map, rows, columns  the loops of an orientation: MAP, ROWS, COLUMNS
    serial              serial kernels: scalars, branches and loops
    loops               the innermost loop, its steps, and reductions
    sweep               rows in order, with results buffered in a ring

Emitters import `spec` and `text` of `codegen`; only the CPU's target and kernels import this one.
"""
