"""Which tests are left to `make thorough`: further cases of what other tests show.

@pytest.mark.parametrize("seed", some(range(90), 30))     # `make test` runs 30 of them, evenly spread
@thorough                                                  # a test that `make test` leaves out
"""

from collections.abc import Iterable
from typing import Any

import pytest

thorough = pytest.mark.thorough


def some(cases: Iterable[Any], count: int, *, unpack: bool = False) -> list[Any]:
    """Mark all cases but `count`, which are evenly spread and include the first one, as thorough. `unpack`:
    each case is a tuple of several parameters.

    >>> [len(case.marks) for case in some("abcdef", 2)]
    [0, 1, 1, 0, 1, 1]
    """
    every = list(cases)
    kept = {i * len(every) // count for i in range(count)}
    return [
        pytest.param(*(case if unpack else (case,)), marks=() if i in kept else thorough)
        for i, case in enumerate(every)
    ]
