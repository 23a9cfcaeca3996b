"""The C library's functions of float64: elementwise operators with the bits of Python's `math` and ``**``.

Python calls the C library for `math.exp(x)` and ``x ** y``, and native loops that compute Python's numbers
have to compute the same ones (`frontend.jit.state_loops.native_numbers`). NumPy's functions of arrays are in
`transcendental`; their kernels are vectorised, and differ in the last bits.

Operators are called ``c_exp``, ``c_pow``. They have no gradient and no kernels for GPUs. Where Python's
function raises, the result is not finite.
"""

from __future__ import annotations

import numpy as np

from tracejit.ir.op import Trait, register
from tracejit.kernels.c_functions import BINARY, UNARY, of_python
from tracejit.ops.rules import elementwise_rule
from tracejit.ops.symbolic import Operator

FLOAT64 = frozenset({np.dtype("float64")})


def _declare(name: str, arity: int) -> Operator:
    op = Operator(
        f"c_{name}",
        elementwise_rule(f"c_{name}", arity, FLOAT64),
        np.vectorize(of_python(name), otypes=[np.float64]),
        None,
        f"c_{name}",
        frozenset({Trait.ELEMENTWISE, Trait.EXACT, Trait.EXPENSIVE}),
        f"The C library's {name} of float64.",
        admits=FLOAT64,
    )
    register(op)
    return op


C_FUNCTIONS = {
    name: _declare(name, arity) for arity, names in ((1, UNARY), (2, BINARY)) for name in sorted(names)
}
"""The operators by the name of the function."""
