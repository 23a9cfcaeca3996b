"""Object code: compilation of sources, linking, and the kernel store."""
