"""Analysis of Python code and values that a traced body can access, independent of arrays and recordings.

Modules; each imports only modules to its right and below:

    content   contents of containers and attributes of objects, accessed without the methods of their
              classes
    purity    functions of the standard library, NumPy and other packages that are known to be pure
    bytecode  names that a code object mentions, read or assigned
    kinds     kinds of values, and the owners of code
    objects   objects in memory as machine code accesses them
    identity  objects as parts of keys that are compared by identity
    interned  keys of which equal ones are one object (hash-consing)

The package imports no other package of the frontend, and of tracejit only layouts of kernels.
"""
