"""CUDA kernels and their launch dimensions."""
