"""The loop-nest IR: the computation of one kernel, as terms over an iteration domain, and its loops.

Fusion queries it to determine whether, and at what cost, one kernel can compute a set of nodes; code
generation emits that kernel from the same analysis. The package is therefore below both, and depends on
operators, views, tuning and plans of kernels only. The body of a `fused` node, a graph, becomes

- a `LoopProgram` (`program`): `Term`s over the index of a `Domain` of kept and reduced dimensions. Views
  become index maps of the terms that load. `build.trace` builds programs; `layout` derives the domain from
  the shapes.
- a `LoopSchedule` (`schedule`): the loop that computes each term, the values that are carried from one loop
  to a later one, and the dimension of the innermost loop.
- a `Sweep` (`sweep`), if the kernel updates an array that it reads at shifted indices.

A `loop` over single elements becomes a `SerialProgram` (`serial`) instead: scalars, branches and loops.

`analysis.analyse` computes all three. `regions` compares the sets of elements that two views of one array
cover.

    softmax of x: float32[64,100]       domain: kept (64,), reduced (100,)
      load x at 0+[64,100]:[100,1]      FULL    first loop, and again in the second one
      reduce max of x                   KEPT    folded in the first loop
      apply subtract, apply exp         FULL    second loop; exp is kept in scratch memory
      reduce sum of exp                 KEPT    folded in the second loop
      apply divide                      FULL    third loop, stored to the output

Modules; each imports only modules to its right and below:

    analysis, traffic  program, schedule and sweep of one kernel; its memory traffic, given the caches of
                       its target
    serial             lowers a loop over single elements to the statements of a serial kernel
    build              traces the body of a `fused` node to a program
    schedule           consecutive loops over the reduced dimensions
    inner_loops, merging, selects, assignments
                       nested loops among states of a serial kernel; the common ends of its branches, short
                       ones without branching, their results as assignments
    sweep, layout      updates in place at shifted indices; the iteration domain, derived from shapes
    literals, operands, visits
                       serial kernels: which constants are part of them, lowered values, what statements read
    program, statements, regions
                       terms and statements as data; comparison of the elements that views cover
"""
