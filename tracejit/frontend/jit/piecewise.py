"""Running a traced function's body itself, where its call cannot be replayed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.dispatch import placed
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.content import Attributes, fill
from tracejit.frontend.signature.arguments import is_record, parts_of, survey
from tracejit.ir.types import Device


def run_piecewise(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the body itself; NumPy arrays among the arguments become NDArrays, as when it is recorded."""
    if not any(isinstance(leaf, np.ndarray) for leaf in trees.leaves((args, kwargs))):
        return function(*args, **kwargs)
    converted = _Converted(survey(args, kwargs).place)
    try:
        result = function(
            *map(converted.convert, args), **{name: converted.convert(v) for name, v in kwargs.items()}
        )
    finally:
        converted.write_back()
    return converted.original(result)


class _Converted:
    """Containers of the arguments that hold NumPy arrays: copies of them with NDArrays.

    place:  where these are.
    copies: by identity of the copy: copy, container, and the parts that the copy had at first, by key.
    """

    def __init__(self, place: Device) -> None:
        self.place = place
        self.copies: dict[int, tuple[Any, Any, dict[Any, Any]]] = {}
        self._known: dict[int, Any] = {}  # by identity of the container: its copy

    def convert(self, value: Any) -> Any:
        """Return the value that the body gets for an argument."""
        if isinstance(value, np.ndarray):
            return placed(NDArray.from_numpy(value), self.place)
        found = parts_of(value)
        if found is None or not any(isinstance(leaf, np.ndarray) for leaf in trees.leaves(value)):
            return value
        if id(value) not in self._known:
            kind, keys, parts = found
            given = dict(zip(keys, map(self.convert, parts), strict=True))
            copy = self._known[id(value)] = trees.rebuilt(value, kind, keys, list(given.values()))
            self.copies[id(copy)] = copy, value, given
        return self._known[id(value)]

    def write_back(self) -> None:
        """Rebind in the containers whatever the body rebound in their copies."""
        for copy, container, given in self.copies.values():
            kind, keys, parts = parts_of(copy) or trees.children_of(copy) or (type(copy), (), [])
            now = dict(zip(keys, map(self.original, parts), strict=True))
            changed = {key: now[key] for key, part in zip(keys, parts, strict=True)
                       if key not in given or part is not given[key]}  # fmt: skip
            if issubclass(kind, tuple):
                continue
            if is_record(kind):
                for name, value in changed.items():
                    Attributes(container)[name] = value
                for name in given.keys() - now.keys():
                    Attributes(container).remove(name)
            elif now.keys() == given.keys():
                for key, value in changed.items():
                    container[key] = value
            else:
                before = container if isinstance(container, dict) else dict(enumerate(container))
                merged = {key: now[key] if key in changed else before[key] for key in now}
                fill(container, merged if isinstance(container, dict) else list(merged.values()))

    def original(self, value: Any) -> Any:
        """Return the caller's value: its own container for a copy."""
        if id(value) in self.copies:
            return self.copies[id(value)][1]
        found = parts_of(value) if type(value) in (dict, list, tuple) else None
        if found is None:
            return value
        kind, keys, parts = found
        known = [self.original(part) for part in parts]
        is_same = all(a is b for a, b in zip(known, parts, strict=True))
        return value if is_same else trees.build(kind, keys, known)
