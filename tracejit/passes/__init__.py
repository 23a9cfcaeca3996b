"""Passes: functions from graph to graph, run by `driver`, and the passes from a graph to its memory plan.

Modules; each imports only modules to its right and below:

    driver                         runs the passes in order; the only module that verifies, prints and times
                                   them
    components                     deduplicates equal parts of a graph before these passes
    fusion, memory                 forms kernels; assigns memory to buffers, orders tasks
    rolling, stack                 runs of equal iterations as loops; sums along a loop
    attend, winograd, weight_sums  select algorithms: attention, 3 x 3 convolution, weight gradients
    copier, gradient               for the frontend: copies of nodes and gradient steps; nodes that compute
                                   cotangents
    remask, recompute              select what is computed again
    simplify, cse, dce, widen      leave only the operators that the results need, in dtypes that kernels
                                   compute
    attention_patterns, diagonals, products, producers
                                   pattern matching for passes and the frontend

The package imports `ir`, `kernels`, `loopnest`, `ops` and `tuning`. Of `kernels` it imports plans only. It
generates no code, and knows neither `codegen` nor the engine.
"""
