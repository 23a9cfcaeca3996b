"""Interned keys (hash-consing): equal keys are one object, so deep ones are compared in constant time."""

from __future__ import annotations

import weakref
from collections.abc import Hashable


class Interned:
    """A key that exists once. Keys are compared by identity, and may contain others."""

    __slots__ = ("__weakref__", "key")

    def __init__(self, key: Hashable) -> None:
        self.key = key

    def __repr__(self) -> str:
        return f"Interned{self.key!r}"


_known: weakref.WeakValueDictionary[Hashable, Interned] = weakref.WeakValueDictionary()


def interned(*key: Hashable) -> Interned:
    """Return the key of these parts. It is the same object as long as one of its users is alive.

    >>> one = interned("sum", interned("x"), 2)
    >>> one is interned("sum", interned("x"), 2), one is interned("sum", interned("y"), 2)
    (True, False)
    """
    known = _known.get(key)
    return known if known is not None else _known.setdefault(key, Interned(key))
