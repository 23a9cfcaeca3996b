"""The contract of an exported graph: the arguments, results and changes of a call, as plain data.

A contract and its graph are written as one text, for specific or for named extents. The text is the complete
content of a file (besides parameters), and of `print(graph)`:

    tracejit graph 1
    function = "scale"
    extents = ("batch",)
    arguments = (("x", ("array", "x", float32[batch,4])), ("by", ("number", "by", "float")))
    parameters = ()
    numbers = ()
    draws = ()
    inputs = (("leaf", 0), ("number", ("leaf", 1)))
    result = ("array", 0, 0+[batch,4]:[4,1])
    changes = ()
    rules = ()
    lines = (("model.py:3", "scale", "return x * by"),)
    graph(%0: float32[batch,4], %1: float32) {
      ...
    }

Leaves are numbered over all arguments, in order. Items are tuples whose first element is a tag; `Contract`
lists them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tracejit.errors import ArgumentError, TracejitError, locate
from tracejit.frontend.recording.location import user_location
from tracejit.ir.extents import Extents
from tracejit.ir.graph import Graph
from tracejit.ir.op import Trait
from tracejit.ir.text import Parser, write, write_graph
from tracejit.ir.types import HOST, ArrayType, Device

FORMAT, VERSION = "tracejit graph", 1
_NAME = re.compile(r"[a-z]+")

Data = tuple[Any, ...]


def refuse(message: str, kind: type[TracejitError] = ArgumentError) -> TracejitError:
    """Create an error with the location of the user's line."""
    return locate(kind(message), user_location())


@dataclass(frozen=True)
class Contract:
    """The arguments, results and changes of a call.

    function:   the name of the exported function.
    extents:    the names of extents.
    arguments:  (name, tree) for each; a tree is ("array", path, type), ("number", path, "int" or "float"),
                ("value", path, value), or ("tree", kind, keys, trees), with a kind of `containers` as text.
    parameters: (name, type) of the arrays that are stored with the graph.
    numbers:    computations with numbers and guards, in order: ("compute", form, sources) or ("check", form,
                sources, value, text). A source is ("leaf", i), ("step", i) or ("value", x).
    draws:      (n,) if n random numbers are drawn in total, else ().
    inputs:     origins of the graph's inputs: ("leaf", i), ("parameter", name), ("number", source),
                ("key", draw) or ("counter", offset).
    result:     the recipe of the result. A recipe is ("leaf", i), ("container", key path), ("parameter",
                name), ("array", output, view), ("seen", ("leaf", i) or ("parameter", name), view),
                ("number", source), ("value", x) or ("tree", kind, keys, recipes).
    changes:    rebindings after the graph's effects: ("item", key path, key, recipe) in containers among the
                arguments, or ("parameter", name, recipe). A key path is (argument name, key, ...).
    rules:      locations of functions with a custom gradient, which the graph does not represent.
    lines:      (file:line, function, source text) of the user's lines, for display.
    """

    function: str
    extents: tuple[str, ...]
    arguments: Data
    parameters: Data
    numbers: Data
    draws: Data
    inputs: Data
    result: Data
    changes: Data
    rules: Data
    lines: Data


def write_contract(contract: Contract, graph: Graph) -> str:
    """Write a contract and its graph as text."""
    lines = [f"{FORMAT} {VERSION}"]
    lines += [f"{field.name} = {write(getattr(contract, field.name))}" for field in fields(Contract)]
    return "\n".join([*lines, write_graph(graph), ""])


def read_contract(
    text: str, extents: Extents | None = None, moved: Mapping[Device, Device] | None = None
) -> tuple[Contract, Graph]:
    """Parse a text; return the contract and the graph.

    extents: values of the named extents; None: leave them symbolic.
    moved:   replacements of devices.
    Raises ArgumentError if the text is not a contract.
    """
    head, _, body = text.partition("\n")
    if head != f"{FORMAT} {VERSION}":
        raise ArgumentError(
            f"this is {head!r}, and this version of tracejit reads {FORMAT} {VERSION}; export the function "
            "again with this version, or load the graph with the version that wrote it"
        )
    parser = Parser(body, extents, moved)
    field_values: dict[str, Any] = {}
    for field in fields(Contract):
        if parser.next(_NAME, field.name) != field.name:
            parser.position -= 1
            parser.fail(field.name)
        parser.take("=")
        field_values[field.name] = parser.value()
        if not isinstance(field_values[field.name], str if field.name == "function" else tuple):
            raise ArgumentError(f"{field.name} is {field_values[field.name]!r}")
    graph = parser.graph()
    parser.end()
    for node in graph.nodes:
        if {Trait.ORDERED, Trait.COMPILED} & node.op.traits:
            raise ArgumentError(f"a kept graph has no operator {node.op.name}")
    return Contract(**field_values), graph


def devices_of(contract: Contract, graph: Graph) -> list[Device]:
    """The devices of all arrays of a graph and its contract, without duplicates."""
    values = [*graph.inputs, *(value for node in graph.nodes for value in node.outputs)]
    arrays = [leaf[2] for leaf in leaves_of(contract) if leaf[0] == "array"]
    kinds: list[ArrayType] = [*arrays, *(kind for _, kind in contract.parameters), *(v.type for v in values)]
    return [device for device in dict.fromkeys(kind.device for kind in kinds) if device != HOST]


def leaves_of(contract: Contract) -> list[Data]:
    """Return the leaves of all arguments, in order."""
    leaves: list[Data] = []
    pending = [tree for _, tree in reversed(contract.arguments)]
    while pending:
        tree = pending.pop()
        if tree[0] == "tree":
            pending += reversed(tree[3])
        else:
            leaves.append(tree)
    return leaves
