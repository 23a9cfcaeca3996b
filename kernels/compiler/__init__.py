"""The Numba target for kernels, typed memory access, and lanes, the values of scalar functions."""
