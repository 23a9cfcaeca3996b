"""Runs the body of a traced function as eager code, for calls that cannot be replayed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.dispatch import placed
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.content import Attributes, fill
from tracejit.frontend.signature.arguments import arrays_in, device_of, is_record, parts_of
from tracejit.ir.types import Device


def run_piecewise(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the body as eager code. NumPy arrays among the arguments become NDArrays, as in a recording."""
    if not any(isinstance(leaf, np.ndarray) for leaf in trees.leaves((args, kwargs))):
        return function(*args, **kwargs)
    converted = _Converted(device_of(arrays_in(args, kwargs)))
    try:
        result = function(
            *map(converted.convert, args), **{name: converted.convert(v) for name, v in kwargs.items()}
        )
    finally:
        converted.write_back()
    return converted.original(result)


class _Converted:
    """Copies of the containers among the arguments that contain NumPy arrays, with NDArrays in their place.

    device: the device of these NDArrays.
    copies: by id of a copy: the copy, the container, and the initial children of the copy, by key.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.copies: dict[int, tuple[Any, Any, dict[Any, Any]]] = {}
        self._copy_of: dict[int, Any] = {}  # by id of the container

    def convert(self, value: Any) -> Any:
        """Return the value that is passed to the body for an argument."""
        if isinstance(value, np.ndarray):
            return placed(NDArray.from_numpy(value), self.device)
        parts = parts_of(value)
        if parts is None or not any(isinstance(leaf, np.ndarray) for leaf in trees.leaves(value)):
            return value
        if id(value) not in self._copy_of:
            kind, keys, children = parts
            initial = dict(zip(keys, map(self.convert, children), strict=True))
            copy = self._copy_of[id(value)] = trees.rebuilt(value, kind, keys, list(initial.values()))
            self.copies[id(copy)] = copy, value, initial
        return self._copy_of[id(value)]

    def write_back(self) -> None:
        """Apply the changes that the body made to the copies to their containers."""
        for copy, container, initial in self.copies.values():
            kind, keys, children = parts_of(copy) or trees.children_of(copy) or (type(copy), (), [])
            now = dict(zip(keys, map(self.original, children), strict=True))
            changed = {key: now[key] for key, child in zip(keys, children, strict=True)
                       if key not in initial or child is not initial[key]}  # fmt: skip
            if issubclass(kind, tuple):
                continue
            if is_record(kind):
                for name, value in changed.items():
                    Attributes(container)[name] = value
                for name in initial.keys() - now.keys():
                    Attributes(container).remove(name)
            elif now.keys() == initial.keys():
                for key, value in changed.items():
                    container[key] = value
            else:
                before = container if isinstance(container, dict) else dict(enumerate(container))
                merged = {key: now[key] if key in changed else before[key] for key in now}
                fill(container, merged if isinstance(container, dict) else list(merged.values()))

    def original(self, value: Any) -> Any:
        """Return the caller's value for a value of the body: the container of a copy."""
        if id(value) in self.copies:
            return self.copies[id(value)][1]
        parts = parts_of(value) if type(value) in (dict, list, tuple) else None
        if parts is None:
            return value
        kind, keys, children = parts
        originals = [self.original(child) for child in children]
        is_same = all(a is b for a, b in zip(originals, children, strict=True))
        return value if is_same else trees.build(kind, keys, originals)
