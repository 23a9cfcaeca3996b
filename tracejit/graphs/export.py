"""`tj.export`: records a function as a graph that can be saved.

The function is recorded as by `tj.jit`, on arrays without memory; nothing is computed. With named extents it
is recorded several times, for different extents, and the recordings are merged into one (`general`). The text
of the merged recording is parsed for each of these extents, which must reproduce what was recorded.
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
from tracejit.graphs.general import MAX_EXTENT_NAMES, RecordedExport, are_equal, merge, points_for
from tracejit.graphs.kept import KeptGraph
from tracejit.graphs.recorded_call import ContractBuilder, content_of
from tracejit.ir.extents import Extents, Polynomial
from tracejit.ir.graph import Graph
from tracejit.ir.types import CPU, ArrayType
from tracejit.ir.view import View


def export(function: Callable[..., Any], *args: Any, **kwargs: Any) -> KeptGraph:
    """Export ``function(*args, **kwargs)`` as a graph that can be saved, loaded, called, bound and drawn.

    Pass arrays among the arguments (also in dicts, lists, tuples, named tuples) as `tj.spec`s, whose extents
    may be named: ``tj.spec(("batch", 784))``, ``tj.spec(("2*n", 3))``. An array is equivalent to its spec.
    Numbers are inputs of each call, as in a traced function. A bool, a string and the outcome of a branch on
    a number are constants of the graph; a call with a different one is refused. Arrays that the function
    references by name are copied and stored as `parameters`; in-place operations on these and on arguments
    are effects. Random numbers are drawn in each call.

    With named extents the function is recorded for several values, and every difference between the graphs
    must be a polynomial of the extents. Python control flow that depends on an extent is detected if it
    differs between these values.
    Raises ReplayError, with the line, for a function that cannot be replayed; ArgumentError for callbacks,
    for arguments or results that are not arrays, numbers or containers of them, and if the graphs for
    different extents differ in more than such polynomials.

    >>> import tracejit as tj
    >>> graph = tj.export(lambda x, by: tj.tanh(x) * by, tj.spec(("batch", 2)), 3.0)
    >>> graph(tj.zeros((5, 2)), 2.0).shape, graph(tj.zeros((1, 2)), by=0.5).shape
    ((5, 2), (1, 2))
    """
    while isinstance(function, Jitted):
        function = function.__wrapped__
    if not callable(function):
        raise refuse(f"export: {type(function).__name__} is not a function")
    name = getattr(function, "__name__", type(function).__name__)
    named = [*zip(parameter_names(function, len(args)), args, strict=True), *kwargs.items()]
    names = _extent_names(named)
    return _Export(function, name, args, kwargs, points_for(names)).graph()


def _extent_names(named: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the names of extents among the arguments; raise ArgumentError for unsupported arguments."""
    extent_names: set[str] = set()
    for path, tree in named:
        for leaf_path, leaf in trees.leaves_with_paths(tree, path):
            if isinstance(leaf, Spec):
                extent_names |= {name for n in leaf.shape if isinstance(n, Polynomial) for name in n.names()}
            if hasattr(type(leaf), "__tree__"):
                _refuse(leaf_path, leaf)
        _check_objects(tree, path)
    clashes = extent_names & {path for path, _ in named}
    if clashes:
        raise refuse(f"export: {min(clashes)} names an argument and an extent; give the extent another name")
    if len(extent_names) > MAX_EXTENT_NAMES:
        raise refuse(f"export: {len(extent_names)} extents have names, at most {MAX_EXTENT_NAMES} may")
    return sorted(extent_names)


def _check_objects(tree: Any, path: str) -> None:
    """Raise ArgumentError for a module among the arguments."""
    if hasattr(type(tree), "__tree__"):
        _refuse(path, tree)
    children = trees.children_of(tree)
    if children is not None:
        for key, child in zip(children[1], children[2], strict=True):
            _check_objects(child, path + trees.step(children[0], key))


def _refuse(path: str, value: Any) -> None:
    raise refuse(
        f"export: {path} is a {type(value).__name__}, which another process does not have; export a "
        "function that references it by name (lambda x: model(x)), and its arrays are stored with the graph"
    )


class _Export:
    """One export of a function; `points` are the extents for which it is recorded."""

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
        """Record the function for all points, and merge the recordings."""
        recordings = [self._record(point) for point in self.points]
        text = write_contract(*merge(self.points, recordings))
        for point, recording in zip(self.points, recordings, strict=True):
            if not are_equal(read_contract(text, point), recording):
                raise AssertionError(f"the text of {self.name} does not say what was recorded for {point}")
        arrays = {
            name: NDArray.from_numpy(content_of(s)).to(s.type.device) for name, s in self.parameters.items()
        }
        return KeptGraph(text, arrays)

    def _record(self, point: Extents) -> RecordedExport:
        """Record the function for some extents; stores its parameters."""
        args, kwargs = trees.map(lambda leaf: _placeholder(leaf, point), (self.args, self.kwargs))
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
        builder = ContractBuilder(recorded.result, self.name, arguments)
        contract, graph, parameters = builder.contract(tuple(point))
        for name, storage in self.parameters.items():
            self._check_same(name, storage, parameters.get(name), contract, graph)
        self.parameters = parameters
        return contract, graph

    def _check_same(
        self, name: str, one: Storage, other: Storage | None, contract: Contract, graph: Graph
    ) -> None:
        """Raise if a parameter differs between extents, because the function creates it with NumPy."""
        if one is other or other is None:
            return  # `merge` reports a missing parameter
        first, second = content_of(one), content_of(other)
        if first.dtype != second.dtype or first.shape != second.shape or first.tobytes() != second.tobytes():
            origins = zip(graph.inputs, contract.inputs, strict=True)
            values = {value for value, origin in origins if origin == ("parameter", name)}
            line = next((node.location for node in graph.nodes if values & set(node.inputs)), None)
            error = ArgumentError(
                f"export: {self.name} creates a NumPy array of an extent's length ({name}), which would be "
                "stored for one extent only; create it with tj.arange, ..., or pass the extent as an integer"
            )
            raise locate(error, line)


def _placeholder(leaf: Any, point: Extents) -> Any:
    """Return an array without memory for a spec or an array, and other leaves unchanged."""
    if isinstance(leaf, Spec):
        shape = tuple(n.at(point) if isinstance(n, Polynomial) else n for n in leaf.shape)
        return NDArray(Storage(ArrayType(shape, leaf.dtype, leaf.device)), View.of_shape(shape))
    if isinstance(leaf, NDArray | np.ndarray):
        device = leaf.device if isinstance(leaf, NDArray) else CPU
        return NDArray(Storage(ArrayType(leaf.shape, leaf.dtype, device)), View.of_shape(leaf.shape))
    return leaf
