"""Assembly: construction of a schedule, which is a program of the engine, from a planned graph.

A planned task becomes a `Job`: the kernels to load, the words of its argument block, its units and its
description. Jobs are linked into a program. Modules; each imports only modules to its right and below:

    link                             loads the kernels, lays out the argument blocks and builds the program
    cpu_jobs, gpu_jobs               planned tasks to jobs, one module for each kind of device
    failures                         the status of a failed task as an exception
    gpu_kernels, products            kernels loaded on GPUs; jobs of matrix products with their epilogues
    copies                           the tasks of equal subgraphs
    device_graphs                    consecutive jobs of one device as a segment
    loops                            the jobs of a loop's body as one job
    serial                           the job of a loop over single elements
    schedule                         `Schedule`, the compiled graph, which owns the program
    cpu_kernels, blocks, host_tasks  recipes of CPU kernels; argument blocks; tasks in Python
    words                            the content of argument blocks before addresses are known

This is the only layer that knows both plans (`passes`, `loopnest`, `codegen`) and the engine. It imports
neither `targets` nor the frontend.
"""
