"""The public functions on arrays, grouped by topic; `NAMESPACE` contains all of them by name.

Functions are composed of a few operators through `dispatch`. They call methods of NDArray but never import
it, because NDArray obtains methods from here. Each function is declared at its definition (`arrays.public`).
Modules; each imports (at the top level) only modules to its right and below:

    padding, quantiles, statistics, histograms
                                    padding; medians and quantiles; averages and covariances; counting
    applying, missing, polynomials  functions along axes, choices and bits; reductions that ignore nan;
                                    polynomials
    calculus, convolution           differences, gradients, integrals, interpolation; convolution of
                                    sequences
    placing, pointwise              reading and writing elements by position; compositions of elementwise
                                    functions
    joining, grids, indexers        joining and splitting; grids of positions; ``mgrid`` and ``r_``
    contraction, linear             einsum; products of vectors, matrices and tensors
    sorting, scans                  sorting, searching, sets; cumulative sums and products
    movement, ranges                concatenation, rolling, gathering; ranges, diagonals, triangles
    elementwise                     one function for each elementwise operator
    reductions, checks, windows, attributes
                                    reductions; conditions on values; spectral windows; attributes of arrays
    manipulation, creation, dtypes  views with another shape; creation; dtypes and constants

The package imports `assignment`, `axes`, `core`, `devices`, `dispatch`, `immediate`, `indexing`, `ir`,
`ops`, `promotion`, `public`, `recording`, `selection` and `views`. Of `arrays` these are the modules below
it.
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
_NUMPY_NAMES = frozenset(np.__all__)
_NUMPY_UFUNCS = {
    name: f for name, f in sorted(vars(np).items()) if isinstance(f, np.ufunc) and name in _NUMPY_NAMES
}

NAMESPACE: dict[str, Any] = {d.name: d.value for m in MODULES for d in DECLARED[m.__name__].values()}
UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    ufunc: NAMESPACE[name] for name, ufunc in _NUMPY_UFUNCS.items() if name in NAMESPACE
}
"""The counterparts of NumPy's ufuncs: the functions with the same names."""

for _name, _ufunc in _NUMPY_UFUNCS.items():  # aliases of ufuncs: `arctan2` is `atan2`
    if _ufunc in UFUNCS:
        NAMESPACE.setdefault(_name, UFUNCS[_ufunc])
