"""Gradients, as nodes appended to a recording.

Modules; each imports only modules to its right and below:

    reverse  gradients of functions, by a transformation of the recorded graph
    tape     the nodes recorded while a gradient is taken, and custom rules

The package imports `arrays`, `ir`, `ops`, `passes` and `recording`. The gradient rules are in `ops` and
`passes.gradient`. It knows no traced functions.
"""
