"""Building blocks of streaming kernels: prefetch, non-temporal stores, transposition, quotients, sweeps."""
