"""Arrays by the dozen in replay functions: what is the same for each of them is a loop, not text.

Text about each of some thousand arrays takes seconds to compile. So arrays that follow one another and have
one type and view are checked by one call:

    v0 = v9[0]; v1 = v9[1]; ...
    s0, s1, ... = storages(K10, K11, v0, v1, ...)

A call that is not of the signature raises one of the errors that are misses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.storage import Storage, interned
from tracejit.frontend.signature.program import ArrayCheck, Bind, Check, Form, Step, Var
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View

MANY = 16
"""From so many on, a loop."""


# -- what replays call ---------------------------------------------------------------------------------------


def release(storage: Storage) -> None:
    """Flush the eager recording that has touched `storage`."""
    holder = storage.recording
    if holder is not None:
        holder.release(storage)


def is_block(storage: Storage, type: ArrayType) -> bool:
    """Whether `storage` is a block of the same size, dtype and device; if so, `type` describes it now.

    Views count elements of the block, so its own shape means nothing to them.
    """
    own = storage.type
    if own.dtype != type.dtype or own.size != type.size or own.device != type.device:
        return False
    storage.type = type
    return True


def storages(kind: ArrayType, view: View, *arrays: Any) -> list[Storage]:
    """The storages of arrays that have this view of blocks of type `kind`; raises TypeError for others."""
    found = []
    for array in arrays:
        if type(array) is not NDArray:
            raise TypeError("not an array")
        storage = array._storage
        if storage.type is not kind and not is_block(storage, kind):
            raise TypeError("another type")
        if array._view is not view:
            if array._view != view:
                raise TypeError("another view")
            array._view = view
        found.append(storage)
    return found


def release_all(storages: Iterable[Storage]) -> None:
    """`release` each."""
    for storage in storages:
        if storage.recording is not None:
            release(storage)


def any_shared(storages: Iterable[Storage]) -> bool:
    """Whether Python can see the memory of one of them."""
    return any(storage.shared for storage in storages)


def addresses(storages: Iterable[Storage]) -> list[int]:
    """Where they lie."""
    return [storage.address for storage in storages]


def variables(storages: Iterable[Storage]) -> list[Any]:
    """Their variables of the engine."""
    return [storage.variable for storage in storages]


def variable_addresses(storages: Iterable[Storage]) -> list[int]:
    """Where their variables lie."""
    return [storage.variable.address for storage in storages]


HELPERS = {
    function.__name__: function
    for function in (
        *(release, is_block, storages, release_all, any_shared),
        *(addresses, variables, variable_addresses),
    )
}


# -- finding them --------------------------------------------------------------------------------------------


def arrays_from(steps: Sequence[Step], position: int) -> list[ArrayCheck]:
    """The checks of arrays that follow one another from `position` on, with steps for nothing else between
    them: `STEPS` for each, of which the first finds the array and none needs another one of them.
    """
    found: list[ArrayCheck] = []
    made: set[Var] = set()
    while (check := _array_at(steps, position)) is not None:
        if found and (interned(check.type) is not interned(found[0].type) or check.view != found[0].view):
            break
        bind = steps[position]
        assert isinstance(bind, Bind)
        if bind.value.root in made:
            break
        made |= {bind.var, check.storage}
        found.append(check)
        position += STEPS
    return found


STEPS = 4
"""For an array: it is found, is an array, its storage is found, and both are of this kind."""


def _array_at(steps: Sequence[Step], position: int) -> ArrayCheck | None:
    """The check of an array, if the steps at `position` are those for one."""
    if position + STEPS > len(steps):
        return None
    bind, kind, storage, check = steps[position : position + STEPS]
    if not (isinstance(bind, Bind) and isinstance(kind, Check) and isinstance(check, ArrayCheck)):
        return None
    is_one = (
        isinstance(storage, Bind)
        and check.array is bind.var
        and check.storage is storage.var
        and isinstance(bind.value, Form)
        and kind.condition.operands == (bind.var,)
    )
    return check if is_one else None
