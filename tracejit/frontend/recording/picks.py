"""Elements selected by run-time numbers: copies where NumPy would return views.

    best = x.argmax()
    row = x[int(best)]        another row in each call: a gather, where NumPy returns a view
    for k in range(n):        an iteration counter (see `look_loops.counters`)
        if noise[k].sum() > limit: ...

A copy is equivalent to a view as long as neither is written while both are visible, and the body does not
return it together with the array. Where one of these happens, the body is recorded again, and asks for the
values of the numbers (`Assumptions.picks`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from tracejit.frontend.recording.storage import Storage


class Picks:
    """The copies of a trace.

    refuse: called when a copy could be observed.
    """

    def __init__(self, refuse: Callable[[], None]) -> None:
        self.refuse = refuse
        self._bases: weakref.WeakKeyDictionary[Storage, tuple[weakref.ref[Storage], ...]]
        self._bases = weakref.WeakKeyDictionary()
        self._has_copies = False  # iterating over an empty weak dictionary takes as long as a write

    def note(self, copy: Storage, base: Storage) -> None:
        """Note a copy of elements of `base`, which may be a copy itself."""
        self._has_copies = True
        self._bases[copy] = weakref.ref(base), *self._bases.get(base, ())

    def base_of(self, storage: Storage) -> Storage | None:
        """Return the first live storage among those whose elements this one copies."""
        return next((base for ref in self._bases.get(storage, ()) if (base := ref()) is not None), None)

    def is_copy(self, storage: Storage) -> bool:
        """Whether a storage is such a copy, and the array still exists."""
        return self._has_copies and self.base_of(storage) is not None

    def check_write(self, storage: Storage) -> None:
        """Refuse the copies if a write to this storage may reveal that they are not views."""
        if self._has_copies and any(
            storage is copy or any(storage is base() for base in bases) for copy, bases in self._bases.items()
        ):
            self.refuse()

    def check_end(self) -> None:
        """Refuse the copies whose array is still alive when the body has returned: the user may compare the
        two.
        """
        if any(base() is not None for bases in self._bases.values() for base in bases):
            self.refuse()
