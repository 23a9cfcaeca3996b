"""Operators and indexing of small arrays, written as slots of a Python type.

Modules; each imports only modules to its right and below:

    slots                the type slots (in CPython's sense) of `NDArray`, in machine code
    python, elementwise  objects of CPython and NumPy as the slots use them; loops of the four arithmetic
                         operators
    layout               memory layouts of these objects and of the slots' state; imports nothing

The package imports `compiler` and `executor`. `tracejit.frontend.arrays.machine_code` installs the slots.
"""
