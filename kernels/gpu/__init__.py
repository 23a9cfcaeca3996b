"""GPU kernels: intrinsics (thread indices, barriers, shared memory), the compiler's target, and
handwritten kernels.
"""
