"""Loop rolling: detects runs of equal iterations, proves that they are equal, and builds `loop` nodes.

Modules; each imports only modules to its right and below:

    roll       the pass
    make_loop  a `loop` node from a wiring
    wiring     the dataflow of the iterations of a run
    periods    periodic runs in a sequence of tokens

The package imports `cse`, `ir`, `kernels`, `ops`, `products` and `tuning`.
"""
