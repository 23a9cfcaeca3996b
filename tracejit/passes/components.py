"""Components that are equal: passes work on one of them, and its kernels are copied for the others.

A component is a part of a graph that shares no array with the rest, not even an input. An update of a weight
is one; a model has thousands of them, most of a few kinds. Components are *twins* if they are equal up to the
names of values: operators, types, attributes, literals, locations, effects and outputs are the same.

    %2 = add(%0, %0)                   %2 = add(%0, %0)                %2 = fused(%0)
    %3 = negative(%2)     reduced      %3 = negative(%2)     passes    %3 = fused(%1)
    %4 = add(%1, %1)         =>        return %3               =>      return %2, %3
    %5 = negative(%4)
    return %3, %5

A component that can fail, or whose order matters, has no twin. Nodes that were recorded as copies of others
(note ``copied``) are compared in one step.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tracejit import ops
from tracejit.config import config
from tracejit.ir.graph import Copied, Effect, Graph, Node, Value
from tracejit.ir.op import CAN_FAIL, ORDERED
from tracejit.ir.types import ArrayType
from tracejit.passes.cse import attributes_key

FEW = 64
"""Graphs of fewer nodes are not searched."""


class Component:
    """A part of a graph that arrays connect.

    inputs: what they use of the graph's inputs, in the order of first use; outputs, effects: positions of
    those that are theirs.
    """

    __slots__ = ("effects", "inputs", "outputs")

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.outputs: list[int] = []
        self.effects: list[int] = []


class TwinComponents(NamedTuple):
    """Components that are twins of one another. The first of them is in the reduced graph."""

    first: Component
    twins: list[Component]


class PartCopy(NamedTuple):
    """A copy of some nodes of a graph, by their positions. Arguments are a graph's inputs, then its outputs;
    those of the copies are of the complete graph.
    """

    nodes: list[int]
    arguments: dict[int, int]


class Copies(NamedTuple):
    """The copies that turn a program of the reduced graph into one of the complete graph.

    behind: by position in the reduced graph: the copies that stand behind a node, in order.
    arguments: the arguments of the complete graph that those of the reduced one are.
    whole: the graph.
    """

    behind: dict[int, list[PartCopy]]
    arguments: list[int]
    whole: Graph


class Twins:
    """A graph, and `reduced`, the same with only the first component of each kind."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.kinds, gone = _kinds(graph)
        absent = [twin for kind in self.kinds for twin in kind.twins]
        self._outputs = _without(len(graph.outputs), (twin.outputs for twin in absent))
        self._effects = _without(len(graph.effects), (twin.effects for twin in absent))
        self.reduced = self._reduced(absent, gone) if absent else graph

    def _reduced(self, absent: Sequence[Component], gone: set[int]) -> Graph:
        graph = self.graph
        kept = [node for position, node in enumerate(graph.nodes) if position not in gone]
        outputs = tuple([graph.outputs[i] for i in self._outputs])
        used = {value for node in kept for value in node.inputs}.union(outputs)
        nodes = [node for node in kept if node.op is not ops.constant or node.output in used]
        theirs = {value for twin in absent for value in twin.inputs if not value.type.on_host}
        inputs = tuple([value for value in graph.inputs if value not in theirs])
        return Graph(inputs, tuple(nodes), outputs, tuple([graph.effects[i] for i in self._effects]))

    def weights(self, passed: Graph) -> dict[Node, int]:
        """The number of copies of each node of `passed`, where that is more than one."""
        return {
            passed.nodes[p]: 1 + len(kind.twins)
            for kind, positions, _ in self._found(passed)
            for p in positions
        }

    def expanded(self, passed: Graph) -> Graph:
        """`passed`, which passes made of `reduced`, with the nodes of all twins, each behind those of the
        first of its kind.
        """
        if self.reduced is self.graph:
            return passed
        results = dict(zip(self._results_left(), passed.results(), strict=True))
        behind: dict[int, list[Node]] = {}
        for kind, positions, values in self._found(passed):
            copies = behind.setdefault(positions[-1] if positions else -1, [])
            for twin in kind.twins:
                theirs = dict(zip(kind.first.inputs, twin.inputs, strict=True))
                copies += [_copied(passed.nodes[p], theirs) for p in positions]
                mine = [theirs.get(value, value) for value in values]
                results.update(zip(self._results_of(twin), mine, strict=True))
        nodes = list(behind.get(-1, ()))
        for p, node in enumerate(passed.nodes):
            nodes += (node, *behind.get(p, ()))
        count = len(self.graph.outputs)
        effects = [Effect(e.target, results[count + i]) for i, e in enumerate(self.graph.effects)]
        return Graph(
            self.graph.inputs, tuple(nodes), tuple([results[i] for i in range(count)]), tuple(effects)
        )

    def copies(self, passed: Graph) -> Copies:
        """The copies that make a program of `passed` one of what `expanded` makes of it, in its order."""
        graph = self.graph
        number = {value: i for i, value in enumerate(graph.inputs)}
        first = len(graph.inputs)
        left = {value: i for i, value in enumerate(self.reduced.inputs)}
        reduced = {output: len(left) + i for i, output in enumerate(self._outputs)}
        behind: dict[int, list[PartCopy]] = {}
        for kind, positions, _ in self._found(passed):
            if not positions:
                continue
            mine = [left[v] for v in kind.first.inputs] + [reduced[i] for i in kind.first.outputs]
            copies = behind.setdefault(positions[-1], [])
            for twin in kind.twins:
                theirs = [number[v] for v in twin.inputs] + [first + i for i in twin.outputs]
                copies.append(PartCopy(positions, dict(zip(mine, theirs, strict=True))))
        arguments = [number[v] for v in left] + [first + i for i in self._outputs]
        return Copies(behind, arguments, graph)

    def _results_of(self, component: Component) -> list[int]:
        """Positions of the results of a component among those of the graph."""
        return component.outputs + [len(self.graph.outputs) + i for i in component.effects]

    def _results_left(self) -> list[int]:
        return self._outputs + [len(self.graph.outputs) + i for i in self._effects]

    def _found(self, passed: Graph) -> Iterator[tuple[TwinComponents, list[int], list[Value]]]:
        """Each kind, the positions in `passed` of nodes that its first component needs, and its results."""
        results = dict(zip(self._results_left(), passed.results(), strict=True))
        made = {value: p for p, node in enumerate(passed.nodes) for value in node.outputs}
        for kind in self.kinds:
            values = [results[i] for i in self._results_of(kind.first)]
            needed: set[int] = set()
            pending = list(values)
            for value in pending:
                position = made.get(value)
                if position is not None and position not in needed and not value.type.on_host:
                    needed.add(position)
                    pending += passed.nodes[position].inputs
            yield kind, sorted(needed), values


def _without(count: int, taken: Iterable[Iterable[int]]) -> list[int]:
    """The positions up to `count` that are not `taken`."""
    gone = {position for positions in taken for position in positions}
    return [position for position in range(count) if position not in gone]


def _copied(node: Node, values: dict[Value, Value]) -> Node:
    """`node` on other values; its outputs are added to them."""
    outputs = tuple([Value(v.type) for v in node.outputs])
    values.update(zip(node.outputs, outputs, strict=True))
    inputs = tuple([values.get(v, v) for v in node.inputs])
    return Node(node.op, inputs, outputs, node.attrs, node.location)


# ------------------------------------------------------------------------------------------- finding them


class _Step(NamedTuple):
    """A node, or nodes that are known to be copies of others.

    positions: in the graph; inputs: what is used and not computed; outputs: what is computed.
    """

    positions: Sequence[int]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    what: Node | Copied


def _steps(graph: Graph) -> list[_Step]:
    """The nodes of the graph, but for constants, as steps."""
    nodes = graph.nodes
    left = [position for position, node in enumerate(nodes) if node.op is not ops.constant]
    copied: dict[Node, Copied] = {c.nodes[0]: c for c in graph.notes.get("copied", ()) if c.nodes}
    steps: list[_Step] = []
    at = 0
    while at < len(left):
        node = nodes[left[at]]
        known = copied.get(node)
        if known is not None:
            positions = left[at : at + len(known.nodes)]
            if list(map(nodes.__getitem__, positions)) == known.nodes:
                steps.append(_Step(positions, known.inputs, known.outputs, known))
                at += len(positions)
                continue
        steps.append(_Step((left[at],), node.inputs, node.outputs, node))
        at += 1
    return steps


def _is_apart(node: Node) -> bool:
    """Whether a component with this node has no twin."""
    return CAN_FAIL in node.op.traits or ORDERED in node.op.traits


def _kinds(graph: Graph) -> tuple[list[TwinComponents], set[int]]:
    """The components that have twins, and the positions of the nodes of all twins."""
    gone: set[int] = set()
    if len(graph.nodes) < FEW or "components" in config.disable:
        return [], gone
    found = _components(graph, _steps(graph))
    if len(found) < 2:
        return [], gone
    names = _Names()
    literals = {node.output: attributes_key(node.attrs) for node in graph.nodes if node.op is ops.constant}
    given, kinds = frozenset(graph.inputs), dict[Hashable, TwinComponents]()
    for component, steps in found:
        key = _key(graph, component, steps, given, literals, names)
        if key is None:
            continue
        if key in kinds:
            kinds[key].twins.append(component)
            for step in steps:
                gone.update(step.positions)
        else:
            kinds[key] = TwinComponents(component, [])
    return [kind for kind in kinds.values() if kind.twins], gone


def _components(graph: Graph, steps: Sequence[_Step]) -> list[tuple[Component, list[_Step]]]:
    """All components that have nodes, with these."""
    parents: list[int] = []
    number: dict[Value, int] = {}  # of arrays: any number in its component

    def root(position: int) -> int:
        while parents[position] != position:
            parents[position] = position = parents[parents[position]]
        return position

    def connect(values: Iterable[Value]) -> int:
        """A number of the component of some arrays, which become one; -1 if there are none."""
        first = -1
        for value in values:
            if value.type.on_host:
                continue
            known = number.get(value)
            if known is not None:
                other = root(known)
                first = other if first < 0 else first
                parents[other] = first
            elif first < 0:
                first = number[value] = len(parents)
                parents.append(first)
            else:
                number[value] = first
        return first

    of_steps: list[int] = []
    for step in steps:
        known = connect(step.inputs)
        if known < 0:
            known = connect(step.outputs)
        else:
            number.update(dict.fromkeys(step.outputs, known))  # numbers, too, which are never looked up
        of_steps.append(known)
    for effect in graph.effects:
        connect((effect.target, effect.value))
    found: dict[int, tuple[Component, list[_Step]]] = {}
    for step, known in zip(steps, of_steps, strict=True):
        if known >= 0:
            place = root(known)
            if place not in found:
                found[place] = Component(), []
            found[place][1].append(step)

    nobody = None, ()

    def owner(value: Value) -> Component | None:
        if value.type.on_host or value not in number:
            return None
        component, _ = found.get(root(number[value]), nobody)
        return component

    for position, value in enumerate(graph.outputs):
        if (component := owner(value)) is not None:
            component.outputs.append(position)
    for position, effect in enumerate(graph.effects):
        if (component := owner(effect.value)) is not None:
            component.effects.append(position)
    return list(found.values())


class _Names:
    """Small numbers for types, attributes and kinds of copies in keys: hashing these is slow, and most equal
    ones are one object.
    """

    def __init__(self) -> None:
        self._equal: dict[Hashable, int] = {}
        self._same: dict[int, int] = {}
        self._kinds: dict[int, int | None] = {}

    def of_type(self, type: ArrayType) -> int:
        found = self._same.get(id(type))
        return self._add(id(type), type) if found is None else found

    def of_step(self, what: Node | Copied) -> Hashable | None:
        """Equal for steps that do the same to their inputs; None for one that can have no twin."""
        if isinstance(what, Node):
            return None if _is_apart(what) else (what.op, self.of_attributes(what.attrs), what.location)
        known = id(what.kind)
        if known not in self._kinds:
            self._kinds[known] = None if any(map(_is_apart, what.nodes)) else -1 - len(self._kinds)
        return self._kinds[known]

    def of_attributes(self, attrs: Mapping[str, Any]) -> int:
        found = self._same.get(id(attrs))
        return self._add(id(attrs), attributes_key(attrs)) if found is None else found

    def _add(self, identity: int, key: Hashable) -> int:
        found = self._same[identity] = self._equal.setdefault(key, len(self._equal))
        return found


def _key(
    graph: Graph,
    component: Component,
    steps: Sequence[_Step],
    given: frozenset[Value],
    literals: Mapping[Value, Hashable],
    names: _Names,
) -> Hashable | None:
    """A key that is equal for twins; None if there are none. Finds the inputs of `component`, which must be
    among those `given`.
    """
    local: dict[Value, Hashable] = {}
    inputs = component.inputs

    def name(value: Value) -> Hashable:
        found = local.get(value)
        if found is None:
            found = literals.get(value)
            if found is None:
                found = len(local), names.of_type(value.type)
                inputs.append(value)
            local[value] = found
        return found

    key: list[Hashable] = []
    for step in steps:
        does = names.of_step(step.what)
        if does is None:
            return None
        key += (does, *map(name, step.inputs))
        local.update(zip(step.outputs, itertools.count(len(local))))
    key += [name(graph.outputs[i]) for i in component.outputs]
    key.append(len(component.outputs))
    for i in component.effects:
        effect = graph.effects[i]
        key += [local.get(value) or name(value) for value in (effect.target, effect.value)]
    return tuple(key) if given.issuperset(inputs) else None
