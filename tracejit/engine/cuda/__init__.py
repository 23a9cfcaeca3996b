"""GPUs: the function table of the driver, devices with memory and streams, modules and graphs of kernels.

Modules; each imports only modules to its right and below:

    graphs  a segment of a schedule as a single launch of the driver
    device  a GPU as a device of the engine: a lane, a stream, a thread that completes tasks
    memory  memory of GPUs, in size classes
    driver  the driver as a table of function addresses

The package imports `kernels`, `memory`, `native` and `threads`. It calls the driver only, no CUDA library.
"""
