"""From source to addresses: compilation, linking, and the kernel store."""
