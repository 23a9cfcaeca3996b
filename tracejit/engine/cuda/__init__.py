"""GPUs: the function table of the driver, devices with memory and streams, modules and graphs of kernels."""
