"""Builds the result of a call, and performs its rebindings, according to the contract."""

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
    """Builds values of one call from recipes of the contract.

    array, source: functions that return the array of a leaf or parameter, and a number.
    containers:    the containers among the arguments by key path.
    outputs:       the outputs of the graph.
    """

    def __init__(
        self,
        array: Callable[[Data], NDArray],
        source: Callable[[Data], Any],
        containers: Mapping[Any, Any],
        outputs: list[NDArray],
    ) -> None:
        self.array, self.source, self.containers, self.outputs = array, source, containers, outputs

    def build(self, recipe: Data) -> Any:
        """Build the value of a recipe."""
        kind, *operands = recipe
        if kind in ("leaf", "parameter"):
            return self.array(recipe)
        if kind == "container":
            return self.containers[operands[0]]
        if kind == "array":
            array = self.outputs[operands[0]]
            return array if operands[1] == array._view else NDArray(array._storage, operands[1])
        if kind == "seen":
            return apply_view(self.array(operands[0]), operands[1])
        if kind == "number":
            return self.source(operands[0])
        if kind == "value":
            return operands[0]
        name, keys, items = operands
        return _container(name, keys, [self.build(item) for item in items])

    def change(self, changes: tuple[Data, ...], name: str) -> None:
        """Rebind items of the caller's containers, and overwrite parameters."""
        new_values = [(change, self.build(change[-1])) for change in changes]
        for (kind, target, *key, _), value in new_values:
            if kind == "parameter":
                dispatch.write(self.array(("parameter", target)), value, name)
                continue
            holder = self.containers[target]
            if isinstance(holder, dict | list):
                holder[key[0]] = value
            else:
                Attributes(holder)[key[0]] = value


def fill_tree(tree: Data, leaves: Iterator[Any]) -> Any:
    """Build an argument of a contract, consuming leaves from an iterator."""
    if tree[0] != "tree":
        return next(leaves)
    _, kind, keys, children = tree
    return _container(kind, keys, [fill_tree(child, leaves) for child in children])


def _container(text: str, keys: tuple[Any, ...], items: list[Any]) -> Any:
    kind = read_kind(text)
    assert kind is not None, "the contract was checked"
    return kind.build(keys, items)


def apply_view(array: NDArray, view: View) -> NDArray:
    """Apply a view to an array; raise ArgumentError if the composed view is not one of its memory."""
    composed = array._view.compose(view)
    if composed is None:
        raise refuse("a result is a view of an argument that is not contiguous; pass a copy (x.copy())")
    writable = array._view.writable and view.writable
    return NDArray(array._storage, composed if writable else composed.read_only())
