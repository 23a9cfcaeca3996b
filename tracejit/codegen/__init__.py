"""Code generation for fused kernels: kernel structure, source text, machine code, and the object-code
store.
"""
