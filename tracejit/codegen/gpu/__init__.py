"""Kernels for CUDA, and how they are launched."""
