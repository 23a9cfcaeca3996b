"""Python code and values, as far as a traced body can reach them; nothing here knows of arrays or recordings.

bytecode    names that a code object mentions, read or assigned
content     contents of containers and attributes of objects, past the methods of their classes
kinds       kinds of values, and whose code it is that does something
purity      functions of Python's library, NumPy and others that are known to be pure
"""
