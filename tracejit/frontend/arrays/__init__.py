"""The array library that users see: operators, functions, indexing, trees, files, random numbers.

Modules; each imports only modules to its right and below:

    numpy_names, makers              NumPy's names; array creation with NumPy's signatures
    io                               files of trees of arrays
    ndarray                          `NDArray`: its operators and methods
    interop, random                  NumPy's protocols and DLPack; random numbers
    fft, linalg, flat, bits, ufunc_methods
                                     Fourier transforms; linear algebra; ``x.flat``; reinterpreted bits;
                                     `reduce`, `accumulate` and `at`
    surface, namespace, hints        the public functions by name, and as methods; the array API's
                                     namespace; names of other libraries in errors
    functions, public                the public functions by topic; the decorator that declares them
    assignment, indexing, padded_slices, selection
                                     ``x[index] = value``; ``x[index]``; in traced calls, slices whose
                                     length varies, and selections by a mask
    dispatch                         translation of calls to nodes: promote, broadcast, cast, emit
    immediate, in_memory, at_hand, direct, machine_code
                                     immediate execution of small operations in eager code: their results,
                                     views and operands, by kernels, and as type slots
    promotion, views                 NumPy 2's type promotion; functions that create views
    temporaries                      whether an operand of an in-place operator is a temporary result
    core                             the base class of arrays: a storage and a view
    devices, axes, dlpack, trees     normalised devices and axes; DLPack exchange of bfloat16; nested
                                     containers (pytrees)

The package knows the recorder (`recording`), but no gradients, transformations or traced functions. Targets,
code generation and kernels are imported in one module each (`devices`, `machine_code`).
"""
