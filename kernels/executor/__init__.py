"""The native executor: queues, threads and records of the engine, compiled like kernels."""
