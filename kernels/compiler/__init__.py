"""The Numba target for kernels, typed memory access, and lanes, over which scalar functions are written."""
