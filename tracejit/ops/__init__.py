"""The declarations of all operators, one each: ``from tracejit.ops import add`` imports the `Op` named add.

Importing this package registers all operators in `tracejit.ir.op.OPS`, the only list of operators. Modules;
each imports only modules to its right and below:

    attend                            attention operators
    factorizations, fourier, sorting  operators on the host: LAPACK, Fourier transforms, sorting
    reduce                            reductions, index reductions, scans
    transcendental                    elementwise operators that are not exactly rounded
    c_library                         functions of the C library, for Python's numbers in native loops
    winograd, pooling, convolution    convolution and pooling, and their gradients
    movement                          views, updates, gathers, scatters, copies between devices
    arithmetic, integers, complex_numbers
                                      other elementwise operators
    linalg                            `matmul`
    select, creation, random          `where`, `astype` and `copy`; constants and ranges; random bits
    communicate, loops, structural    exchanges between ranks; `loop` and `case`; `fused` and `callback`
    batching, rules, symbolic         helpers: batching rules; checks and factories of declarations; values
                                      in gradient rules

The package imports `ir` and `kernels`. Of `kernels` it imports plans only. A declaration has a typing rule,
NumPy's meaning, a gradient, a batching rule, a scalar kernel and traits. It knows no passes and no code
generation.
"""

from tracejit.ir.op import OPS
from tracejit.ops import (
    arithmetic,
    attend,
    c_library,
    communicate,
    complex_numbers,
    convolution,
    creation,
    factorizations,
    fourier,
    integers,
    linalg,
    loops,
    movement,
    pooling,
    random,
    reduce,
    select,
    sorting,
    structural,
    transcendental,
    winograd,
)
from tracejit.ops.symbolic import Operator

MODULES = (
    *(arithmetic, attend, c_library, communicate, complex_numbers, convolution, creation, factorizations),
    *(
        fourier,
        integers,
        linalg,
        loops,
        movement,
        pooling,
        random,
        reduce,
        select,
        sorting,
        structural,
        transcendental,
        winograd,
    ),
)


def __getattr__(name: str) -> Operator:
    """Look up the operator called `name` and cache it as an attribute of the module."""
    op = OPS.get(name)
    if not isinstance(op, Operator):
        raise AttributeError(f"module 'tracejit.ops' has no operator {name!r}")
    globals()[name] = op
    return op
