"""Library kernels: hand-written kernels with the interface of generated ones, and their plans."""
