"""Tuning of CUDA GPUs: the values of the CPU, whose units `tracejit.codegen.gpu.launch` distributes to
blocks of threads. Values for GPUs require measurements on a GPU.
"""

from tracejit.tuning import cpu

TUNING = cpu.TUNING._replace(kind="gpu", sweeps=False, panels=False, several_axes=False, passes=frozenset())
