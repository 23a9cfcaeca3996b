"""Matrix products: BLAS and its calls, plans, register tiles, packing, the kernel."""
