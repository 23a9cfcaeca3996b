"""What `functools.lru_cache` keeps for a function: a body that calls it gets results of earlier calls."""

from __future__ import annotations

import collections
import gc
from typing import Any

from tracejit.frontend.kinds import FIXED, PLAIN


def kept_by(cached: Any) -> list[Any]:
    """What may change of the arguments and results that are kept for a function."""
    return [value for value in _held(cached) if not isinstance(value, (*PLAIN, *FIXED, type))]


def plain_kept(cached: Any) -> collections.Counter[str]:
    """How often it keeps which plain values: when it has been cleared, a result may be another one."""
    return collections.Counter(repr(value) for value in _held(cached) if isinstance(value, PLAIN))


def _held(cached: Any) -> list[Any]:
    if not cached.cache_info().currsize:
        return []
    own = vars(cached), cached.__wrapped__
    held = [value for value in gc.get_referents(cached) if not any(value is each for each in own)]
    if cached.cache_parameters()["maxsize"] is None:  # they are in a table
        held = [value for table in held if type(table) is dict for value in list(table.values())]
    return [value for value in held if not _is_part(value)]


def _is_part(value: Any) -> bool:
    """Whether such a function needs this for itself: a table, or a mark."""
    links = list(value.values()) if type(value) is dict else []
    return type(value) is object or any(type(link).__name__ == "_lru_list_elem" for link in links)
