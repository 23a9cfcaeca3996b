"""Numbers for CUDA GPUs: those of the CPU, whose units `tracejit.codegen.gpu.launch` shares out to blocks of
threads. Numbers of their own need measurements on a GPU.
"""

from tracejit.tuning import cpu

TUNING = cpu.TUNING._replace(kind="gpu", sweeps=False, panels=False, several_axes=False, passes=frozenset())
