"""Converts a recorded call to a contract: origins of the graph's inputs, the result, and rebindings.

Features that a graph cannot represent without the user's code are refused here, with their paths: objects
among the arguments, callbacks, mutable Python state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tracejit.drawing.user_lines import line_of
from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.jit.complete import Described
from tracejit.frontend.python.content import GONE
from tracejit.frontend.recording.draws import DrawCounter, DrawKey
from tracejit.frontend.recording.origins import RuntimeNumber
from tracejit.frontend.recording.sources import Computed
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.expressions import (
    Const,
    Expr,
    Literal,
    Var,
)
from tracejit.frontend.signature.program import (
    ArrayOn,
    Container,
    Known,
    Make,
    Rebind,
)
from tracejit.graphs.containers import ContainerKind, kind_of
from tracejit.graphs.contract import Contract, Data
from tracejit.ir.graph import Graph
from tracejit.ir.op import Trait
from tracejit.ir.view import View
from tracejit.ops.communicate import BETWEEN_RANKS

PLAIN = (bool, int, float, complex, str, type(None))


def refuse(message: str, line: str | None = None) -> NoReturn:
    """Raise ArgumentError: this cannot be exported."""
    raise locate(ArgumentError(f"export: {message}"), line)


def exported_kind(container: type, path: str) -> ContainerKind:
    """Return the kind of a container at a path; raise ArgumentError for a user's subclass of dict."""
    if container is not dict and issubclass(container, dict):
        refuse(f"{path} is a {container.__name__}; use a dict, a list, a tuple or a named tuple")
    return kind_of(container)


class ContractBuilder:
    """Builds the contract of one recorded call.

    leaves:         of the arguments, with their paths.
    stand_ins:      the leaf index of an array by storage.
    containers:     the key path of each container by path.
    numbers:        the leaf index of a number by variable.
    steps, step_of: the index of the computation of a number, by the identity of its step and by variable.
    parameters:     the names of arrays that are stored with the graph, by storage.
    """

    def __init__(self, described: Described, name: str, arguments: Sequence[tuple[str, Any]]) -> None:
        self.described, self.name = described, name
        self.arguments = arguments
        self.leaves = [leaf for path, tree in arguments for leaf in trees.leaves_with_paths(tree, path)]
        self.stand_ins = {leaf._storage: i for i, (_, leaf) in enumerate(self.leaves) if is_array(leaf)}
        self.containers = {path: where for root, tree in arguments for path, where in _containers(tree, root)}
        index_by_path = {path: i for i, (path, _) in enumerate(self.leaves)}
        self.numbers = {var: index_by_path[var.path] for var in described.arguments.numbers}
        computed = [step for step in described.numbers if isinstance(step, Computed)]
        self.steps = {id(step): i for i, step in enumerate(computed)}
        self.step_of = {described.computed[step]: i for i, step in enumerate(computed)}
        self.created_values = dict(described.program.values)
        self.parameters: dict[Storage, str] = {}

    def contract(self, extents: tuple[str, ...]) -> tuple[Contract, Graph, dict[str, Storage]]:
        """Return the contract, the graph, and the storages of its parameters by name."""
        graph, program = self.described.graph, self.described.program
        for node in graph.nodes:
            if node.op in BETWEEN_RANKS:
                refuse(
                    f"an exported graph cannot contain {node.op.name}, which needs other ranks", node.location
                )
            if Trait.ORDERED in node.op.traits:
                refuse(
                    "an exported graph cannot call a Python function (tj.callback); return the array and "
                    "call the function with it",
                    node.location,
                )
        arguments = tuple((name, self._tree(tree, name)) for name, tree in self.arguments)
        inputs = tuple(self._input(origin) for origin in self.described.origins)
        assert program.result is not None
        result = self._recipe_of(program.result, "the result")
        changes = tuple(self._change(effect) for effect in program.effects)
        names = {name: storage for storage, name in self.parameters.items()}
        locations = dict.fromkeys(node.location for node in graph.nodes)
        contract = Contract(
            function=self.name,
            extents=extents,
            arguments=arguments,
            parameters=tuple((name, storage.type) for name, storage in names.items()),
            numbers=self._numbers(),
            draws=self._draws(),
            inputs=inputs,
            result=result,
            changes=changes,
            rules=tuple(line or "" for line in dict.fromkeys(self.described.rules)),
            lines=tuple((line, *line_of(line)) for line in locations if line),
        )
        return contract, graph, names

    # -- arguments and inputs --------------------------------------------------------------------------------

    def _tree(self, tree: Any, path: str) -> Data:
        node = trees.children_of(tree)
        if node is not None:
            kind, keys, children = node
            for key in keys:
                if not isinstance(key, str | int) or isinstance(key, bool):
                    refuse(f"{path} has the key {key!r}; keys are strings or integers")
            converted = [
                self._tree(c, path + trees.step(kind, k)) for k, c in zip(keys, children, strict=True)
            ]
            return "tree", str(exported_kind(kind, path)), keys, tuple(converted)
        if is_array(tree):
            return "array", path, tree._storage.type
        if type(tree) in (int, float):
            return "number", path, type(tree).__name__
        return "value", path, self._plain(tree, path)

    def _input(self, origin: Any) -> Data:
        if not isinstance(origin, RuntimeNumber):
            return self._array(origin.storage)
        source = origin.source
        if isinstance(source, DrawKey):
            return "key", 0
        if isinstance(source, DrawCounter):
            return "counter", source.fixed  # loops are unrolled in the graph, so it is a constant
        return "number", self._source(source, origin.value)

    def _array(self, storage: Storage) -> Data:
        """The origin of an array: the leaf or the parameter with this storage."""
        if storage in self.stand_ins:
            return "leaf", self.stand_ins[storage]
        if storage not in self.parameters:
            self._add_parameter(storage, self.described.captured.get(storage, "constant"))
        return "parameter", self.parameters[storage]

    def _add_parameter(self, storage: Storage, path: str) -> str:
        used_names = {*self.parameters.values(), *(path for path, _ in self.leaves)}
        name, number = path, 1
        while name in used_names:
            number += 1
            name = f"{path}_{number}"
        self.parameters[storage] = name
        return name

    def _draws(self) -> Data:
        """The number of random numbers that are drawn from the stream of the device, if any."""
        if len(self.described.draws) > 1:
            refuse("it draws random numbers for several devices")
        return tuple(count for _, count in self.described.draws)

    # -- numbers ---------------------------------------------------------------------------------------------

    def _source(self, source: Any, value: Any = None) -> Data:
        if isinstance(source, Computed):
            return "step", self.steps[id(source)]
        if isinstance(source, Var) and source in self.step_of:
            return "step", self.step_of[source]
        if isinstance(source, Var) and source in self.numbers:
            return "leaf", self.numbers[source]
        if isinstance(source, Var):  # referenced by name: a constant
            value = source.value
        elif not isinstance(source, Expr):
            value = source
        return "value", self._plain(value, "a number")

    def _numbers(self) -> Data:
        steps: list[Data] = []
        for step in self.described.numbers:
            sources = tuple(self._source(operand) for operand in step.operands)
            if isinstance(step, Computed):
                steps.append(("compute", step.operation.text, sources))
            elif any(source[0] != "value" for source in sources):
                steps.append(
                    ("check", step.operation.text, sources, self._plain(step.value, step.path), step.path)
                )
        return tuple(steps)

    def _plain(self, value: Any, path: str) -> Any:
        if type(value) not in PLAIN:
            refuse(
                f"{path} is a {type(value).__name__}, which a file cannot hold; use arrays, numbers and "
                "strings, in dicts, lists, tuples and named tuples"
            )
        return value

    # -- result and changes ----------------------------------------------------------------------------------

    def _recipe_of(self, value: Make | Any, path: str) -> Data:
        if isinstance(value, ArrayOn):
            outputs = list(self.described.program.outputs.values())
            if value.storage in outputs:
                return "array", outputs.index(value.storage), value.view
            return self._existing_array(value.storage.value, value.view)
        if isinstance(value, Container):
            parts = [
                self._recipe_of(p, path + trees.step(value.kind, k))
                for k, p in zip(value.keys, value.parts, strict=True)
            ]
            kind = exported_kind(value.kind, path)
            if kind.is_object:
                refuse(f"{path} is a {value.kind.__name__}; return a dict, a list, a tuple or a named tuple")
            return "tree", str(kind), tuple(self._plain(k, path) for k in value.keys), tuple(parts)
        if not isinstance(value, Known):
            refuse(f"{path} is a slice; return arrays, numbers and containers of them")
        return self._known(value.operand, path)

    def _existing_array(self, storage: Storage, view: View) -> Data:
        array = self._array(storage)
        if view == View.of_shape(storage.type.shape) and view.writable:
            return array
        return "seen", array, view

    def _known(self, operand: Expr, path: str) -> Data:
        if isinstance(operand, Const | Literal):
            return "value", self._plain(operand.value, path)
        if isinstance(operand, Var) and operand in self.created_values:
            return self._recipe_of(self.created_values[operand], path)
        if isinstance(operand, Var) and (operand in self.step_of or operand in self.numbers):
            return "number", self._source(operand)
        value = operand.value if isinstance(operand, Var) else None
        if isinstance(value, NDArray):
            return self._existing_array(value._storage, value._view)
        if isinstance(operand, Var) and operand.path in self.containers:
            return "container", self.containers[operand.path]
        return "value", self._plain(value, path)

    def _change(self, effect: Any) -> Data:
        if not isinstance(effect, Rebind) or effect.value is GONE:
            where = effect.slot.path if isinstance(effect, Rebind) else effect.container.path
            refuse(f"{self.name} changes the keys or the length of {where}; return a new container instead")
        slot = effect.slot
        rebuilt = self.described.arguments.originals.get(id(slot.holder))
        if rebuilt is not None and rebuilt.var.path in self.containers:
            recipe = self._recipe_of(effect.value, slot.path)
            return "item", self.containers[rebuilt.var.path], slot.key, recipe
        if not isinstance(slot.value, NDArray):
            refuse(
                f"{self.name} changes {slot.path}, which is state of Python; pass it as an argument and "
                "return it"
            )
        return self._rebound(slot, effect)

    def _rebound(self, slot: Any, effect: Rebind) -> Data:
        """The change for an array that is referenced by name and rebound: its parameter is overwritten."""
        old: NDArray = slot.value
        recipe = self._recipe_of(effect.value, slot.path)
        view = recipe[2] if recipe[0] == "array" else None
        new_type = self.described.graph.outputs[recipe[1]].type if view is not None else None
        full = View.of_shape(old.shape)
        if new_type is None or view != full or new_type.dtype != old.dtype or old._view != full:
            refuse(f"{self.name} rebinds {slot.path} to an array of another kind; write into it: x[...] = y")
        if old._storage not in self.parameters:  # the function has not read its old contents
            self._add_parameter(old._storage, slot.path)
        return "parameter", self.parameters[old._storage], recipe


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array (or a placeholder for one)."""
    return isinstance(leaf, NDArray)


def _containers(tree: Any, path: str, key_path: tuple[Any, ...] = ()) -> list[tuple[str, tuple[Any, ...]]]:
    """List the containers in an argument, each with its path and key path."""
    node = trees.children_of(tree)
    if node is None or tree is None:
        return []
    key_path = key_path or (path,)
    kind, keys, children = node
    rows = [(path, key_path)]
    for key, child in zip(keys, children, strict=True):
        rows += _containers(child, path + trees.step(kind, key), (*key_path, key))
    return rows


def content_of(storage: Storage) -> np.ndarray:
    """Copy the contents of a storage."""
    return NDArray(storage, View.of_shape(storage.type.shape)).numpy()
