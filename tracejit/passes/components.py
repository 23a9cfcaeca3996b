"""Deduplication of equal components: passes work on one of them, and its kernels are copied for the others.

A component is a subgraph that shares no array with the rest of the graph, not even an input. The update of a
weight is a component; a model has thousands of them, most of a few kinds. Components are *twins* if they are
equal up to the identity of values: operators, types, attributes, literals, locations, effects and outputs are
the same.

    %2 = add(%0, %0)                   %2 = add(%0, %0)                %2 = fused(%0)
    %3 = negative(%2)     reduced      %3 = negative(%2)     passes    %3 = fused(%1)
    %4 = add(%1, %1)         =>        return %3               =>      return %2, %3
    %5 = negative(%4)
    return %3, %5

A component that can fail, or whose order is observable, has no twin. Nodes that were recorded as copies of
other nodes (note ``copied``) are compared in a single step.
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

MIN_NODES = 64
"""The least number of nodes of a graph that is searched."""


class Component:
    """A subgraph that is connected by arrays.

    inputs: the graph's inputs that it uses, in the order of first use. outputs, effects: the positions of its
    outputs and effects among those of the graph.
    """

    __slots__ = ("effects", "inputs", "outputs")

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.outputs: list[int] = []
        self.effects: list[int] = []


class TwinComponents(NamedTuple):
    """Components that are twins of one another. The reduced graph contains the first only."""

    first: Component
    twins: list[Component]


class ComponentCopy(NamedTuple):
    """A copy of the nodes of a component for one of its twins.

    nodes: the positions of the nodes. arguments: the argument of the complete graph that replaces each
    argument of the reduced graph; the arguments of a graph are its inputs and then its outputs.
    """

    nodes: list[int]
    arguments: dict[int, int]


class Copies(NamedTuple):
    """The copies that turn a program of the reduced graph into one of the complete graph.

    copies_after: by position of a node in the reduced graph, the copies that follow it, in order.
    arguments: for each argument of the reduced graph, the same argument of the complete graph.
    complete_graph: the complete graph.
    """

    copies_after: dict[int, list[ComponentCopy]]
    arguments: list[int]
    complete_graph: Graph


class Twins:
    """A graph, and `reduced`, the same graph with only the first component of each kind of twins."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.kinds, removed = _kinds(graph)
        absent = [twin for kind in self.kinds for twin in kind.twins]
        self._outputs = _without(len(graph.outputs), (twin.outputs for twin in absent))
        self._effects = _without(len(graph.effects), (twin.effects for twin in absent))
        self.reduced = self._reduced(absent, removed) if absent else graph

    def _reduced(self, absent: Sequence[Component], removed: set[int]) -> Graph:
        graph = self.graph
        kept = [node for position, node in enumerate(graph.nodes) if position not in removed]
        outputs = tuple([graph.outputs[i] for i in self._outputs])
        used = {value for node in kept for value in node.inputs}.union(outputs)
        nodes = [node for node in kept if node.op is not ops.constant or node.output in used]
        twin_inputs = {value for twin in absent for value in twin.inputs if not value.type.on_host}
        inputs = tuple([value for value in graph.inputs if value not in twin_inputs])
        return Graph(inputs, tuple(nodes), outputs, tuple([graph.effects[i] for i in self._effects]))

    def weights(self, passed: Graph) -> dict[Node, int]:
        """The number of components that each node of `passed` represents, where it is more than one."""
        return {
            passed.nodes[p]: 1 + len(kind.twins)
            for kind, positions, _ in self._components_in(passed)
            for p in positions
        }

    def expanded(self, passed: Graph) -> Graph:
        """Add the nodes of all twins to `passed`, the result of passes on `reduced`.

        The nodes of a twin follow those of the first component of its kind.
        """
        if self.reduced is self.graph:
            return passed
        results = dict(zip(self._results_left(), passed.results(), strict=True))
        copies_after: dict[int, list[Node]] = {}
        for kind, positions, values in self._components_in(passed):
            copies = copies_after.setdefault(positions[-1] if positions else -1, [])
            for twin in kind.twins:
                replaced = dict(zip(kind.first.inputs, twin.inputs, strict=True))
                copies += [_copied(passed.nodes[p], replaced) for p in positions]
                twin_results = [replaced.get(value, value) for value in values]
                results.update(zip(self._results_of(twin), twin_results, strict=True))
        nodes = list(copies_after.get(-1, ()))
        for p, node in enumerate(passed.nodes):
            nodes += (node, *copies_after.get(p, ()))
        n_outputs = len(self.graph.outputs)
        effects = [Effect(e.target, results[n_outputs + i]) for i, e in enumerate(self.graph.effects)]
        return Graph(
            self.graph.inputs, tuple(nodes), tuple([results[i] for i in range(n_outputs)]), tuple(effects)
        )

    def copies(self, passed: Graph) -> Copies:
        """The copies that turn a program of `passed` into one of ``expanded(passed)``, in the same order."""
        graph = self.graph
        input_index = {value: i for i, value in enumerate(graph.inputs)}
        n_inputs = len(graph.inputs)
        reduced_index = {value: i for i, value in enumerate(self.reduced.inputs)}
        reduced_outputs = {output: len(reduced_index) + i for i, output in enumerate(self._outputs)}
        copies_after: dict[int, list[ComponentCopy]] = {}
        for kind, positions, _ in self._components_in(passed):
            if not positions:
                continue
            first_arguments = [reduced_index[v] for v in kind.first.inputs] + [
                reduced_outputs[i] for i in kind.first.outputs
            ]
            copies = copies_after.setdefault(positions[-1], [])
            for twin in kind.twins:
                twin_arguments = [input_index[v] for v in twin.inputs] + [n_inputs + i for i in twin.outputs]
                copies.append(
                    ComponentCopy(positions, dict(zip(first_arguments, twin_arguments, strict=True)))
                )
        arguments = [input_index[v] for v in reduced_index] + [n_inputs + i for i in self._outputs]
        return Copies(copies_after, arguments, graph)

    def _results_of(self, component: Component) -> list[int]:
        """The positions of the results of a component among those of the graph."""
        return component.outputs + [len(self.graph.outputs) + i for i in component.effects]

    def _results_left(self) -> list[int]:
        return self._outputs + [len(self.graph.outputs) + i for i in self._effects]

    def _components_in(self, passed: Graph) -> Iterator[tuple[TwinComponents, list[int], list[Value]]]:
        """Yield each kind, the positions in `passed` of the nodes of its first component, and its results."""
        results = dict(zip(self._results_left(), passed.results(), strict=True))
        position_of = {value: p for p, node in enumerate(passed.nodes) for value in node.outputs}
        for kind in self.kinds:
            values = [results[i] for i in self._results_of(kind.first)]
            needed: set[int] = set()
            pending = list(values)
            for value in pending:
                position = position_of.get(value)
                if position is not None and position not in needed and not value.type.on_host:
                    needed.add(position)
                    pending += passed.nodes[position].inputs
            yield kind, sorted(needed), values


def _without(count: int, taken: Iterable[Iterable[int]]) -> list[int]:
    """The positions less than `count` that are not in `taken`."""
    excluded = {position for positions in taken for position in positions}
    return [position for position in range(count) if position not in excluded]


def _copied(node: Node, values: dict[Value, Value]) -> Node:
    """Copy `node` on the replacements in `values`; its new outputs are added to `values`."""
    outputs = tuple([Value(v.type) for v in node.outputs])
    values.update(zip(node.outputs, outputs, strict=True))
    inputs = tuple([values.get(v, v) for v in node.inputs])
    return Node(node.op, inputs, outputs, node.attrs, node.location)


# -------------------------------------------------------------------------------------------------- search


class _Step(NamedTuple):
    """A node, or several nodes that are known to be copies of others.

    positions: those of the nodes in the graph. inputs: the values that are used and not computed. outputs:
    the values that are computed. what: the node, or the note about the copied nodes.
    """

    positions: Sequence[int]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    what: Node | Copied


def _steps(graph: Graph) -> list[_Step]:
    """The nodes of the graph except constants, as steps."""
    nodes = graph.nodes
    remaining = [position for position, node in enumerate(nodes) if node.op is not ops.constant]
    copied: dict[Node, Copied] = {c.nodes[0]: c for c in graph.notes.get("copied", ()) if c.nodes}
    steps: list[_Step] = []
    index = 0
    while index < len(remaining):
        node = nodes[remaining[index]]
        copy = copied.get(node)
        if copy is not None:
            positions = remaining[index : index + len(copy.nodes)]
            if list(map(nodes.__getitem__, positions)) == copy.nodes:
                steps.append(_Step(positions, copy.inputs, copy.outputs, copy))
                index += len(positions)
                continue
        steps.append(_Step((remaining[index],), node.inputs, node.outputs, node))
        index += 1
    return steps


def _has_no_twin(node: Node) -> bool:
    """Whether a component that contains this node has no twin."""
    return CAN_FAIL in node.op.traits or ORDERED in node.op.traits


def _kinds(graph: Graph) -> tuple[list[TwinComponents], set[int]]:
    """The components that have twins, and the positions of the nodes of these twins."""
    removed: set[int] = set()
    if len(graph.nodes) < MIN_NODES or "components" in config.disable:
        return [], removed
    components = _components(graph, _steps(graph))
    if len(components) < 2:
        return [], removed
    names = _Names()
    literals = {node.output: attributes_key(node.attrs) for node in graph.nodes if node.op is ops.constant}
    graph_inputs, kinds = frozenset(graph.inputs), dict[Hashable, TwinComponents]()
    for component, steps in components:
        key = _key(graph, component, steps, graph_inputs, literals, names)
        if key is None:
            continue
        if key in kinds:
            kinds[key].twins.append(component)
            for step in steps:
                removed.update(step.positions)
        else:
            kinds[key] = TwinComponents(component, [])
    return [kind for kind in kinds.values() if kind.twins], removed


def _components(graph: Graph, steps: Sequence[_Step]) -> list[tuple[Component, list[_Step]]]:
    """All components that have nodes, with their steps, by union-find over arrays."""
    parents: list[int] = []
    index_of: dict[Value, int] = {}  # of arrays: the index in `parents` of any array of the same component

    def root(position: int) -> int:
        while parents[position] != position:
            parents[position] = position = parents[parents[position]]
        return position

    def connect(values: Iterable[Value]) -> int:
        """Merge the components of the arrays among `values`; return an index of it, or -1 without arrays."""
        first = -1
        for value in values:
            if value.type.on_host:
                continue
            index = index_of.get(value)
            if index is not None:
                other_root = root(index)
                first = other_root if first < 0 else first
                parents[other_root] = first
            elif first < 0:
                first = index_of[value] = len(parents)
                parents.append(first)
            else:
                index_of[value] = first
        return first

    step_indices: list[int] = []
    for step in steps:
        index = connect(step.inputs)
        if index < 0:
            index = connect(step.outputs)
        else:
            index_of.update(
                dict.fromkeys(step.outputs, index)
            )  # includes host numbers, which are never looked up
        step_indices.append(index)
    for effect in graph.effects:
        connect((effect.target, effect.value))
    by_root: dict[int, tuple[Component, list[_Step]]] = {}
    for step, index in zip(steps, step_indices, strict=True):
        if index >= 0:
            root_index = root(index)
            if root_index not in by_root:
                by_root[root_index] = Component(), []
            by_root[root_index][1].append(step)

    no_component = None, ()

    def owner(value: Value) -> Component | None:
        if value.type.on_host or value not in index_of:
            return None
        component, _ = by_root.get(root(index_of[value]), no_component)
        return component

    for position, value in enumerate(graph.outputs):
        if (component := owner(value)) is not None:
            component.outputs.append(position)
    for position, effect in enumerate(graph.effects):
        if (component := owner(effect.value)) is not None:
            component.effects.append(position)
    return list(by_root.values())


class _Names:
    """Integers that represent types, attributes and kinds of copies in keys, as hashing these is slow.

    Most equal ones are the same object, so they are looked up by identity first.
    """

    def __init__(self) -> None:
        self._equal: dict[Hashable, int] = {}
        self._same: dict[int, int] = {}
        self._kinds: dict[int, int | None] = {}

    def of_type(self, type: ArrayType) -> int:
        number = self._same.get(id(type))
        return self._add(id(type), type) if number is None else number

    def of_step(self, what: Node | Copied) -> Hashable | None:
        """A key that is equal for steps with the same operators; None if the step has no twin."""
        if isinstance(what, Node):
            return None if _has_no_twin(what) else (what.op, self.of_attributes(what.attrs), what.location)
        identity = id(what.kind)
        if identity not in self._kinds:
            self._kinds[identity] = None if any(map(_has_no_twin, what.nodes)) else -1 - len(self._kinds)
        return self._kinds[identity]

    def of_attributes(self, attrs: Mapping[str, Any]) -> int:
        number = self._same.get(id(attrs))
        return self._add(id(attrs), attributes_key(attrs)) if number is None else number

    def _add(self, identity: int, key: Hashable) -> int:
        number = self._same[identity] = self._equal.setdefault(key, len(self._equal))
        return number


def _key(
    graph: Graph,
    component: Component,
    steps: Sequence[_Step],
    graph_inputs: frozenset[Value],
    literals: Mapping[Value, Hashable],
    names: _Names,
) -> Hashable | None:
    """Return a key that is equal for twins, or None if the component has none.

    Also fills in the inputs of `component`; if one is not an input of the graph, in `graph_inputs`, there is
    no twin.
    """
    local: dict[Value, Hashable] = {}
    inputs = component.inputs

    def name(value: Value) -> Hashable:
        label = local.get(value)
        if label is None:
            label = literals.get(value)
            if label is None:
                label = len(local), names.of_type(value.type)
                inputs.append(value)
            local[value] = label
        return label

    key: list[Hashable] = []
    for step in steps:
        operation = names.of_step(step.what)
        if operation is None:
            return None
        key += (operation, *map(name, step.inputs))
        local.update(zip(step.outputs, itertools.count(len(local))))
    key += [name(graph.outputs[i]) for i in component.outputs]
    key.append(len(component.outputs))
    for i in component.effects:
        effect = graph.effects[i]
        key += [local.get(value) or name(value) for value in (effect.target, effect.value)]
    return tuple(key) if graph_inputs.issuperset(inputs) else None
