"""Analysis of Python code and values that a traced body can access, independent of arrays and recordings.

bytecode    names that a code object mentions, read or assigned
content     contents of containers and attributes of objects, accessed without the methods of their classes
kinds       kinds of values, and the owners of code
objects     objects in memory as machine code accesses them
purity      functions of the standard library, NumPy and other packages that are known to be pure
"""
