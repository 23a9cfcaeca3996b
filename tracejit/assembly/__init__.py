"""Assembly: from a planned graph to a schedule, a program of the engine.

A planned task becomes a `Job`: the kernels to load, the words of its argument block (`words`), its units
and its description. Each kind of device has a module that makes jobs (`cpu_jobs`, `gpu_jobs`), of
`cpu_kernels`, `products`, `host_tasks` and `gpu_kernels`, with argument `blocks`. Jobs of a loop's body
become one (`loops`), and those of one device that follow one another become a segment (`device_graphs`).
`failures` says what went wrong in one. `link` loads the kernels, lays out argument blocks and arms the
program of a `schedule`; equal parts get `copies`.
"""
