"""NumPy's names with NumPy's defaults, for programs that are ported without changes.

``import tracejit.numpy as np`` in place of ``import numpy as np`` gives arrays of ours that are float64 and
int64 where NumPy's are, functions with NumPy's signatures (`out` included), ufuncs with `reduce`,
`accumulate`, `outer` and `at`, `mgrid`, `linalg`, `fft`, dtypes and constants. `tj.zeros` and the other
functions of `tj` keep float32. Random numbers come from `tj.random`, not from NumPy's generators. Names that
there are not raise AttributeError; see `tracejit.frontend.arrays.numpy_names` for what they are made of.

>>> import tracejit.numpy as np
>>> np.linspace(0, 1, 3), np.add.reduce([1, 2, 3]), np.float32
(NDArray([0. , 0.5, 1. ], dtype=float64), NDArray(6, dtype=int64), <class 'numpy.float32'>)
"""

from __future__ import annotations

import sys
from typing import Any

from tracejit.frontend.arrays import numpy_names


def __getattr__(name: str) -> Any:
    """Make the object of a name at its first use."""
    if name == "__all__":
        return numpy_names.names()
    try:
        globals()[name] = found = numpy_names.find(name)
    except AttributeError as error:  # Python adds what may be meant
        raise AttributeError(str(error), name=name, obj=sys.modules[__name__]) from None
    return found


def __dir__() -> list[str]:
    return numpy_names.names()
