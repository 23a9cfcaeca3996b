"""Fusion: groups the nodes of a graph into `fused` nodes, each of which becomes one kernel and one task.

Modules; each imports only modules to its right and below:

    fuse            the pass: forms groups, and replaces each by a `fused` node
    bodies, stored  the body of such a node; values that a kernel stores for others
    free, groups    nodes that every kernel recomputes; convex groups of nodes
    prepare         rewrites after which kernels can compute every node

The package asks `loopnest` what one kernel can compute, and `tuning` whether that is profitable. It imports
`remask`, `products` and `producers` of `passes`.
"""
