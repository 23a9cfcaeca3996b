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

from collections.abc import Container, Sequence
from typing import Any

from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.storage import Storage, interned
from tracejit.frontend.signature.expressions import Var
from tracejit.frontend.signature.program import ArrayCheck, Bind, ProgramStep

MANY = 16
"""The smallest number of arrays that are checked by a loop."""


def are_alike(values: Sequence[Any], known: Container[Storage]) -> bool:
    """Whether the values are many arrays of one type and view, each of which covers a storage of its own that
    is not among `known`.
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
    return len(distinct) == len(values) and view.is_identity(kind.shape)


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
