"""Whether a text that comes from a file is a contract, for some extents: what a call relies on.

`check_contract` raises ArgumentError (or what the typing rule of a view raises) at the first part that is
none. After that nothing a call does with the contract goes out of bounds.
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
PLAIN = (bool, int, float, complex, str, type(None))


def check_contract(contract: Contract, graph: Graph) -> None:
    """Raise unless a contract and its graph fit together."""
    _Checking(contract, verify(graph)).run()


def _need(truth: bool, what: str) -> None:
    if not truth:
        raise _wrong(what)


def _wrong(what: str) -> ArgumentError:
    return ArgumentError(f"the text is no contract of a graph: {what}")


class _Checking:
    """A contract that is being checked: `leaves` once its arguments are known to be trees."""

    def __init__(self, contract: Contract, graph: Graph) -> None:
        self.contract, self.graph = contract, graph
        self.leaves: list[Data] = []
        self.parameters: dict[str, ArrayType] = {}
        self.steps = 0

    def run(self) -> None:
        """Check all parts."""
        contract = self.contract
        for argument in contract.arguments:
            _need(_is(argument, str, tuple), "an argument")
            self.check_tree(argument[1])
        names = [name for name, _ in contract.arguments]
        _need(len(set(names)) == len(names), "the names of arguments")
        self.leaves = leaves_of(contract)
        for parameter in contract.parameters:
            _need(_is(parameter, str, ArrayType) and not parameter[1].on_host, "a parameter")
            self.parameters[parameter[0]] = parameter[1]
        _need(all(isinstance(line, str) for line in (*contract.rules, *contract.extents)), "a name or line")
        _need(all(_is(line, str, str, str) for line in contract.lines), "a line")
        self.check_numbers()
        _need(len(contract.draws) <= 1 and all(_is_count(n) for n in contract.draws), "the draws")
        self.check_inputs()
        self.check_made(contract.result)
        for change in contract.changes:
            self.check_change(change)

    # -- arguments -------------------------------------------------------------------------------------------

    def check_tree(self, tree: Any) -> None:
        """A tree of an argument."""
        _need(isinstance(tree, tuple) and bool(tree), "a tree")
        if tree[0] == "tree":
            _need(_is(tree[1:], str, tuple, tuple) and len(tree[2]) == len(tree[3]), "a container")
            kind = read_kind(tree[1])
            _need(kind is not None and len(set(tree[2])) == len(tree[2]), "a kind of container")
            _need(all(type(key) in (str, int) for key in tree[2]), "a key")
            for child in tree[3]:
                self.check_tree(child)
        elif tree[0] == "array":
            _need(_is(tree[1:], str, ArrayType) and not tree[2].on_host, "an array")
        elif tree[0] == "number":
            _need(_is(tree[1:], str, str) and tree[2] in ("int", "float"), "a number")
        else:
            _need(tree[0] == "value" and len(tree) == 3 and type(tree[2]) in PLAIN, "a leaf")
            _need(isinstance(tree[1], str), "a path")

    def check_numbers(self) -> None:
        """Check the computations on numbers."""
        for step in self.contract.numbers:
            is_check = isinstance(step, tuple) and bool(step) and step[0] == "check"
            kinds = (str, str, tuple, object, str) if is_check else (str, str, tuple)
            _need(_is(step, *kinds) and step[0] in ("compute", "check"), "a step")
            form = step[1]
            _need(form in OPERATIONS, f"the form {form!r}")
            _need(form.count("{}") == len(step[2]), f"operands of {form!r}")
            for source in step[2]:
                self.check_source(source)
            self.steps += not is_check

    def check_source(self, source: Any) -> None:
        """A number."""
        _need(_is(source, str, object), "a source")
        kind, given = source
        if kind == "leaf":
            _need(_is_index(given, self.leaves) and self.leaves[given][0] == "number", "the number of a leaf")
        elif kind == "step":
            _need(_is_index(given, range(self.steps)), "the number of a step")
        else:
            _need(kind == "value" and type(given) in PLAIN, "a value")

    # -- arrays ----------------------------------------------------------------------------------------------

    def type_of(self, place: Any) -> ArrayType:
        """The type of a leaf or a parameter."""
        _need(_is(place, str, object), "a place")
        kind, which = place
        if kind == "leaf":
            _need(_is_index(which, self.leaves), "the number of a leaf")
            leaf = self.leaves[which]
            _need(leaf[0] == "array", "the number of an array")
            found: ArrayType = leaf[2]
            return found
        _need(kind == "parameter" and isinstance(which, str) and which in self.parameters, "a parameter")
        return self.parameters[which]

    def check_inputs(self) -> None:
        """The inputs of the graph."""
        inputs, graph = self.contract.inputs, self.graph
        _need(len(inputs) == len(graph.inputs), "as many inputs as the graph has")
        for value, place in zip(graph.inputs, inputs, strict=True):
            _need(_is(place, str, object), "an input")
            if place[0] == "number":
                self.check_source(place[1])
                _need(value.type.on_host, "the type of a number")
            elif place[0] in ("key", "counter"):
                known = self.contract.draws[0] if self.contract.draws else -1
                _need(value.type == ArrayType((), UINT64, value.type.device), "the type of a draw")
                _need(value.type.on_host and _is_count(place[1]) and place[1] <= known, "a draw")
            else:
                kind = self.type_of(place)
                same = (kind.size, kind.dtype, kind.device) == (
                    value.type.size, value.type.dtype, value.type.device
                )  # fmt: skip
                _need(same, "the type of an input")
        for effect in graph.effects:
            place = inputs[graph.inputs.index(effect.target)]
            _need(place[0] in ("leaf", "parameter"), "the target of an effect")

    def check_made(self, made: Any) -> None:
        """Check the description of a result."""
        _need(isinstance(made, tuple) and len(made) > 1, "a result")
        kind = made[0]
        if kind in ("leaf", "parameter"):
            if kind == "leaf" and _is_index(made[1], self.leaves):
                return
            self.type_of(made)
        elif kind == "container":
            self.tree_at(made[1])
        elif kind == "array":
            _need(_is(made, str, int, View) and _is_index(made[1], self.graph.outputs), "an output")
            view.infer(self.graph.outputs[made[1]].type, view=made[2])
        elif kind == "seen":
            _need(_is(made, str, tuple, View), "a view")
            view.infer(self.type_of(made[1]), view=made[2])
        elif kind == "number":
            self.check_source(made[1])
        elif kind == "tree":
            _need(_is(made, str, str, tuple, tuple) and len(made[2]) == len(made[3]), "a container")
            container = read_kind(made[1])
            if container is None or not all(type(key) in PLAIN for key in made[2]):
                raise _wrong("a kind of container")
            names = [key for key in made[2] if isinstance(key, str) and key.isidentifier()]
            named = len(set(names)) == len(made[2]) and not any(name.startswith("_") for name in names)
            _need(named or not container.is_record, "the fields of a record")
            for part in made[3]:
                self.check_made(part)
        else:
            _need(kind == "value" and type(made[1]) in PLAIN, "a value")

    def check_change(self, change: Any) -> None:
        """Check the description of a rebinding."""
        if _is(change, str, str, tuple) and change[0] == "parameter":
            made = change[2]
            self.check_made(made)
            _need(made[0] == "array" and made[2].shape == self.type_of(change[:2]).shape, "a new content")
            return
        _need(_is(change, str, tuple, object, tuple) and change[0] == "item", "a change")
        _need(change[2] in self.tree_at(change[1])[2], "the key of a change")
        self.check_made(change[3])

    def tree_at(self, where: Any) -> Data:
        """The container at a place among the arguments."""
        arguments = dict(self.contract.arguments)
        _need(isinstance(where, tuple) and bool(where) and where[0] in arguments, "a place of a container")
        tree: Data = arguments[where[0]]
        for key in where[1:]:
            _need(tree[0] == "tree" and key in tree[2], "a place of a container")
            tree = tree[3][tree[2].index(key)]
        _need(tree[0] == "tree", "a place of a container")
        return tree


def _is(data: Any, *kinds: type) -> bool:
    """Whether data is a tuple of parts of these kinds."""
    return (
        isinstance(data, tuple)
        and len(data) == len(kinds)
        and all(isinstance(part, kind) for part, kind in zip(data, kinds, strict=True))
    )


def _is_index(number: Any, of: Sequence[Any]) -> bool:
    return type(number) is int and 0 <= number < len(of)


def _is_count(number: Any) -> bool:
    return type(number) is int and 0 <= number < 1 << 63
