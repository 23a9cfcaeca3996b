"""Assembly: from a planned graph to a schedule, a program of the engine.

A planned task becomes a `Job`: the kernels to load, the words of its argument block (`words`), its units and
its description. Each kind of device has a module that makes jobs (`jobs`, `gpu_jobs`); those of a loop's body
become one (`loops`). `failures` says what went wrong in one. `launch` links the jobs' kernels, lays out their
blocks and arms the program of a `Schedule`.
"""
