"""Arrays by the dozen in replay functions: what is the same for each of them is a loop, not text.

Text about each of some thousand arrays takes seconds to compile. So arrays that follow one another and have
one type and view are checked by one call:

    v0 = v9[0]; v1 = v9[1]; ...
    s0, s1, ... = storages(K10, K11, v0, v1, ...)

Those that a list, a tuple or a dict holds are one step to begin with (`ManyArrays`), and have no names:

    a0 = [*v9.values()]
    a1 = storages(K10, K11, *a0)

A call that is not of the signature raises one of the errors that are misses.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Container, Sequence
from typing import Any

from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.storage import Storage, interned
from tracejit.frontend.signature.expressions import Var
from tracejit.frontend.signature.program import ArrayCheck, Bind, Step
from tracejit.frontend.signature.runtime import release_all

MANY = 16
"""The least number of arrays that are checked by a loop."""


def are_alike(values: Sequence[Any], known: Container[Storage]) -> bool:
    """Whether these are many arrays of one type and view, each all of a storage of its own, none of which is
    `known`. Nothing is pending for them afterwards.
    """
    if len(values) < MANY or type(values[0]) is not NDArray:
        return False
    kind, view = values[0]._storage.type, values[0]._view
    found: set[Storage] = set()
    for array in values:
        if type(array) is not NDArray:
            return False
        storage = array._storage
        if storage.type is not kind and storage.type != kind:
            return False
        if (array._view is not view and array._view != view) or storage in known:
            return False
        found.add(storage)
    if len(found) < len(values) or not view.is_whole(kind.shape):
        return False
    release_all(found)
    return True


# -- finding them --------------------------------------------------------------------------------------------


def arrays_from(steps: Sequence[Step], position: int) -> list[ArrayCheck]:
    """The checks of arrays that follow one another from `position` on, each after the step that finds it: of
    one type and view, and none is found through another one of them.
    """
    found: list[ArrayCheck] = []
    made: set[Var] = set()
    for at in range(position, len(steps) - 1, 2):
        bind, check = steps[at], steps[at + 1]
        if not (isinstance(check, ArrayCheck) and isinstance(bind, Bind) and check.array is bind.var):
            break
        if found and (interned(check.type) is not interned(found[0].type) or check.view != found[0].view):
            break
        if bind.value.root in made:
            break
        made |= {bind.var, check.storage}
        found.append(check)
    return found


# -- writing them --------------------------------------------------------------------------------------------


class Lists:
    """The lists of storages in a replay function. Their items have no names of their own: ``a1[7]``."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}
        self._places: dict[str, tuple[str, int]] = {}  # of items: the list, and where they are in it

    def add(self, name: str, length: int) -> list[str]:
        """Add a list; gives its items."""
        items = [f"{name}[{i}]" for i in range(length)]
        self._lengths[name] = length
        self._places.update(zip(items, [(name, i) for i in range(length)], strict=True))
        return items

    def display(self, names: Sequence[str]) -> tuple[str, Callable[[Any], Any] | None]:
        """A tuple or list of variables, some of them items of lists; what picks these from it, if it has
        others, too, or another order.

        >>> lists = Lists()
        >>> a1, a2 = lists.add("a1", 2), lists.add("a2", 2)
        >>> lists.display([*a1, *a2, "s3"])
        ('(*a1, *a2, s3)', None)
        >>> whole, pick = lists.display([a1[1], a2[1]])
        >>> whole, pick("abcd")
        ('(*a1, *a2)', ('b', 'd'))
        """
        places = [self._places.get(name) for name in names]
        starts: dict[str, int] = {}
        size = 0
        for place in places:
            if place is not None and place[0] not in starts:
                starts[place[0]] = size
                size += self._lengths[place[0]]
        others = [name for name, place in zip(names, places, strict=True) if place is None]
        parts = [*(f"*{name}" for name in starts), *others]
        whole = f"({', '.join(parts)})" if len(parts) > 1 else next(iter(starts), f"({names[0]},)")
        rest = itertools.count(size)
        picked = [next(rest) if place is None else starts[place[0]] + place[1] for place in places]
        if picked == list(range(size + len(others))):
            return whole, None
        return whole, operator.itemgetter(*picked)
