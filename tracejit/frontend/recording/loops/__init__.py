"""Python loops of which a few rounds are recorded, and stand for all.

A trace sees a loop round by round. Recorded so, it would be as long as the loop has rounds, and wrong for
another count. Two kinds of loops are recorded in another way. Both ways rest on one fact: *a body does the
same when all that it can depend on is the same*. `states` compares that: the place in the code, the variables
and all that they refer to, and what was written elsewhere. The content of arrays and the values of numbers of
the call may differ, as no Python code has looked at them.

**A count that is known before** (`tj.range`, and Python's own `range` in long bodies, see `plain`). Nothing
needs to be computed to know that there is a next round, so the loop becomes a node `loop` of the graph:

    for i in tj.range(n):            `ranges`     the iterator; two rounds are recorded, then ``for`` ends
        x = x * w + i                `induction`  i is a number that moves: 1 more in each round
        out[i] = x                   `positions`  so does the place of ``out[i]``
                                     `headers`    what the round depends on: equal at the begin of two rounds
                                     `body`       the nodes between two equal headers become the loop's body
                                     `reverse`    its gradient: a loop over the rounds in reverse

Where a round cannot stand for the others (a comparison of i, variables of new shapes) the call is recorded
again, with all rounds of that loop; ``explain()`` says why.

**A look at a value in each round** ends a segment (`segments`), which is launched, for the body needs the
number. The looks of a trace are a graph: equal states are one node, and what was recorded between two looks
is an edge, a *way*, with the questions that the body asked there (`ways`):

    while float(err) > tol:          a state; its ways: a round, with the answer that err > tol
        x, err = step(x)
        n += 1                       `counters`   a literal at first, then a number of the call

When the body is in a known state again, rounds need not be recorded: `ahead` follows the known ways until a
question has a new answer, and the body continues from there. A replay follows the same ways: in Python
(`jit.loops`), or many rounds in one launch, where the graph can ask the questions (`jit.exits`).
"""
