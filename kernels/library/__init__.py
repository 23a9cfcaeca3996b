"""Library kernels: fixed sources with the interface of generated ones, and their plans."""
