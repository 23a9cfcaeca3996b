"""Cases that are run twice, with functions as they are and traced, and must give the same both times."""

from collections.abc import Callable
from typing import Any

import numpy as np

import tracejit as tj
from tracejit.frontend.arrays.ndarray import NDArray


class Cases(dict[str, Callable[[Any], Any]]):
    """By name: functions that get `tj.jit`, or what leaves a function as it is, and give what is compared."""

    def add(self, case: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Decorate a case."""
        self[case.__name__] = case
        return case

    def check(self, name: str) -> None:
        """Run a case both ways."""
        expected = seen(self[name](lambda function: function))
        assert seen(self[name](tj.jit)) == expected


def seen(value: Any) -> Any:
    """What is compared: types of numbers count, arrays are their numbers."""
    if isinstance(value, NDArray | np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return [(seen(k), seen(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [seen(v) for v in value]
    return type(value).__name__, repr(value)


def one() -> NDArray:
    """An array to begin with."""
    return tj.asarray([1.0])


class Thing:
    """Holds what it is given."""

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)
