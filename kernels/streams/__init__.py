"""Building blocks of kernels that stream: prefetch, non-temporal stores, transposition, quotients, sweeps."""
