"""Object code: compilation of kernel sources, linking, and the kernel store."""
