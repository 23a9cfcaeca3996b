"""``max(x, y)`` and ``min(x, y)`` of array elements in a traced body, without a look.

    table[i, j] = max(table[i, j], table[i, j - 1] + 1)        where(b > a, b, a), stored in the table

Python compares the operands and returns one of them, so the body would look at the comparison. The graph can
select the same value, but not the same *object*: an element is a view, through which later writes to the
array are visible. So the graph selects the result only if the same expression consumes it: by arithmetic, a
comparison, another such choice, or by storing it in an element of an array. Elements that are numbers in
NumPy, which are immutable, are always selected. Otherwise the body looks.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.frontend.arrays.functions.elementwise import greater, less, where
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.code_positions import CALL, ITEM, use_of_result
from tracejit.frontend.recording.look_loops.frames import callee_at, loaded_value
from tracejit.frontend.recording.recording import thread

COMPARISONS: dict[Any, Callable[..., Any]] = {max: greater, min: less}
"""The comparison by which Python replaces the chosen operand with the next one."""


def choose(function: Callable[..., Any], operands: Sequence[Any], frame: types.FrameType) -> Any:
    """Return ``function(*operands)``, `max` or `min`, as a selection by the graph; None if it has to be a
    look.

    frame: the user's frame that calls the function.
    """
    kind = _kind_of(operands)
    if kind is None:
        return None
    numbers = thread.trace.numpy_numbers
    if all(isinstance(operand, NDArray) and operand._storage in numbers for operand in operands):
        return _selected(function, operands)
    use = use_of_result(frame.f_code, frame.f_lasti)
    while use.kind == CALL:  # an operand of another choice?
        if not _is_choice(callee_at(frame, use.offset)):
            return None
        use = use_of_result(frame.f_code, use.offset)
    if use.kind == ITEM:
        container = loaded_value(frame, use.container)
        if not isinstance(container, NDArray) or container.dtype != kind:
            return None
    elif use.kind is None or not all(isinstance(operand, NDArray) for operand in operands):
        return None  # a Python number promotes differently from an array
    return _selected(function, operands)


def _selected(function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Return the operand that `function` chooses."""
    chosen = operands[0]
    for operand in operands[1:]:
        chosen = where(COMPARISONS[function](operand, chosen), operand, chosen)
    return chosen


def _kind_of(operands: Sequence[Any]) -> np.dtype | None:
    """Return the dtype of elements of one dtype, maybe with Python numbers that it can represent; else
    None.
    """
    arrays = [operand for operand in operands if isinstance(operand, NDArray)]
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) != 1 or any(array.shape != () for array in arrays):
        return None
    (dtype,) = dtypes
    if dtype.kind not in "biuf" or len({array.device for array in arrays}) > 1:
        return None
    numbers = [operand for operand in operands if not isinstance(operand, NDArray)]
    if dtype.kind == "f":
        fits = all(type(n) in (int, float) and abs(n) <= 2048 and float(n).is_integer() for n in numbers)
    else:
        info = np.iinfo(dtype) if dtype.kind in "iu" else None
        fits = all(info is not None and type(n) is int and info.min <= n <= info.max for n in numbers)
    return dtype if fits else None


def _is_choice(function: Any) -> bool:
    """Whether a function is `max` or `min` of a traced body."""
    return isinstance(function, functools.partial) and function.args[:1] in ((max,), (min,))
