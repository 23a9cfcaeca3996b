"""Arrays as people use them: operators, functions, indexing, trees, files, random numbers.

core, ndarray                       `NDArray`: storage and view; its operators and methods
dispatch, promotion, axes, devices  from a call to a node: dtypes, shapes, devices, errors
indexing, selection, assignment     ``x[index]``, by masks too, and ``x[index] = value``
immediate, at_hand, direct, machine_code, in_memory
                                    small operations that are computed at once, undecorated
public, surface, namespace, hints   declarations of public functions, and what is made of them
functions, random, linalg, fft, io  the functions, by topic
interop, dlpack, ufunc_methods, makers, numpy_names
                                    NumPy's protocols and names, and those of other libraries
trees                               nested containers with arrays in them
"""
