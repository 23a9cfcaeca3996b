"""NumPy's names with NumPy's defaults, for programs that are ported without changes.

``import tracejit.numpy as np`` instead of ``import numpy as np`` provides arrays of this package with NumPy's
default dtypes float64 and int64, functions with NumPy's signatures (`out` included), ufuncs with `reduce`,
`accumulate`, `outer` and `at`, `mgrid`, `linalg`, `fft`, dtypes and constants. `tj.zeros` and the other
functions of `tj` default to float32. Random numbers come from `tj.random`, not from NumPy's generators.
Missing names raise AttributeError; `tracejit.frontend.arrays.numpy_names` defines the available names.

>>> import tracejit.numpy as np
>>> np.linspace(0, 1, 3), np.add.reduce([1, 2, 3]), np.float32
(NDArray([0. , 0.5, 1. ], dtype=float64), NDArray(6, dtype=int64), <class 'numpy.float32'>)
"""

from __future__ import annotations

import sys
from typing import Any

from tracejit.frontend.arrays import numpy_names


def __getattr__(name: str) -> Any:
    """Create the object for a name at its first use."""
    if name == "__all__":
        return numpy_names.names()
    try:
        globals()[name] = value = numpy_names.find(name)
    except AttributeError as error:  # Python adds suggestions
        raise AttributeError(str(error), name=name, obj=sys.modules[__name__]) from None
    return value


def __dir__() -> list[str]:
    return numpy_names.names()
