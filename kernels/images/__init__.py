"""Kernels that slide windows over images: convolution, pooling, and their plans."""
