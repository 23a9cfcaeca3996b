"""CPU kernels: the loops that surround the steps, one module per orientation."""
