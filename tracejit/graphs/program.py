"""`GraphProgram`: the callable form of a graph's text.

`GraphProgram.call` runs a traced function whose body matches the arguments, determines the extents, and emits
the graph's nodes for these extents onto the open recording. So a call from eager code is replayed like that
of any other traced function, and inside a trace or under a gradient the nodes become part of that trace.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tracejit.drawing.drawing import Drawing
from tracejit.drawing.user_lines import Line
from tracejit.errors import ShapeError
from tracejit.frontend.arrays import dispatch, trees
from tracejit.frontend.arrays.axes import new_shape
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.arrays.random.streams import stream, stream_values
from tracejit.frontend.grad.reverse import value_and_grad
from tracejit.frontend.jit.jit import jit
from tracejit.frontend.python.kinds import Vouched
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.number import concrete, is_number
from tracejit.frontend.recording.operations import OPERATIONS, TYPE_QUESTIONS
from tracejit.frontend.recording.recording import Recording, lock, quiet, thread
from tracejit.graphs.containers import read_kind
from tracejit.graphs.contract import (
    Contract,
    Data,
    devices_of,
    leaves_of,
    read_contract,
    refuse,
    write_contract,
)
from tracejit.graphs.general import MAX_EXTENT_NAMES, points_for
from tracejit.graphs.interface import RESULT, GraphInterface, interface_of, names_of
from tracejit.graphs.results import Results, fill_tree
from tracejit.graphs.safety import with_checked_indices
from tracejit.graphs.validate import check_contract
from tracejit.ir.extents import Polynomial, solve
from tracejit.ir.graph import Graph, Value
from tracejit.ir.text import write_type
from tracejit.ir.types import CPU, ArrayType, Device, is_inexact
from tracejit.ir.view import View
from tracejit.ops import view

DRAWN_EXTENT = 64  # the default extent for drawing kernels
MAX_INSTANCES = 64  # maximum number of cached graphs for different extents


class SizedGraph:
    """A contract and its graph for some extents."""

    def __init__(self, contract: Contract, graph: Graph) -> None:
        self.contract, self.graph, self.leaves = contract, graph, leaves_of(contract)


class GraphProgram(Vouched):
    """A text, with a cache of its graphs for specific extents.

    named:      the contract and graph with named extents.
    is_foreign: whether the text comes from a file, and must be validated.
    """

    def __init__(self, text: str, *, is_foreign: bool = False) -> None:
        self.text, self.is_foreign = text, is_foreign
        self._instances: dict[tuple[int, ...], SizedGraph] = {}
        contract, graph = read_contract(text)
        if is_foreign:  # before its content is used
            check_contract(*read_contract(text, points_for(contract.extents[:MAX_EXTENT_NAMES])[0]))
        self.named = SizedGraph(contract, graph)

        def body(parameters: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._emit(parameters, args, kwargs)

        body.__name__ = body.__qualname__ = self.named.contract.function
        self.traced = jit(body)
        self.traced_gradient = jit(functools.partial(_value_and_gradients, body))

    def at(self, extents: Mapping[str, int]) -> SizedGraph:
        """Return the contract and graph for these extents."""
        key = tuple(extents[name] for name in self.named.contract.extents)
        instance = self._instances.get(key)
        if instance is None:
            contract, graph = read_contract(self.text, extents)
            if self.is_foreign:
                check_contract(contract, graph)
                graph = with_checked_indices(graph)
            instance = SizedGraph(contract, graph)
            if len(self._instances) >= MAX_INSTANCES:
                self._instances.clear()
            self._instances[key] = instance
        return instance

    def call(self, parameters: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the graph."""
        return self.traced(parameters, args, kwargs)

    def gradient(
        self, wrt: dict[str, NDArray], parameters: dict[str, Any], args: tuple[Any, ...], of: str
    ) -> tuple[Any, dict[str, Any]]:
        """Call the graph; return the result, and the gradients of its output `of` with respect to `wrt`."""
        result, gradients = self.traced_gradient(wrt, parameters, args, of)
        return result, gradients

    def argument_names(self) -> list[str]:
        """The names of arguments, in order."""
        return [name for name, _ in self.named.contract.arguments]

    def arguments_of(self, leaves: Iterable[Any]) -> tuple[Any, ...]:
        """Build the arguments of a call from its leaves, in new containers."""
        iterator = iter(leaves)
        return tuple(fill_tree(tree, iterator) for _, tree in self.named.contract.arguments)

    def _emit(self, parameters: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        matched = self.match(args, kwargs)
        contract = self.named.contract
        if contract.rules and thread.tapes:
            raise refuse(
                f"{contract.function} has no gradient: it calls a function with a gradient of its own at "
                f"{contract.rules[0]}, which the graph does not know; take the gradient inside the exported "
                "function"
            )
        instance = self.at(self.extents(matched.leaves))
        return _Emission(instance, parameters, matched).run()

    def on(self, device: Device) -> str:
        """Return the text of the graph for another device."""
        contract, graph = self.named.contract, self.named.graph
        used = devices_of(contract, graph)
        if len(used) > 1:
            raise refuse(
                f"{contract.function} computes on {' and '.join(map(str, used))}; only a graph on one device "
                "moves to another one"
            )
        return write_contract(*read_contract(self.text, moved=dict.fromkeys(used, device)))

    # -- inspection ------------------------------------------------------------------------------------------

    def infer(self, given: Mapping[str, Any]) -> GraphInterface:
        """Return the interface for extents or shapes of inputs by name; symbolic if none are given."""
        if not given and self.named.contract.extents:
            return interface_of(self.named.contract, self.named.graph, {})
        extents = self._extents_given(given)
        instance = self.at(extents)
        return interface_of(instance.contract, instance.graph, extents)

    def graph(self, given: Mapping[str, Any]) -> Graph:
        """Return the graph for extents or shapes of inputs by name."""
        return self.at(self._extents_given(given)).graph

    def _extents_given(self, given: Mapping[str, Any]) -> dict[str, int]:
        contract, leaves = self.named.contract, self.named.leaves
        arrays = {leaf[1] for leaf in leaves if leaf[0] == "array"}
        known: dict[str, int] = {}
        for name, value in given.items():
            if name in contract.extents:
                (known[name],) = new_shape("infer", (value,))
            elif name not in arrays:
                names = ", ".join([*contract.extents, *sorted(arrays)])
                raise refuse(f"{contract.function} has no array or extent {name!r}; it has {names}")
        shapes = [new_shape("infer", given[leaf[1]]) if leaf[1] in given else None for leaf in leaves]
        return self.extents_of(shapes, known)

    def drawing(self, given: Mapping[str, Any]) -> Drawing:
        """Draw the graph for extents or shapes of inputs by name."""
        contract = self.named.contract
        extents = self._extents_given(given or dict.fromkeys(contract.extents, DRAWN_EXTENT))
        lines = {location: Line(function, code) for location, function, code in contract.lines}
        shown_extents = ", ".join(f"{name}={n}" for name, n in extents.items())
        return Drawing(
            contract.function,
            self.at(extents).graph,
            names_of(contract),
            lambda location: lines.get(location or "", Line("", "")),
            shown=self.named.graph,
            extents=f" for {shown_extents}" if shown_extents else "",
        )

    def trained(self, parameters: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """The floating parameters that no call writes."""
        written = self.infer({}).effects if parameters else {}
        return {n: x for n, x in parameters.items() if is_inexact(x.dtype) and n not in written}

    def describe(self) -> str:
        """Describe the graph in one line."""
        contract, graph = self.named.contract, self.named.graph
        arguments = ", ".join(name for name, _ in contract.arguments)
        count = len(graph.nodes)
        return f"<KeptGraph {contract.function}({arguments}): {count} operations>"

    # -- arguments -------------------------------------------------------------------------------------------

    def match(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> MatchedArguments:
        """Match the arguments of a call with the exported ones; raise ArgumentError if kinds differ."""
        contract = self.named.contract
        names = self.argument_names()
        arguments = dict(zip(names, args, strict=False))
        invalid = [name for name in kwargs if name not in names or name in arguments]
        if len(args) > len(names) or invalid or len(args) + len(kwargs) < len(names):
            missing = [name for name in names if name not in arguments and name not in kwargs]
            problem = f"there is no {invalid[0]} to give" if invalid else f"{', '.join(missing)} missing"
            problem = f"{len(args)} are given" if len(args) > len(names) else problem
            raise refuse(f"{contract.function} takes the arguments {', '.join(names)}; {problem}")
        arguments.update(kwargs)
        matched = MatchedArguments()
        for name, tree in contract.arguments:
            self._match(tree, arguments[name], (name,), name, matched)
        return matched

    def _match(
        self, tree: Data, value: Any, key_path: tuple[Any, ...], path: str, matched: MatchedArguments
    ) -> None:
        name = self.named.contract.function
        if tree[0] != "tree":
            matched.leaves.append(_leaf(name, tree, value))
            return
        _, text, keys, children = tree
        node, kind = trees.children_of(value), read_kind(text)
        if node is None or kind is None or not kind.admits(node[0]) or set(node[1]) != set(keys):
            shown = f"{text} of {', '.join(map(str, keys))}" if keys else text
            description = type(value).__name__ if node is None else f"{node[0].__name__} of {_shown(node[1])}"
            raise refuse(f"{name}: {path} must be a {shown}, got {description}")
        matched.containers[key_path] = value
        items = dict(zip(node[1], node[2], strict=True))
        for key, child in zip(keys, children, strict=True):
            self._match(child, items[key], (*key_path, key), path + trees.step(node[0], key), matched)

    def extents(self, leaves: Sequence[Any]) -> dict[str, int]:
        """Determine the extents from the shapes of a call's arrays."""
        return self.extents_of(
            leaf.shape if spec[0] == "array" else None
            for spec, leaf in zip(self.named.leaves, leaves, strict=True)
        )

    def extents_of(self, shapes: Any, known: Mapping[str, int] | None = None) -> dict[str, int]:
        """Determine the extents from shapes of the leaves, where None is an unknown shape.

        Raises ShapeError if a shape does not match, ArgumentError if an extent remains unknown.
        """
        extents = dict(known or {})
        for spec, shape in zip(self.named.leaves, shapes, strict=True):
            if shape is None:
                continue
            expected = spec[2].shape
            matches = len(shape) == len(expected)
            for actual, extent in zip(shape, expected, strict=False):
                solution = solve(extent, actual) if isinstance(extent, Polynomial) else None
                if solution is not None:
                    matches = matches and extents.setdefault(*solution) == solution[1]
                else:
                    matches = matches and actual == extent
            if not matches:
                shown = "".join(f", {name}={n}" for name, n in extents.items())
                raise refuse(
                    f"{self.named.contract.function}: {spec[1]} must be {write_type(spec[2])}{shown}, got "
                    f"the shape {tuple(shape)}",
                    ShapeError,
                )
        missing = [name for name in self.named.contract.extents if name not in extents]
        if missing:
            raise refuse(f"{self.named.contract.function}: the extent {missing[0]} is not known")
        return extents


def _value_and_gradients(
    body: Callable[..., Any],
    wrt: dict[str, NDArray],
    parameters: dict[str, Any],
    args: tuple[Any, ...],
    of: str,
) -> Any:
    """Compute the result of a call, and the gradients of its output `of` with respect to the arrays `wrt`."""

    def loss(_: dict[str, NDArray]) -> tuple[Any, Any]:
        result = body(parameters, args, {})
        outputs = dict(trees.leaves_with_paths(result, RESULT))
        if of not in outputs:
            raise refuse(f"there is no output {of!r}; outputs are {', '.join(outputs)}")
        return outputs[of], result

    (_, result), gradients = value_and_grad(loss, has_aux=True)(wrt)
    return result, gradients


def _shown(keys: Sequence[Any]) -> str:
    return ", ".join(map(str, keys)) or "nothing"


def _leaf(function: str, spec: Data, value: Any) -> Any:
    """Check an argument against its leaf, and convert it; raise ArgumentError if it does not match."""
    kind, path, expected = spec
    if kind == "array":
        if isinstance(value, np.ndarray):
            value = NDArray.from_numpy(value)
        if not isinstance(value, NDArray) or value.dtype != expected.dtype or value.device != expected.device:
            description = type(value).__name__
            if isinstance(value, NDArray) and value.dtype == expected.dtype:
                raise refuse(
                    f"{function}: {path} must be on {expected.device}, got an array on {value.device}; move "
                    f"it with x.to, or move the graph (graph.to({str(value.device)!r}))"
                )
            description = f"{value.dtype}{list(value.shape)}" if isinstance(value, NDArray) else description
            raise refuse(f"{function}: {path} must be an array {write_type(expected)}, got {description}")
        return value
    if kind == "number":
        accepted = (int, np.integer) if expected == "int" else (int, float, np.integer, np.floating)
        if not (is_number(value) or isinstance(value, np.number)) or not isinstance(value, accepted):
            raise refuse(
                f"{function}: {path} must be a number of type {expected}, got {type(value).__name__}"
            )
        if isinstance(value, np.number):
            value = concrete(value).item()
        return value + 0.0 if expected == "float" and isinstance(value, int) else value
    description = concrete(value)
    if type(description) is not type(expected) or description != expected:
        raise refuse(f"{function} was exported for {path}={expected!r}; export it again for {description!r}")
    return description


class MatchedArguments:
    """The leaves of a call's arguments, and its containers by key path."""

    def __init__(
        self,
    ) -> None:  # not a named tuple, whose code does not belong to this package and would be traced
        self.leaves: list[Any] = []
        self.containers: dict[tuple[Any, ...], Any] = {}


class _Emission:
    """One call of a graph: emits its nodes onto the open recording."""

    def __init__(self, instance: SizedGraph, parameters: dict[str, Any], matched: MatchedArguments) -> None:
        self.contract, self.graph = instance.contract, instance.graph
        self.parameters, self.matched = parameters, matched
        self.steps: list[Any] = []
        self._check_parameters()

    def run(self) -> Any:
        """Emit the graph, perform its effects, and build the result."""
        self._compute_numbers()
        effects = [(self._target(effect.target), effect.value) for effect in self.graph.effects]
        self._check_apart([array for array, _ in effects])
        with quiet, lock:
            recording = eager.current()
            values = self._inputs(recording)
            emit_graph(recording, self.graph, values)
            outputs = [dispatch.wrap(recording, values[v]) for v in self.graph.outputs]
            written = [dispatch.wrap(recording, values[value]) for _, value in effects]
        recording.end_operation()
        for (array, _), new in zip(effects, written, strict=True):
            content = NDArray(new._storage, View.of_shape(array.shape))
            dispatch.write(array, content, self.contract.function)
        results = Results(self.array, self.source, self.matched.containers, outputs)
        results.change(self.contract.changes, self.contract.function)
        return results.build(self.contract.result)

    # -- parameters and numbers ------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        for name, kind in self.contract.parameters:
            array = self.parameters.get(name)
            if not isinstance(array, NDArray) or ArrayType(array.shape, array.dtype, array.device) != kind:
                given = type(array).__name__ if not isinstance(array, NDArray) else str(array._storage.type)
                raise refuse(
                    f"{self.contract.function}: the parameter {name} must be an array {write_type(kind)}, "
                    f"got {given}"
                )

    def _compute_numbers(self) -> None:
        """Perform the computations with numbers, and check the outcomes of branches."""
        for action, form, sources, *guard in self.contract.numbers:
            operands = [self.source(source) for source in sources]
            operation = OPERATIONS[form]
            if operation in TYPE_QUESTIONS.values():
                operands = [concrete(operand) for operand in operands]
            result = operation.function(*operands)
            if action == "compute":
                self.steps.append(result)
                continue
            value, text = guard
            result = concrete(result)
            if type(result) is not type(value) or repr(result) != repr(value):
                raise refuse(
                    f"{self.contract.function} was exported where {text} is {value!r}, and now it is "
                    f"{result!r}; export it again with such numbers"
                )

    def source(self, source: Data) -> Any:
        """Return the number of a source."""
        kind, operand = source
        if kind == "value":
            return operand
        return self.matched.leaves[operand] if kind == "leaf" else self.steps[operand]

    # -- arrays ----------------------------------------------------------------------------------------------

    def array(self, origin: Data) -> NDArray:
        """Return the array of a leaf or a parameter."""
        kind, name = origin
        array: NDArray = self.matched.leaves[name] if kind == "leaf" else self.parameters[name]
        return array

    def _target(self, value: Value) -> NDArray:
        return self.array(self.contract.inputs[self.graph.inputs.index(value)])

    def _check_apart(self, written: Sequence[NDArray]) -> None:
        """Raise ArgumentError if written arrays share memory with others, unlike in the recorded call."""
        arrays = [leaf for leaf in self.matched.leaves if isinstance(leaf, NDArray)]
        arrays += self.parameters.values()
        shared = Counter(array._storage for array in arrays)
        if any(shared[array._storage] > 1 for array in written):
            raise refuse(
                f"{self.contract.function} writes an argument that shares memory with another one; pass a "
                "copy of one of them (x.copy())"
            )

    def _inputs(self, recording: Recording) -> dict[Value, Value]:
        """Return the values of the recording for the graph's inputs."""
        arrays = [
            (value, self.array(origin))
            for value, origin in zip(self.graph.inputs, self.contract.inputs, strict=True)
            if origin[0] in ("leaf", "parameter")
        ]
        read_values = dispatch.read_all(
            recording, lambda: [recording.read(x._storage, x._view) for _, x in arrays]
        )
        values = {value: read_value for (value, _), read_value in zip(arrays, read_values, strict=True)}
        for value, read_value in values.items():  # the recording may know the array in another shape
            if read_value.type.shape != value.type.shape:
                values[value] = recording.emit(view, read_value, view=View.of_shape(value.type.shape))
        random_values = self._draw(recording)
        for value, origin in zip(self.graph.inputs, self.contract.inputs, strict=True):
            if origin[0] == "number":
                number = self.source(origin[1])
                values[value] = dispatch.value_of(recording, number, value.type.dtype, (), CPU)
            elif origin[0] in ("key", "counter"):
                values[value] = random_values[origin]
        return values

    def _draw(self, recording: Recording) -> dict[Data, Value]:
        """Return the key and counters of the random numbers, drawn like in the exported function."""
        starts = sorted(origin[1] for origin in self.contract.inputs if origin[0] == "counter")
        ends = [*starts[1:], *self.contract.draws]
        values: dict[Data, Value] = {}
        for start, end in zip(starts, ends, strict=bool(starts)):
            key, counter = stream_values(recording, stream(self._drawn_on()), end - start)
            values["key", 0], values["counter", start] = key, counter
        return values

    def _drawn_on(self) -> Device:
        """The single device on which the graph draws random numbers."""
        origins = zip(self.graph.inputs, self.contract.inputs, strict=True)
        keys = {value for value, origin in origins if origin[0] == "key"}
        consumer = next(node for node in self.graph.nodes if keys.intersection(node.inputs))
        return consumer.outputs[0].type.device


def emit_graph(recording: Recording, graph: Graph, values: dict[Value, Value]) -> None:
    """Append the nodes of a graph to a recording.

    values: maps the graph's inputs to values of the recording; all its values are added.
    """
    for node in graph.nodes:
        operands = [values[v] for v in node.inputs]
        results = recording.emit(node.op, *operands, location=node.location, **node.attrs)
        values.update(zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=True))
