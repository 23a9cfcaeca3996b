"""Integer functions without a kernel, which call NumPy (trait HOST).

gcd(x1, x2)                            the greatest common divisor, not negative
"""

from __future__ import annotations

import numpy as np

from tracejit.errors import ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.ops.batching import leading
from tracejit.ops.rules import (
    INTEGERS,
    check_array,
    check_count,
    check_dtype,
    check_one_dtype,
    describe_types,
)
from tracejit.ops.symbolic import Operator


def _infer(*types: ArrayType) -> ArrayType:
    check_count("gcd", types, 2)
    for x in types:
        check_array("gcd", x)
        check_dtype("gcd", x.dtype, INTEGERS)
    check_one_dtype("gcd", types)
    if types[0].shape != types[1].shape:
        raise ShapeError(f"gcd needs operands of one shape, got {describe_types(types)}")
    return types[0]


gcd = Operator(
    "gcd",
    _infer,
    np.gcd,
    traits=frozenset({Trait.HOST, Trait.EXACT}),
    doc="Greatest common divisor of integers, not negative.",
    admits=INTEGERS,
    batch=leading,
)
register(gcd)
