"""Gradients, as nodes appended to a recording.

Modules; each imports only modules to its right and below:

    reverse  gradients of functions, by a transformation of the recorded graph
    tape     the nodes recorded while a gradient is taken, and custom rules

The package imports `arrays`, `recording` and the gradient rules (`ops`, `passes.gradient`). It knows no
traced functions.
"""
