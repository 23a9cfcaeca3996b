"""From a fused group to a kernel: structure, source, machine code, and the store that keeps it."""
