"""Kernels of fused groups: structure, source, machine code, and the store of object code."""
