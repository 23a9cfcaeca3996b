"""Counted loops: `tj.range`, and Python's own `range` in long bodies (`builtin_range`).

The trip count is known when such a loop starts, so nothing has to be computed to decide whether it goes on,
and the loop becomes a node `loop` of the graph:

    for i in tj.range(n):            `ranges`        the iterator; it ends after two recorded iterations
        x = x * w + i                `induction`     i is an induction variable: it grows by 1 in each
        iteration out[i] = x                   `positions`     so does the offset of ``out[i]``
                                     `headers`       what an iteration depends on; equal at the start of two
                                     `loop_node`     the nodes between equal headers become the loop's body
                                     `loop_gradient` its gradient: a loop over the iterations in reverse

This rests on the same fact as loops over looks (`recording.look_loops`): a body does the same if all that it
can depend on is the same. `look_loops.states` compares that: the position in the code, the variables with all
that they refer to, and what was written elsewhere.

Where one iteration cannot stand for the others (a comparison of i, a variable whose shape changes), the call
is recorded again with all iterations of that loop; ``explain()`` says why.
"""
