"""The memory plan: the place of every value, the buffers that share memory, the dependencies of tasks."""
