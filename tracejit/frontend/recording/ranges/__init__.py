"""Counted loops: `tj.range`, and Python's own `range` in long bodies (`builtin_range`).

The trip count of such a loop is known when it starts. No value has to be computed to decide whether the loop
continues, so the loop becomes a node `loop` of the graph:

    for i in tj.range(n):            `ranges`        the iterator; it ends after two recorded iterations
        x = x * w + i                `induction`     i is an induction variable: it grows by 1 each time
        out[i] = x                   `positions`     so does the offset of ``out[i]``
                                     `headers`       all that an iteration depends on; equal at two starts
                                     `loop_node`     the nodes between equal headers become the loop's body
                                     `loop_gradient` its gradient: a loop over the iterations in reverse

The soundness argument is that of loops over looks (`recording.look_loops`): the body repeats itself if
everything that it can depend on is equal. `look_loops.states` makes that comparison. It covers the position
in the code, the variables with all objects that they refer to, and the writes to other arrays and objects.

If one iteration cannot represent the others (because of a comparison of i, or a variable whose shape
changes), the call is recorded again with all iterations of that loop. ``explain()`` shows the reason.

Modules; each imports only modules to its right and below:

    builtin_range             Python's own `range` in a body whose recording becomes long
    ranges                    `tj.range` and its iterator
    loop_node, loop_gradient  a recorded iteration as a node `loop`, and the gradient of that node
    headers                   snapshots of all that an iteration depends on
    positions, induction      positions that move with the iterations; induction variables

`trace` is imported for types only.
"""
