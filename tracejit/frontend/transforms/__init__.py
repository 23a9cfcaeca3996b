"""Transformations of functions: custom gradients, recomputation, forward mode, Jacobians, `vmap`, and control
flow as functions.

Modules; each imports only modules to its right and below:

    jacobian            Jacobians and Hessians, by `vmap`
    vmap                a function of one example on a batch of examples
    aliases, examples   of `vmap`: shared memory that is written; the replay of one example for all
    custom, forward     custom gradients; directional derivatives
    batch, mapped_axes  of `vmap`: the recording of one example; ``in_axes`` and ``out_axes``
    checkpoint          recomputation in the backward pass
    control             loops and branches as functions, with JAX's signatures
    leaves              the leaves of trees with respect to which a transformation differentiates

The package imports `arrays`, `grad`, `ir`, `ops`, `passes`, `python` and `recording`. It knows no
signatures and no traced functions.
"""
