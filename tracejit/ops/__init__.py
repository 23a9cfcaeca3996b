"""The declarations of all operators, one each: ``from tracejit.ops import add`` imports the `Op` named add.

Importing this package registers all operators in `tracejit.ir.op.OPS`, the only list of operators.
"""

from tracejit.ir.op import OPS
from tracejit.ops import (
    arithmetic,
    attend,
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
    *(arithmetic, attend, communicate, complex_numbers, convolution, creation, factorizations, fourier),
    *(
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
