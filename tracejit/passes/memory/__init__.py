"""Memory planning: the location of every value, buffers that share memory, and dependencies of tasks."""
