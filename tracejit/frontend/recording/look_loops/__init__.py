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

Such a graph is executed in two settings. While a call is recorded, iterations that are known run without
being recorded (`run_ahead`). In a replay it is a loop of Python's, or many iterations are one launch
(`jit.state_loops`).

To find the state, the recorder reads the frames of the running functions (`frames`). Numbers that count
iterations, which are literals at first, become numbers of the call (`counters`).

Loops that compute with numbers only contain no look; the recorder adds one to each iteration
(`number_loops`). Counted loops, whose trip count is known when they start, are the subject of
`recording.ranges`.

Modules; each imports only modules to its right and below:

    run_ahead            iterations that run without being recorded
    state_graph, states  states and transitions of a trace; the state of a body at a look
    counters             iteration counters, as run-time numbers
    number_loops         looks in loops that compute with numbers only
    frames               which functions are running at a look, and what they have called

The package does not import `looks` or `trace`, which use it, except for types.
"""
