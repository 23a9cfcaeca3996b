"""The public functions on arrays, grouped by what they do; `NAMESPACE` is all of them by name.

Functions are composed of few operators through `dispatch`; they use NDArray's methods but never import it, so
that NDArray can take its methods from here.
"""

from __future__ import annotations

from typing import Any

from tracejit.frontend.arrays.functions import (
    aliases,
    applying,
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

MODULES = (
    *(aliases, applying, calculus, contraction, convolution, creation, dtypes, elementwise),
    *(grids, histograms, indexers, joining, linear, manipulation, missing, movement),
    *(padding, placing, pointwise, polynomials, quantiles, ranges, reductions, scans),
    *(sorting, statistics, windows),
)

NAMESPACE: dict[str, Any] = {name: getattr(module, name) for module in MODULES for name in module.__all__}
NAMESPACE["bool"] = dtypes.bool_
