"""The text of a graph as something to call.

`GraphProgram.call` runs a traced function whose body matches the arguments, reads off the extents, and emits
the nodes of the graph for these onto the open recording. So a call from eager code is replayed like any other
traced function's, and inside a trace or under a gradient the nodes are part of that.
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
from tracejit.graphs.general import NAMES, points_for
from tracejit.graphs.interface import RESULT, GraphInterface, interface_of, names_of
from tracejit.graphs.results import Results, filled
from tracejit.graphs.safety import with_checked_indices
from tracejit.graphs.validate import check_contract
from tracejit.ir.extents import Polynomial, solve
from tracejit.ir.graph import Graph, Value
from tracejit.ir.text import write_type
from tracejit.ir.types import CPU, ArrayType, Device, is_inexact
from tracejit.ir.view import View
from tracejit.ops import view

DRAWN = 64  # an extent for which kernels are drawn
INSTANCES = 64  # graphs for different extents that are kept at hand


class SizedGraph:
    """A contract and its graph for some extents."""

    def __init__(self, contract: Contract, graph: Graph) -> None:
        self.contract, self.graph, self.leaves = contract, graph, leaves_of(contract)


class GraphProgram(Vouched):
    """A text, and the graphs for the extents seen so far.

    named:      with the names of extents in the place of integers.
    is_foreign: whether the text comes from a file.
    """

    def __init__(self, text: str, *, is_foreign: bool = False) -> None:
        self.text, self.is_foreign = text, is_foreign
        self._instances: dict[tuple[int, ...], SizedGraph] = {}
        contract, graph = read_contract(text)
        if is_foreign:  # before anything is done with what the text says
            check_contract(*read_contract(text, points_for(contract.extents[:NAMES])[0]))
        self.named = SizedGraph(contract, graph)

        def body(parameters: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._emit(parameters, args, kwargs)

        body.__name__ = body.__qualname__ = self.named.contract.function
        self.traced = jit(body)
        self.traced_gradient = jit(functools.partial(_value_and_gradients, body))

    def at(self, extents: Mapping[str, int]) -> SizedGraph:
        """The graph for these extents."""
        key = tuple(extents[name] for name in self.named.contract.extents)
        found = self._instances.get(key)
        if found is None:
            contract, graph = read_contract(self.text, extents)
            if self.is_foreign:
                check_contract(contract, graph)
                graph = with_checked_indices(graph)
            found = SizedGraph(contract, graph)
            if len(self._instances) >= INSTANCES:
                self._instances.clear()
            self._instances[key] = found
        return found

    def call(self, parameters: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call."""
        return self.traced(parameters, args, kwargs)

    def gradient(
        self, wrt: dict[str, NDArray], parameters: dict[str, Any], args: tuple[Any, ...], of: str
    ) -> tuple[Any, dict[str, Any]]:
        """The result of a call, and the gradients of its output `of`."""
        result, gradients = self.traced_gradient(wrt, parameters, args, of)
        return result, gradients

    def argument_names(self) -> list[str]:
        """The names of arguments, in order."""
        return [name for name, _ in self.named.contract.arguments]

    def arguments_of(self, leaves: Iterable[Any]) -> tuple[Any, ...]:
        """Arguments of a call with these leaves, in containers of their own."""
        rest = iter(leaves)
        return tuple(filled(tree, rest) for _, tree in self.named.contract.arguments)

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
        """The text of the graph on another device."""
        contract, graph = self.named.contract, self.named.graph
        used = devices_of(contract, graph)
        if len(used) > 1:
            raise refuse(
                f"{contract.function} computes on {' and '.join(map(str, used))}; only a graph on one device "
                "moves to another one"
            )
        return write_contract(*read_contract(self.text, moved=dict.fromkeys(used, device)))

    # -- looking at it ---------------------------------------------------------------------------------------

    def infer(self, given: Mapping[str, Any]) -> GraphInterface:
        """Names and types for extents or shapes of inputs by name; with names, if none are given."""
        if not given and self.named.contract.extents:
            return interface_of(self.named.contract, self.named.graph, {})
        extents = self._extents_given(given)
        instance = self.at(extents)
        return interface_of(instance.contract, instance.graph, extents)

    def graph(self, given: Mapping[str, Any]) -> Graph:
        """The graph for extents or shapes of inputs by name."""
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
        """A picture for extents or shapes of inputs by name."""
        contract = self.named.contract
        extents = self._extents_given(given or dict.fromkeys(contract.extents, DRAWN))
        known = {place: Line(function, code) for place, function, code in contract.lines}
        said = ", ".join(f"{name}={n}" for name, n in extents.items())
        return Drawing(
            contract.function,
            self.at(extents).graph,
            names_of(contract),
            lambda place: known.get(place or "", Line("", "")),
            shown=self.named.graph,
            extents=f" for {said}" if said else "",
        )

    def trained(self, parameters: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """The floating parameters that no call writes."""
        written = self.infer({}).effects if parameters else {}
        return {n: x for n, x in parameters.items() if is_inexact(x.dtype) and n not in written}

    def describe(self) -> str:
        """The graph in a line."""
        contract, graph = self.named.contract, self.named.graph
        arguments = ", ".join(name for name, _ in contract.arguments)
        count = len(graph.nodes)
        return f"<KeptGraph {contract.function}({arguments}): {count} operations>"

    # -- arguments -------------------------------------------------------------------------------------------

    def match(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Matched:
        """The leaves of a call's arguments, which must be like those that were exported."""
        contract = self.named.contract
        names = self.argument_names()
        given = dict(zip(names, args, strict=False))
        wrong = [name for name in kwargs if name not in names or name in given]
        if len(args) > len(names) or wrong or len(args) + len(kwargs) < len(names):
            missing = [name for name in names if name not in given and name not in kwargs]
            what = f"there is no {wrong[0]} to give" if wrong else f"{', '.join(missing)} missing"
            what = f"{len(args)} are given" if len(args) > len(names) else what
            raise refuse(f"{contract.function} takes the arguments {', '.join(names)}; {what}")
        given.update(kwargs)
        matched = Matched()
        for name, tree in contract.arguments:
            self._match(tree, given[name], (name,), name, matched)
        return matched

    def _match(self, tree: Data, value: Any, where: tuple[Any, ...], path: str, matched: Matched) -> None:
        name = self.named.contract.function
        if tree[0] != "tree":
            matched.leaves.append(_leaf(name, tree, value))
            return
        _, text, keys, children = tree
        found, kind = trees.children_of(value), read_kind(text)
        if found is None or kind is None or not kind.admits(found[0]) or set(found[1]) != set(keys):
            shown = f"{text} of {', '.join(map(str, keys))}" if keys else text
            given = type(value).__name__ if found is None else f"{found[0].__name__} of {_shown(found[1])}"
            raise refuse(f"{name}: {path} must be a {shown}, got {given}")
        matched.containers[where] = value
        parts = dict(zip(found[1], found[2], strict=True))
        for key, child in zip(keys, children, strict=True):
            self._match(child, parts[key], (*where, key), path + trees.step(found[0], key), matched)

    def extents(self, leaves: Sequence[Any]) -> dict[str, int]:
        """The extents that the shapes of a call's arrays say."""
        return self.extents_of(
            leaf.shape if spec[0] == "array" else None
            for spec, leaf in zip(self.named.leaves, leaves, strict=True)
        )

    def extents_of(self, shapes: Any, known: Mapping[str, int] | None = None) -> dict[str, int]:
        """The extents that shapes of the leaves say (None: of this one nothing is known)."""
        found = dict(known or {})
        for spec, shape in zip(self.named.leaves, shapes, strict=True):
            if shape is None:
                continue
            wanted = spec[2].shape
            fits = len(shape) == len(wanted)
            for given, extent in zip(shape, wanted, strict=False):
                says = solve(extent, given) if isinstance(extent, Polynomial) else None
                if says is not None:
                    fits = fits and found.setdefault(*says) == says[1]
                else:
                    fits = fits and given == extent
            if not fits:
                said = "".join(f", {name}={n}" for name, n in found.items())
                raise refuse(
                    f"{self.named.contract.function}: {spec[1]} must be {write_type(spec[2])}{said}, got the "
                    f"shape {tuple(shape)}",
                    ShapeError,
                )
        missing = [name for name in self.named.contract.extents if name not in found]
        if missing:
            raise refuse(f"{self.named.contract.function}: the extent {missing[0]} is not known")
        return found


def _value_and_gradients(
    body: Callable[..., Any],
    wrt: dict[str, NDArray],
    parameters: dict[str, Any],
    args: tuple[Any, ...],
    of: str,
) -> Any:
    """The result of a call, and the gradients of its output `of` with respect to arrays, however reached."""

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
    """An argument that may stand for this leaf."""
    kind, path, wanted = spec
    if kind == "array":
        if isinstance(value, np.ndarray):
            value = NDArray.from_numpy(value)
        if not isinstance(value, NDArray) or value.dtype != wanted.dtype or value.device != wanted.device:
            given = type(value).__name__
            if isinstance(value, NDArray) and value.dtype == wanted.dtype:
                raise refuse(
                    f"{function}: {path} must be on {wanted.device}, got an array on {value.device}; move it "
                    f"with x.to, or move the graph (graph.to({str(value.device)!r}))"
                )
            given = f"{value.dtype}{list(value.shape)}" if isinstance(value, NDArray) else given
            raise refuse(f"{function}: {path} must be an array {write_type(wanted)}, got {given}")
        return value
    if kind == "number":
        known = (int, np.integer) if wanted == "int" else (int, float, np.integer, np.floating)
        if not (is_number(value) or isinstance(value, np.number)) or not isinstance(value, known):
            raise refuse(f"{function}: {path} must be a number of type {wanted}, got {type(value).__name__}")
        if isinstance(value, np.number):
            value = concrete(value).item()
        return value + 0.0 if wanted == "float" and isinstance(value, int) else value
    given = concrete(value)
    if type(given) is not type(wanted) or given != wanted:
        raise refuse(f"{function} was exported for {path}={wanted!r}; export it again for {given!r}")
    return given


class Matched:
    """The leaves of a call, and its containers by the argument's name and the keys that lead there."""

    def __init__(self) -> None:  # no named tuple: code of these is not of this package, so it is watched
        self.leaves: list[Any] = []
        self.containers: dict[tuple[Any, ...], Any] = {}


class _Emission:
    """One call: the nodes of a graph go onto the open recording."""

    def __init__(self, instance: SizedGraph, parameters: dict[str, Any], matched: Matched) -> None:
        self.contract, self.graph = instance.contract, instance.graph
        self.parameters, self.matched = parameters, matched
        self.steps: list[Any] = []
        self._check_parameters()

    def run(self) -> Any:
        """Emit the graph, do its effects, and make the result."""
        self._compute_numbers()
        effects = [(self._target(effect.target), effect.value) for effect in self.graph.effects]
        self._check_apart([array for array, _ in effects])
        with lock, quiet:
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
        return results.make(self.contract.result)

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
        """Compute with numbers, and check the branches that were taken."""
        for what, form, sources, *rest in self.contract.numbers:
            operands = [self.source(source) for source in sources]
            operation = OPERATIONS[form]
            if operation in TYPE_QUESTIONS.values():
                operands = [concrete(operand) for operand in operands]
            result = operation.function(*operands)
            if what == "compute":
                self.steps.append(result)
                continue
            value, text = rest
            result = concrete(result)
            if type(result) is not type(value) or repr(result) != repr(value):
                raise refuse(
                    f"{self.contract.function} was exported where {text} is {value!r}, and now it is "
                    f"{result!r}; export it again with such numbers"
                )

    def source(self, source: Data) -> Any:
        """A number."""
        kind, given = source
        if kind == "value":
            return given
        return self.matched.leaves[given] if kind == "leaf" else self.steps[given]

    # -- arrays ----------------------------------------------------------------------------------------------

    def array(self, place: Data) -> NDArray:
        """The array of a leaf or a parameter."""
        kind, name = place
        found: NDArray = self.matched.leaves[name] if kind == "leaf" else self.parameters[name]
        return found

    def _target(self, value: Value) -> NDArray:
        return self.array(self.contract.inputs[self.graph.inputs.index(value)])

    def _check_apart(self, written: Sequence[NDArray]) -> None:
        """Check that written arrays share no memory with others, as in the call that was recorded."""
        arrays = [leaf for leaf in self.matched.leaves if isinstance(leaf, NDArray)]
        arrays += self.parameters.values()
        shared = Counter(array._storage for array in arrays)
        if any(shared[array._storage] > 1 for array in written):
            raise refuse(
                f"{self.contract.function} writes an argument that shares memory with another one; pass a "
                "copy of one of them (x.copy())"
            )

    def _inputs(self, recording: Recording) -> dict[Value, Value]:
        """Values of the recording for the graph's inputs."""
        arrays = [
            (value, self.array(place))
            for value, place in zip(self.graph.inputs, self.contract.inputs, strict=True)
            if place[0] in ("leaf", "parameter")
        ]
        read = dispatch.read_all(recording, lambda: [recording.read(x._storage, x._view) for _, x in arrays])
        values = {value: found for (value, _), found in zip(arrays, read, strict=True)}
        for value, found in values.items():  # a recording takes arrays in the first shape it sees them in
            if found.type.shape != value.type.shape:
                values[value] = recording.emit(view, found, view=View.of_shape(value.type.shape))
        drawn = self._draw(recording)
        for value, place in zip(self.graph.inputs, self.contract.inputs, strict=True):
            if place[0] == "number":
                number = self.source(place[1])
                values[value] = dispatch.value_of(recording, number, value.type.dtype, (), CPU)
            elif place[0] in ("key", "counter"):
                values[value] = drawn[place]
        return values

    def _draw(self, recording: Recording) -> dict[Data, Value]:
        """Key and counters of the random numbers, drawn as the function draws them."""
        starts = sorted(place[1] for place in self.contract.inputs if place[0] == "counter")
        ends = [*starts[1:], *self.contract.draws]
        found: dict[Data, Value] = {}
        for start, end in zip(starts, ends, strict=bool(starts)):
            key, counter = stream_values(recording, stream(self._drawn_on()), end - start)
            found["key", 0], found["counter", start] = key, counter
        return found

    def _drawn_on(self) -> Device:
        """The device on which the graph draws random numbers; there is one at most."""
        places = zip(self.graph.inputs, self.contract.inputs, strict=True)
        keys = {value for value, place in places if place[0] == "key"}
        drawing = next(node for node in self.graph.nodes if keys.intersection(node.inputs))
        return drawing.outputs[0].type.device


def emit_graph(recording: Recording, graph: Graph, values: dict[Value, Value]) -> None:
    """Append the nodes of a graph to a recording; `values` has its inputs, and then all its values."""
    for node in graph.nodes:
        operands = [values[v] for v in node.inputs]
        results = recording.emit(node.op, *operands, location=node.location, **node.attrs)
        values.update(zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=True))
