"""Transformations of recorded functions: gradients of one's own, recomputation, forward mode, vmap."""
