"""Many arrays in replay functions: they are checked by loops instead of text for each of them.

Python takes seconds to compile checks of a thousand arrays as text. So consecutive arrays with the same type
and view are checked by one call:

    v0 = v9[0]; v1 = v9[1]; ...
    s0, s1, ... = storages(K10, K11, v0, v1, ...)

The arrays of a list, tuple or dict are one step from the beginning (`ManyArrays`), and have no names:

    a0 = [*v9.values()]
    a1 = storages(K10, K11, *a0)

For a call of another signature, these lines raise one of the errors that are misses (`runtime.MISFITS`).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Container, Sequence
from typing import Any

from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.storage import Storage, interned
from tracejit.frontend.signature.expressions import Var
from tracejit.frontend.signature.program import ArrayCheck, Bind, ProgramStep
from tracejit.frontend.signature.runtime import release_all

MANY = 16
"""The smallest number of arrays that are checked by a loop."""


def are_alike(values: Sequence[Any], known: Container[Storage]) -> bool:
    """Whether the values are many arrays of one type and view, each of which covers a storage of its own that
    is not among `known`. If so, their pending eager operations are flushed.
    """
    if len(values) < MANY or type(values[0]) is not NDArray:
        return False
    kind, view = values[0]._storage.type, values[0]._view
    distinct: set[Storage] = set()
    for array in values:
        if type(array) is not NDArray:
            return False
        storage = array._storage
        if storage.type is not kind and storage.type != kind:
            return False
        if (array._view is not view and array._view != view) or storage in known:
            return False
        distinct.add(storage)
    if len(distinct) < len(values) or not view.is_identity(kind.shape):
        return False
    release_all(distinct)
    return True


# -- selection -----------------------------------------------------------------------------------------------


def arrays_from(steps: Sequence[ProgramStep], position: int) -> list[ArrayCheck]:
    """Return the consecutive checks of arrays from `position` on, each of which follows the binding of its
    array. They have the same type and view, and no array is read from another one of them.
    """
    checks: list[ArrayCheck] = []
    bound: set[Var] = set()
    for at in range(position, len(steps) - 1, 2):
        bind, check = steps[at], steps[at + 1]
        if not (isinstance(check, ArrayCheck) and isinstance(bind, Bind) and check.array is bind.var):
            break
        if checks and (interned(check.type) is not interned(checks[0].type) or check.view != checks[0].view):
            break
        if bind.value.root in bound:
            break
        bound |= {bind.var, check.storage}
        checks.append(check)
    return checks


# -- text ----------------------------------------------------------------------------------------------------


class Lists:
    """The lists of storages in a replay function. Their items have no variables: ``a1[7]``."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}
        self._positions: dict[str, tuple[str, int]] = {}  # by item: its list, and its index in it

    def add(self, name: str, length: int) -> list[str]:
        """Add a list. Return its items as Python."""
        items = [f"{name}[{i}]" for i in range(length)]
        self._lengths[name] = length
        self._positions.update(zip(items, [(name, i) for i in range(length)], strict=True))
        return items

    def display(self, names: Sequence[str]) -> tuple[str, Callable[[Any], Any] | None]:
        """Return a tuple or list as Python that contains these variables and items of lists, and a function
        that selects them from it. The function is None if that consists of exactly
        these, in order.

        >>> lists = Lists()
        >>> a1, a2 = lists.add("a1", 2), lists.add("a2", 2)
        >>> lists.display([*a1, *a2, "s3"])
        ('(*a1, *a2, s3)', None)
        >>> items, getter = lists.display([a1[1], a2[1]])
        >>> items, getter("abcd")
        ('(*a1, *a2)', ('b', 'd'))
        """
        positions = [self._positions.get(name) for name in names]
        starts: dict[str, int] = {}
        size = 0
        for position in positions:
            if position is not None and position[0] not in starts:
                starts[position[0]] = size
                size += self._lengths[position[0]]
        variables = [name for name, position in zip(names, positions, strict=True) if position is None]
        parts = [*(f"*{name}" for name in starts), *variables]
        items = f"({', '.join(parts)})" if len(parts) > 1 else next(iter(starts), f"({names[0]},)")
        after_lists = itertools.count(size)
        selected = [
            next(after_lists) if position is None else starts[position[0]] + position[1]
            for position in positions
        ]
        if selected == list(range(size + len(variables))):
            return items, None
        return items, operator.itemgetter(*selected)
