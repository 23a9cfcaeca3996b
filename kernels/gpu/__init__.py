"""Words of kernels for GPUs (which thread this is, barriers, shared memory), and the compiler's target."""
