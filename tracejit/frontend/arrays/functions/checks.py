"""Conditions on values: of data from outside they are checked at once, of arrays when these are computed.

So nothing is looked at, and what is wrong in a replay is found like in undecorated code.

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
from tracejit.frontend.arrays.functions.creation import holds_recorded
from tracejit.frontend.recording.location import user_location


def on_host(x: Any) -> np.ndarray | None:
    """Numbers, lists and NumPy arrays as a NumPy array; None for what is computed, which is not looked at."""
    is_plain = isinstance(x, bool | int | float | complex | list | tuple | np.ndarray | np.generic)
    return np.asarray(x) if is_plain and not holds_recorded(x) else None


def require(holds: Any, what: str) -> None:
    """Raise ArgumentError unless `holds`."""
    if not holds:
        raise locate(ArgumentError(what), user_location())


def checked(index: Any, holds: Any, extent: int, what: str) -> Any:
    """`index`, of 0 to extent - 1; where `holds` does not, computing it is an OutOfBoundsError: `what`."""
    outside = dispatch.apply(ops.where, holds, index, extent)
    return dispatch.emit(ops.check_index, outside, extent=extent, axis=0, what=what)
