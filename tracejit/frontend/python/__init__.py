"""Analysis of Python code and values that a traced body can access, independent of arrays and recordings.

Modules; each imports only modules to its right and below:

    content         contents of containers and attributes of objects, accessed without the methods of their
                    classes
    purity          functions of the standard library, NumPy and other packages that are known to be pure
    code_positions  the operation of a single instruction, its operands, and the use of its result
    stack           the evaluation stack at each instruction
    liveness        local variables that the rest of a function may read
    code_loops      loops in a code object, and variables that statements compute from their old values
    bytecode        names that a code object mentions, read or assigned
    kinds           kinds of values, and the owners of code
    objects         objects in memory as machine code accesses them
    identity        objects as parts of keys that are compared by identity
    interned        keys of which equal ones are one object (hash-consing)

Only this package knows instructions of Python's bytecode.

The package imports `kernels`. Of `kernels` it imports layouts of memory only.
"""
