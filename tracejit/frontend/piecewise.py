"""Running a traced function's body itself, where its call cannot be replayed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.frontend import trees
from tracejit.frontend.arguments import Arguments, parts_of
from tracejit.frontend.ndarray import NDArray
from tracejit.frontend.replay import Source
from tracejit.frontend.results import Results
from tracejit.frontend.trace import Trace


def run_piecewise(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the body itself; NumPy arrays among the arguments become NDArrays, as when it is recorded."""
    if not any(isinstance(leaf, np.ndarray) for leaf in trees.leaves((args, kwargs))):
        return function(*args, **kwargs)
    arguments = _Converted(Trace("", strict=False), Source(), set(), set())
    try:
        result = function(
            *(arguments.bring(a, "", "") for a in args),
            **{k: arguments.bring(v, "", "") for k, v in kwargs.items()},
        )
    finally:
        Results(arguments).settle_containers()
    return Results(arguments).settle(result)


class _Converted(Arguments):
    """Arguments as they are, but for NumPy arrays."""

    def bring(self, value: Any, expression: str, path: str) -> Any:
        found = parts_of(value)
        if isinstance(value, np.ndarray):
            return NDArray.from_numpy(value)
        if found is None or not any(isinstance(leaf, np.ndarray) for leaf in trees.leaves(value)):
            return value
        return self._container(value, found, expression, path)
