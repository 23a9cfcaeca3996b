"""The public functions on arrays, grouped by topic; `NAMESPACE` contains all of them by name.

Functions are composed of a few operators through `dispatch`. They call methods of NDArray but never import
it, because NDArray obtains methods from here. Each function is declared at its definition (`arrays.public`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.frontend.arrays.functions import (
    applying,
    attributes,
    calculus,
    contraction,
    convolution,
    creation,
    dtypes,
    elementwise,
    grids,
    histograms,
    indexers,
    joining,
    linear,
    manipulation,
    missing,
    movement,
    padding,
    placing,
    pointwise,
    polynomials,
    quantiles,
    ranges,
    reductions,
    scans,
    sorting,
    statistics,
    windows,
)
from tracejit.frontend.arrays.public import DECLARED

MODULES = (
    *(applying, attributes, calculus, contraction, convolution, creation, dtypes, elementwise),
    *(grids, histograms, indexers, joining, linear, manipulation, missing, movement),
    *(padding, placing, pointwise, polynomials, quantiles, ranges, reductions, scans),
    *(sorting, statistics, windows),
)
_NUMPY_UFUNCS = {
    name: f for name, f in sorted(vars(np).items()) if isinstance(f, np.ufunc) and name in np.__all__
}

NAMESPACE: dict[str, Any] = {d.name: d.value for m in MODULES for d in DECLARED[m.__name__].values()}
UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    ufunc: NAMESPACE[name] for name, ufunc in _NUMPY_UFUNCS.items() if name in NAMESPACE
}
"""The counterparts of NumPy's ufuncs: the functions with the same names."""

for _name, _ufunc in _NUMPY_UFUNCS.items():  # aliases of ufuncs: `arctan2` is `atan2`
    if _ufunc in UFUNCS:
        NAMESPACE.setdefault(_name, UFUNCS[_ufunc])
