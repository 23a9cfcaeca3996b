"""Elements picked by run-time numbers: copies of what NumPy gives as views.

    best = x.argmax()
    row = x[int(best)]        another row in each call: a gather, where NumPy has a view
    for k in range(n):        counts rounds (see `loops.counters`)
        if noise[k].sum() > limit: ...

A copy equals a view as long as neither is written while both can be seen, and the body does not return it
beside the array. Where that happens, the body is recorded again, and asks for the numbers' values
(`Assumptions.picks`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from tracejit.frontend.recording.storage import Storage


class Picks:
    """The copies of a trace.

    refuse: called where a copy would show.
    """

    def __init__(self, refuse: Callable[[], None]) -> None:
        self.refuse = refuse
        self._bases: weakref.WeakKeyDictionary[Storage, tuple[weakref.ref[Storage], ...]]
        self._bases = weakref.WeakKeyDictionary()
        self._are_there = False  # to walk through the empty dictionary takes as long as a write

    def note(self, copy: Storage, base: Storage) -> None:
        """Note a copy of elements of `base`, which may be a copy itself."""
        self._are_there = True
        self._bases[copy] = weakref.ref(base), *self._bases.get(base, ())

    def base_of(self, storage: Storage) -> Storage | None:
        """The first storage that is alive of those whose elements this one copies."""
        return next((base for known in self._bases.get(storage, ()) if (base := known()) is not None), None)

    def check_write(self, storage: Storage) -> None:
        """Refuse the copies if a write to this storage may show that they are no views."""
        if self._are_there and any(
            storage is copy or any(storage is base() for base in bases) for copy, bases in self._bases.items()
        ):
            self.refuse()

    def check_end(self) -> None:
        """Refuse the copies whose array is still alive when the body has run: the two may be compared."""
        if any(base() is not None for bases in self._bases.values() for base in bases):
            self.refuse()
