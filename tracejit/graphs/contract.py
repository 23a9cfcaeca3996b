"""The contract of a kept graph: what a call takes, gives and changes, as plain data.

A contract and its graph are one text, that of a call for some extents, or with their names. So what one sees
in a file, and in `print(graph)`, is all there is:

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

Leaves are those of all arguments, in order. Parts are tuples that begin with what they are; `Contract` lists
them.
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
    """An error at the user's line."""
    return locate(kind(message), user_location())


@dataclass(frozen=True)
class Contract:
    """The arguments, results and changes of a call.

    function:   its name.
    extents:    the names of extents.
    arguments:  (name, tree) for each; a tree is ("array", path, type), ("number", path, "int" or "float"),
                ("value", path, value), or ("tree", kind, keys, trees), the kind as a text of `containers`.
    parameters: (name, type) of the arrays that are kept with the graph.
    numbers:    what is computed of numbers, and checked, in order: ("compute", form, sources) or
                ("check", form, sources, value, text). A source is ("leaf", i), ("step", i) or ("value", x).
    draws:      how many random numbers each draw takes, in order.
    inputs:     of the graph: ("leaf", i), ("parameter", name), ("number", source), ("key", draw) or
                ("counter", draw).
    result:     how it is made: ("leaf", i), ("container", path), ("parameter", name), ("array", output,
                view), ("seen", ("leaf", i) or ("parameter", name), view), ("number", source), ("value", x) or
                ("tree", kind, keys, parts).
    changes:    what is rebound after the graph's effects: ("item", path, key, how it is made) in containers
                among the arguments, ("parameter", name, how it is made).
    rules:      lines of functions whose own gradient the graph does not know.
    lines:      (file:line, function, text) of the user's lines, to be shown.
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
    """A contract and its graph as text."""
    lines = [f"{FORMAT} {VERSION}"]
    lines += [f"{field.name} = {write(getattr(contract, field.name))}" for field in fields(Contract)]
    return "\n".join([*lines, write_graph(graph), ""])


def read_contract(
    text: str, extents: Extents | None = None, moved: Mapping[Device, Device] | None = None
) -> tuple[Contract, Graph]:
    """The contract and the graph that a text says, for some extents, or with their names; on other devices
    where `moved` has one for a device of the text.

    Raises ArgumentError for what is no such text.
    """
    head, _, rest = text.partition("\n")
    if head != f"{FORMAT} {VERSION}":
        raise ArgumentError(
            f"this is {head!r}, and this version of tracejit reads {FORMAT} {VERSION}; export the function "
            "again with this version, or load the graph with the version that wrote it"
        )
    parser = Parser(rest, extents, moved)
    found: dict[str, Any] = {}
    for field in fields(Contract):
        if parser.next(_NAME, field.name) != field.name:
            parser.position -= 1
            parser.fail(field.name)
        parser.take("=")
        found[field.name] = parser.value()
        if not isinstance(found[field.name], str if field.name == "function" else tuple):
            raise ArgumentError(f"{field.name} is {found[field.name]!r}")
    graph = parser.graph()
    parser.end()
    for node in graph.nodes:
        if {Trait.ORDERED, Trait.COMPILED} & node.op.traits:
            raise ArgumentError(f"a kept graph has no operator {node.op.name}")
    return Contract(**found), graph


def devices_of(contract: Contract, graph: Graph) -> list[Device]:
    """The devices of the arrays of a graph, in order."""
    values = [*graph.inputs, *(value for node in graph.nodes for value in node.outputs)]
    arrays = [leaf[2] for leaf in leaves_of(contract) if leaf[0] == "array"]
    kinds: list[ArrayType] = [*arrays, *(kind for _, kind in contract.parameters), *(v.type for v in values)]
    return [device for device in dict.fromkeys(kind.device for kind in kinds) if device != HOST]


def leaves_of(contract: Contract) -> list[Data]:
    """The leaves of all arguments, in order."""
    found: list[Data] = []
    pending = [tree for _, tree in reversed(contract.arguments)]
    while pending:
        tree = pending.pop()
        if tree[0] == "tree":
            pending += reversed(tree[3])
        else:
            found.append(tree)
    return found
