"""The C library's functions of float64, as Python calls them (see `tracejit.kernels.c_functions`)."""

import numpy as np

from tracejit.kernels.c_functions import BINARY, UNARY, of_python, symbol
from tracejit.kernels.compiler.typed_values import typed_intrinsic
from tracejit.kernels.scalar.declare import scalar


def _declare(name, parameters):
    python = of_python(name)

    @typed_intrinsic(lambda *operands: np.float64(python(*operands)))
    def call(x, *others):
        if x.on_gpu or x.dtype != "float64":
            raise TypeError(f"the C library's {name} computes float64 on the CPU")
        return x.external(symbol(name), *others)

    # `compiled` asks for the number of parameters.
    function = (lambda x: call(x)) if parameters == 1 else (lambda x, y: call(x, y))
    function.__name__ = function.__qualname__ = f"c_{name}"
    function.__doc__ = f"The C library's {name}."
    scalar()(function)


for _name in sorted(UNARY):
    _declare(_name, 1)
for _name in sorted(BINARY):
    _declare(_name, 2)
