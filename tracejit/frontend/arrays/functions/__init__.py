"""The public functions on arrays, grouped by what they do; `NAMESPACE` is all of them by name.

Functions are composed of few operators through `dispatch`; they use NDArray's methods but never import it, so
that NDArray can take its methods from here. Each is declared where it is written (`arrays.public`).
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
_OF_NUMPY = {
    name: f for name, f in sorted(vars(np).items()) if isinstance(f, np.ufunc) and name in np.__all__
}

NAMESPACE: dict[str, Any] = {d.name: d.value for m in MODULES for d in DECLARED[m.__name__].values()}
UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    ufunc: NAMESPACE[name] for name, ufunc in _OF_NUMPY.items() if name in NAMESPACE
}
"""The counterparts of NumPy's ufuncs: the functions of their names."""

for _name, _ufunc in _OF_NUMPY.items():  # a ufunc gives its function all of its names: `arctan2` is `atan2`
    if _ufunc in UFUNCS:
        NAMESPACE.setdefault(_name, UFUNCS[_ufunc])
