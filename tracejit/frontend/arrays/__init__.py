"""Arrays as people use them: operators, functions, indexing, trees, files, random numbers."""
