"""The array library that users see: operators, functions, indexing, trees, files, random numbers.

core, ndarray                       `NDArray`: storage and view; its operators and methods
dispatch, promotion, axes, devices  translation of calls to nodes: dtypes, shapes, devices, errors
indexing, selection, assignment     ``x[index]``, including masks, and ``x[index] = value``
immediate, at_hand, direct, machine_code, in_memory
                                    immediate execution of small operations in eager code
public, surface, namespace, hints   declarations of public functions, and the namespaces built from them
functions, random, linalg, fft, io  the functions, by topic
interop, dlpack, ufunc_methods, makers, numpy_names
                                    NumPy's protocols and names, and exchange with other libraries
trees                               nested containers of arrays (pytrees)
"""
