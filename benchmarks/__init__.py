"""Comparison with JAX, torch.compile, NumPy, numexpr and hand-written Numba: ``python -m benchmarks
--help``."""
