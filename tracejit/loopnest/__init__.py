"""The loop-nest IR: what one kernel computes, as terms over an iteration domain, and in which loops.

Fusion asks it whether, and at what cost, one kernel can compute a set of nodes; code generation writes that
kernel from the same answer. So it lies below both, and knows of operators and views only. The body of a
`fused` node, a graph, becomes

- a `LoopProgram` (`program`): `Term`s over the index of a `Domain` of kept and reduced dimensions. Views are
  index maps of the terms that load. `build.trace` makes programs; `layout` reads the domain off the shapes.
- a `LoopSchedule` (`schedule`): which loop computes each term, what is carried from one loop to a later one,
  and which dimension the innermost loop runs over.
- a `Sweep` (`sweep`), if the kernel updates an array that it reads at shifted places.

`analysis.analyse` finds all three. `regions` answers questions about the elements that two views of one array
mean.

    softmax of x: float32[64,100]       domain: kept (64,), reduced (100,)
      load x at 0+[64,100]:[100,1]      FULL    first loop, and again in the second one
      reduce max of x                   KEPT    folded in the first loop
      apply subtract, apply exp         FULL    second loop; exp is kept in scratch memory
      reduce sum of exp                 KEPT    folded in the second loop
      apply divide                      FULL    third loop, stored to the output
"""
