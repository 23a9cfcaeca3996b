"""Conditions on values: external data are checked immediately, arrays when they are computed.

Therefore a check needs no look, and a replay detects invalid values like undecorated code.

>>> import tracejit as tj
>>> on_host([1, 2]), on_host([tj.ones(())])
(array([1, 2]), None)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.functions.creation import contains_recorded
from tracejit.frontend.recording.location import user_location


def on_host(x: Any) -> np.ndarray | None:
    """Return numbers, lists and NumPy arrays as a NumPy array; None for data that contain NDArrays."""
    is_external = isinstance(x, bool | int | float | complex | list | tuple | np.ndarray | np.generic)
    return np.asarray(x) if is_external and not contains_recorded(x) else None


def require(condition: Any, what: str) -> None:
    """Raise ArgumentError with the message `what` unless `condition` is true."""
    if not condition:
        raise locate(ArgumentError(what), user_location())


def checked(index: Any, condition: Any, extent: int, what: str) -> Any:
    """Return `index`, from 0 to extent - 1, with a check of `condition`.

    If an element of `condition` is false, computing the index raises OutOfBoundsError with the message
    `what`.
    """
    checked_index = dispatch.apply(ops.where, condition, index, extent)
    return dispatch.emit(ops.check_index, checked_index, extent=extent, axis=0, what=what)
