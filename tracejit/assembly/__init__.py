"""Assembly: construction of a schedule, which is a program of the engine, from a planned graph.

A planned task becomes a `Job`: the kernels to load, the words of its argument block (`words`), its units and
its description. Each kind of device has a module that builds jobs (`cpu_jobs`, `gpu_jobs`) from
`cpu_kernels`, `products`, `host_tasks` and `gpu_kernels`, with argument `blocks`. The jobs of a loop's body
become one job (`loops`), and consecutive jobs of one device become a segment (`device_graphs`). `failures`
turns the status of a failed task into an exception. `link` loads the kernels, lays out the argument blocks
and builds the program of a `schedule`. The tasks of equal subgraphs are `copies`.
"""
