"""Validates the contract and graph of a text from a file, for some extents.

`check_contract` raises ArgumentError (or the error of a view's typing rule) at the first invalid item. It
checks everything that a call relies on, so no access that a validated contract describes is out of bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError
from tracejit.frontend.recording.operations import OPERATIONS
from tracejit.graphs.containers import read_kind
from tracejit.graphs.contract import Contract, Data, leaves_of
from tracejit.ir.graph import Graph
from tracejit.ir.types import ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.ops import view

UINT64 = np.dtype("uint64")
CONSTANT_TYPES = (bool, int, float, complex, str, type(None))


def check_contract(contract: Contract, graph: Graph) -> None:
    """Raise ArgumentError unless a contract is valid and consistent with its graph."""
    _Checker(contract, verify(graph)).run()


def _require(condition: bool, item: str) -> None:
    if not condition:
        raise _invalid(item)


def _invalid(item: str) -> ArgumentError:
    return ArgumentError(f"the text is not a contract of a graph: {item}")


class _Checker:
    """The validation of one contract. leaves: of the arguments, after these have been validated."""

    def __init__(self, contract: Contract, graph: Graph) -> None:
        self.contract, self.graph = contract, graph
        self.leaves: list[Data] = []
        self.parameters: dict[str, ArrayType] = {}
        self.steps = 0

    def run(self) -> None:
        """Check all fields."""
        contract = self.contract
        for argument in contract.arguments:
            _require(_is(argument, str, tuple), "an argument")
            self.check_tree(argument[1])
        names = [name for name, _ in contract.arguments]
        _require(len(set(names)) == len(names), "the names of arguments")
        self.leaves = leaves_of(contract)
        for parameter in contract.parameters:
            _require(_is(parameter, str, ArrayType) and not parameter[1].on_host, "a parameter")
            self.parameters[parameter[0]] = parameter[1]
        _require(
            all(isinstance(line, str) for line in (*contract.rules, *contract.extents)), "a name or line"
        )
        _require(all(_is(line, str, str, str) for line in contract.lines), "a line")
        self.check_numbers()
        _require(len(contract.draws) <= 1 and all(_is_count(n) for n in contract.draws), "the draws")
        self.check_inputs()
        self.check_recipe(contract.result)
        for change in contract.changes:
            self.check_change(change)

    # -- arguments -------------------------------------------------------------------------------------------

    def check_tree(self, tree: Any) -> None:
        """Check the tree of an argument."""
        _require(isinstance(tree, tuple) and bool(tree), "a tree")
        if tree[0] == "tree":
            _require(_is(tree[1:], str, tuple, tuple) and len(tree[2]) == len(tree[3]), "a container")
            kind = read_kind(tree[1])
            _require(kind is not None and len(set(tree[2])) == len(tree[2]), "a kind of container")
            _require(all(type(key) in (str, int) for key in tree[2]), "a key")
            for child in tree[3]:
                self.check_tree(child)
        elif tree[0] == "array":
            _require(_is(tree[1:], str, ArrayType) and not tree[2].on_host, "an array")
        elif tree[0] == "number":
            _require(_is(tree[1:], str, str) and tree[2] in ("int", "float"), "a number")
        else:
            _require(tree[0] == "value" and len(tree) == 3 and type(tree[2]) in CONSTANT_TYPES, "a leaf")
            _require(isinstance(tree[1], str), "a path")

    def check_numbers(self) -> None:
        """Check the computations on numbers."""
        for step in self.contract.numbers:
            is_check = isinstance(step, tuple) and bool(step) and step[0] == "check"
            kinds = (str, str, tuple, object, str) if is_check else (str, str, tuple)
            _require(_is(step, *kinds) and step[0] in ("compute", "check"), "a step")
            form = step[1]
            _require(form in OPERATIONS, f"the form {form!r}")
            _require(form.count("{}") == len(step[2]), f"operands of {form!r}")
            for source in step[2]:
                self.check_source(source)
            self.steps += not is_check

    def check_source(self, source: Any) -> None:
        """Check the source of a number."""
        _require(_is(source, str, object), "a source")
        kind, operand = source
        if kind == "leaf":
            _require(
                _is_index(operand, self.leaves) and self.leaves[operand][0] == "number",
                "the number of a leaf",
            )
        elif kind == "step":
            _require(_is_index(operand, range(self.steps)), "the number of a step")
        else:
            _require(kind == "value" and type(operand) in CONSTANT_TYPES, "a value")

    # -- arrays ----------------------------------------------------------------------------------------------

    def type_of(self, origin: Any) -> ArrayType:
        """Check the origin of an array; return the type of the leaf or parameter."""
        _require(_is(origin, str, object), "a place")
        kind, index = origin
        if kind == "leaf":
            _require(_is_index(index, self.leaves), "the number of a leaf")
            leaf = self.leaves[index]
            _require(leaf[0] == "array", "the number of an array")
            array_type: ArrayType = leaf[2]
            return array_type
        _require(kind == "parameter" and isinstance(index, str) and index in self.parameters, "a parameter")
        return self.parameters[index]

    def check_inputs(self) -> None:
        """Check the origins of the graph's inputs."""
        inputs, graph = self.contract.inputs, self.graph
        _require(len(inputs) == len(graph.inputs), "as many inputs as the graph has")
        for value, origin in zip(graph.inputs, inputs, strict=True):
            _require(_is(origin, str, object), "an input")
            if origin[0] == "number":
                self.check_source(origin[1])
                _require(value.type.on_host, "the type of a number")
            elif origin[0] in ("key", "counter"):
                total = self.contract.draws[0] if self.contract.draws else -1
                _require(value.type == ArrayType((), UINT64, value.type.device), "the type of a draw")
                _require(value.type.on_host and _is_count(origin[1]) and origin[1] <= total, "a draw")
            else:
                kind = self.type_of(origin)
                matches = (kind.size, kind.dtype, kind.device) == (
                    value.type.size, value.type.dtype, value.type.device
                )  # fmt: skip
                _require(matches, "the type of an input")
        for effect in graph.effects:
            origin = inputs[graph.inputs.index(effect.target)]
            _require(origin[0] in ("leaf", "parameter"), "the target of an effect")

    def check_recipe(self, recipe: Any) -> None:
        """Check the recipe of a value."""
        _require(isinstance(recipe, tuple) and len(recipe) > 1, "a result")
        kind = recipe[0]
        if kind in ("leaf", "parameter"):
            if kind == "leaf" and _is_index(recipe[1], self.leaves):
                return
            self.type_of(recipe)
        elif kind == "container":
            self.tree_at(recipe[1])
        elif kind == "array":
            _require(_is(recipe, str, int, View) and _is_index(recipe[1], self.graph.outputs), "an output")
            view.infer(self.graph.outputs[recipe[1]].type, view=recipe[2])
        elif kind == "seen":
            _require(_is(recipe, str, tuple, View), "a view")
            view.infer(self.type_of(recipe[1]), view=recipe[2])
        elif kind == "number":
            self.check_source(recipe[1])
        elif kind == "tree":
            _require(_is(recipe, str, str, tuple, tuple) and len(recipe[2]) == len(recipe[3]), "a container")
            container = read_kind(recipe[1])
            if container is None or not all(type(key) in CONSTANT_TYPES for key in recipe[2]):
                raise _invalid("a kind of container")
            names = [key for key in recipe[2] if isinstance(key, str) and key.isidentifier()]
            has_unique_names = len(set(names)) == len(recipe[2]) and not any(
                name.startswith("_") for name in names
            )
            _require(has_unique_names or not container.is_record, "the fields of a record")
            for part in recipe[3]:
                self.check_recipe(part)
        else:
            _require(kind == "value" and type(recipe[1]) in CONSTANT_TYPES, "a value")

    def check_change(self, change: Any) -> None:
        """Check a rebinding."""
        if _is(change, str, str, tuple) and change[0] == "parameter":
            recipe = change[2]
            self.check_recipe(recipe)
            _require(
                recipe[0] == "array" and recipe[2].shape == self.type_of(change[:2]).shape, "a new content"
            )
            return
        _require(_is(change, str, tuple, object, tuple) and change[0] == "item", "a change")
        _require(change[2] in self.tree_at(change[1])[2], "the key of a change")
        self.check_recipe(change[3])

    def tree_at(self, key_path: Any) -> Data:
        """Check the key path of a container among the arguments; return the container's tree."""
        arguments = dict(self.contract.arguments)
        _require(
            isinstance(key_path, tuple) and bool(key_path) and key_path[0] in arguments,
            "a place of a container",
        )
        tree: Data = arguments[key_path[0]]
        for key in key_path[1:]:
            _require(tree[0] == "tree" and key in tree[2], "a place of a container")
            tree = tree[3][tree[2].index(key)]
        _require(tree[0] == "tree", "a place of a container")
        return tree


def _is(data: Any, *kinds: type) -> bool:
    """Whether `data` is a tuple with one item of each of these types."""
    return (
        isinstance(data, tuple)
        and len(data) == len(kinds)
        and all(isinstance(part, kind) for part, kind in zip(data, kinds, strict=True))
    )


def _is_index(number: Any, of: Sequence[Any]) -> bool:
    return type(number) is int and 0 <= number < len(of)


def _is_count(number: Any) -> bool:
    return type(number) is int and 0 <= number < 1 << 63
