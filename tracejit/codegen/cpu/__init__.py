"""Kernels for the CPU: the loops around steps, for each orientation."""
