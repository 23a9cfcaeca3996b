"""The result of a call, and what it rebinds, made as a contract says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.content import Attributes
from tracejit.graphs.containers import read_kind
from tracejit.graphs.contract import Data, refuse
from tracejit.ir.view import View


class Results:
    """Makes values of one call.

    array, source: give the array of a leaf or parameter, and a number.
    containers:    those among the arguments, by their places.
    outputs:       of the graph.
    """

    def __init__(
        self,
        array: Callable[[Data], NDArray],
        source: Callable[[Data], Any],
        containers: Mapping[Any, Any],
        outputs: list[NDArray],
    ) -> None:
        self.array, self.source, self.containers, self.outputs = array, source, containers, outputs

    def make(self, data: Data) -> Any:
        """A value."""
        kind, *rest = data
        if kind in ("leaf", "parameter"):
            return self.array(data)
        if kind == "container":
            return self.containers[rest[0]]
        if kind == "array":
            array = self.outputs[rest[0]]
            return array if rest[1] == array._view else NDArray(array._storage, rest[1])
        if kind == "seen":
            return seen_through(self.array(rest[0]), rest[1])
        if kind == "number":
            return self.source(rest[0])
        if kind == "value":
            return rest[0]
        name, keys, parts = rest
        return _container(name, keys, [self.make(part) for part in parts])

    def change(self, changes: tuple[Data, ...], name: str) -> None:
        """Rebind items of the caller's containers, and contents of parameters."""
        made = [(change, self.make(change[-1])) for change in changes]
        for (kind, where, *key, _), value in made:
            if kind == "parameter":
                dispatch.write(self.array(("parameter", where)), value, name)
                continue
            holder = self.containers[where]
            if isinstance(holder, dict | list):
                holder[key[0]] = value
            else:
                Attributes(holder)[key[0]] = value


def filled(tree: Data, leaves: Iterator[Any]) -> Any:
    """An argument of a contract with the next leaves."""
    if tree[0] != "tree":
        return next(leaves)
    _, kind, keys, children = tree
    return _container(kind, keys, [filled(child, leaves) for child in children])


def _container(text: str, keys: tuple[Any, ...], parts: list[Any]) -> Any:
    kind = read_kind(text)
    assert kind is not None, "the contract was checked"
    return kind.make(keys, parts)


def seen_through(array: NDArray, view: View) -> NDArray:
    """A view of an array; raises ArgumentError where it is none of its memory."""
    found = array._view.compose(view)
    if found is None:
        raise refuse("a result is a view of an argument that is no contiguous array; pass a copy (x.copy())")
    writable = array._view.writable and view.writable
    return NDArray(array._storage, found if writable else found.read_only())
