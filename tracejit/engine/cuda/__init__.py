"""GPUs: the table of the driver's functions, devices with their memory and streams, modules of kernels."""
