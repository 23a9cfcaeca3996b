"""Loops over looks: Python loops that read a value in each iteration.

    while float(err) > tol:          a look in each iteration
        x, err = step(x)
        n += 1

A look ends a *segment* (`segments`), which is launched, because the body needs the number. What the rest of
the body does depends on its state at the look and on the answers to its later questions. Two looks with equal
states (`states`) therefore start equal iterations, and a trace is a graph: equal states are one node, and
what was recorded between two looks is a transition (`state_graph`). The content of arrays and the values of
run-time numbers may differ between equal states, since no Python code has depended on them without a
question.

Three parts execute such a graph, each in its own setting:

    run_ahead                  while a call is recorded: iterations that are known run, and are not recorded
    jit.state_loops            in a replay: a loop of Python's, or of many iterations in one launch

To find the state, the recorder reads the frames of the running functions (`frames`). Numbers that count
iterations, which are literals at first, become numbers of the call (`counters`).

Counted loops, whose trip count is known when they start, are the subject of `recording.ranges`.
"""
