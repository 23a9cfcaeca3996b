"""Transformations of functions: custom gradients, recomputation, forward mode, Jacobians, `vmap`, and control
flow as functions.
"""
