"""`tj.export`: a function as a graph that is kept.

The function is recorded as `tj.jit` does it, on arrays without memory; nothing is computed. With named
extents it is recorded several times, for extents of all kinds, and the texts are made one
(`general`). The result is read back for all of these extents and must be what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, TracejitError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.jit import record
from tracejit.frontend.jit.jit import Jitted
from tracejit.frontend.jit.specs import Spec
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.arguments import parameter_names
from tracejit.graphs.contract import Contract, read_contract, refuse, write_contract
from tracejit.graphs.general import NAMES, generalised, points_for
from tracejit.graphs.kept import KeptGraph
from tracejit.graphs.recorded_call import Describing, content_of
from tracejit.ir.extents import Extents, Polynomial
from tracejit.ir.graph import Graph
from tracejit.ir.types import CPU, ArrayType
from tracejit.ir.view import View


def export(function: Callable[..., Any], *args: Any, **kwargs: Any) -> KeptGraph:
    """The graph of ``function(*args, **kwargs)``, to be saved, loaded elsewhere, called, bound and drawn.

    Arrays among the arguments (in dicts, lists, tuples, named tuples) are given as `tj.spec`s, whose extents
    may have names: ``tj.spec(("batch", 784))``, ``tj.spec(("2*n", 3))``. An array stands for its spec.
    Numbers are inputs of each call, as in a traced function; a bool or string, and which branch a number
    took, is part of the graph, and a call with another one is refused. Arrays that the function reaches by
    name are copied, and kept as `parameters`; what it does in place to these and to its arguments is an
    effect. Random numbers are drawn in each call.

    With named extents the function is recorded for several of them, and everything in the graph that differs
    must be a polynomial of them. What it decides by an extent in Python is found where these differ in it.
    Raises ReplayError, with the line, for a function that cannot be replayed; ArgumentError for callbacks,
    for arguments or results that are no arrays, numbers or containers of them, and where the graph for other
    extents is another one.

    >>> import tracejit as tj
    >>> graph = tj.export(lambda x, by: tj.tanh(x) * by, tj.spec(("batch", 2)), 3.0)
    >>> graph(tj.zeros((5, 2)), 2.0).shape, graph(tj.zeros((1, 2)), by=0.5).shape
    ((5, 2), (1, 2))
    """
    while isinstance(function, Jitted):
        function = function.__wrapped__
    if not callable(function):
        raise refuse(f"export: {type(function).__name__} is no function")
    name = getattr(function, "__name__", type(function).__name__)
    named = [*zip(parameter_names(function, len(args)), args, strict=True), *kwargs.items()]
    names = _names(named)
    return _Exporting(function, name, args, kwargs, points_for(names)).graph()


def _names(named: Sequence[tuple[str, Any]]) -> list[str]:
    """The names of extents, and that all is well with the arguments."""
    found: set[str] = set()
    for path, tree in named:
        for where, leaf in trees.leaves_with_paths(tree, path):
            if isinstance(leaf, Spec):
                found |= {name for n in leaf.shape if isinstance(n, Polynomial) for name in n.names()}
            if hasattr(type(leaf), "__tree__"):
                _refuse(where, leaf)
        _check_objects(tree, path)
    clash = found & {path for path, _ in named}
    if clash:
        raise refuse(f"export: {min(clash)} names an argument and an extent; give the extent another name")
    if len(found) > NAMES:
        raise refuse(f"export: {len(found)} extents have names, at most {NAMES} may")
    return sorted(found)


def _check_objects(tree: Any, path: str) -> None:
    """Raise for a module among the arguments."""
    if hasattr(type(tree), "__tree__"):
        _refuse(path, tree)
    found = trees.children_of(tree)
    if found is not None:
        for key, child in zip(found[1], found[2], strict=True):
            _check_objects(child, path + trees.step(found[0], key))


def _refuse(path: str, value: Any) -> None:
    raise refuse(
        f"export: {path} is a {type(value).__name__}, which another process does not have; export a "
        "function that reaches it by name (lambda x: model(x)), and its arrays are kept with the graph"
    )


class _Exporting:
    """One attempt."""

    def __init__(
        self,
        function: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        points: Sequence[Extents],
    ) -> None:
        self.function, self.name, self.args, self.kwargs, self.points = function, name, args, kwargs, points
        self.parameters: dict[str, Storage] = {}

    def graph(self) -> KeptGraph:
        """The graph for all extents."""
        texts = [self._text(point) for point in self.points]
        text = generalised(self.points, texts)
        for point, expected in zip(self.points, texts, strict=True):
            contract, graph = read_contract(text, point)
            if write_contract(contract, graph) != expected:
                raise AssertionError(f"the text of {self.name} does not say what was recorded for {point}")
        arrays = {
            name: NDArray.from_numpy(content_of(s)).to(s.type.device) for name, s in self.parameters.items()
        }
        return KeptGraph(text, arrays)

    def _text(self, point: Extents) -> str:
        """The text of the function for some extents; notes its parameters."""
        args, kwargs = trees.map(lambda leaf: _stand_in(leaf, point), (self.args, self.kwargs))
        names = [*parameter_names(self.function, len(args)), *kwargs]
        try:
            recorded = record.record(
                self.function, args, kwargs, set(), strict=True, launch=False, compiled=False
            )
        except TracejitError as error:
            shown = ", ".join(f"{name}={n}" for name, n in point.items())
            if shown and isinstance(error, ValueError):
                text = f"{error.args[0]}\n  while it was exported with {shown}; a multiple is written '2*n'"
                error.args = (text, *error.args[1:])
            raise
        arguments = list(zip(names, (*args, *kwargs.values()), strict=True))
        describing = Describing(recorded.result, self.name, arguments)
        contract, graph, parameters = describing.contract(tuple(point))
        for name, storage in self.parameters.items():
            self._check_same(name, storage, parameters.get(name), contract, graph)
        self.parameters = parameters
        return write_contract(contract, graph)

    def _check_same(
        self, name: str, one: Storage, other: Storage | None, contract: Contract, graph: Graph
    ) -> None:
        """Raise if a parameter is another array for other extents: the function made it, of NumPy's."""
        if one is other or other is None:
            return  # `generalised` tells of one that is missing
        first, second = content_of(one), content_of(other)
        if first.dtype != second.dtype or first.shape != second.shape or first.tobytes() != second.tobytes():
            places = zip(graph.inputs, contract.inputs, strict=True)
            values = {value for value, place in places if place == ("parameter", name)}
            line = next((node.location for node in graph.nodes if values & set(node.inputs)), None)
            error = ArgumentError(
                f"export: {self.name} makes a NumPy array of an extent's length ({name}), which would be "
                "kept as it is for one; make it of arrays (tj.arange, ...), or give the extent as an integer"
            )
            raise locate(error, line)


def _stand_in(leaf: Any, point: Extents) -> Any:
    """An array without memory for a spec or an array; anything else stays."""
    if isinstance(leaf, Spec):
        shape = tuple(n.at(point) if isinstance(n, Polynomial) else n for n in leaf.shape)
        return NDArray(Storage(ArrayType(shape, leaf.dtype, leaf.device)), View.of_shape(shape))
    if isinstance(leaf, NDArray | np.ndarray):
        device = leaf.device if isinstance(leaf, NDArray) else CPU
        return NDArray(Storage(ArrayType(leaf.shape, leaf.dtype, device)), View.of_shape(leaf.shape))
    return leaf
