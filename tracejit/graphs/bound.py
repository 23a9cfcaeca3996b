"""`BoundGraph`: an exported graph with bound arguments, for repeated calls (MXNet's executor)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.graphs.contract import refuse
from tracejit.graphs.interface import RESULT
from tracejit.graphs.program import GraphProgram


class BoundGraph:
    """A graph with the arguments of its calls, as created by `KeptGraph.bind`.

    outputs: the arrays and numbers of the last result by name.

    >>> import tracejit as tj
    >>> graph = tj.export(lambda x, by: (x * by).sum(), tj.spec(("n", 2)), 1.0)
    >>> bound = graph.bind(tj.ones((3, 2)), by=2.0)
    >>> float(bound()), float(bound(by=3.0)), float(bound(x=tj.zeros((3, 2))))
    (12.0, 18.0, 0.0)
    """

    def __init__(
        self,
        program: GraphProgram,
        parameters: dict[str, NDArray],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        leaves = program.match(args, kwargs).leaves
        self.outputs: dict[str, Any] = {}
        self._program, self._parameters = program, parameters
        self._names = [leaf[1] for leaf in program.named.leaves]
        self._arguments = program.arguments_of(leaves)
        program.at(program.extents(leaves))  # raises if the graph does not support these extents

    @property
    def inputs(self) -> dict[str, Any]:
        """The leaves of the bound arguments by name: numbers, and arrays, which calls may write (`effects`).

        >>> import tracejit as tj
        >>> tj.export(lambda x, by: x * by, tj.spec(1), 2.0).bind(tj.ones(1), 3.0).inputs
        {'x': NDArray([1.], dtype=float32), 'by': 3.0}
        """
        return dict(zip(self._names, trees.leaves(self._arguments), strict=True))

    def _update(self, changes: Mapping[str, Any]) -> None:
        """Write new contents to bound arrays, and replace bound numbers."""
        inputs = self.inputs
        for name, value in changes.items():
            if name not in inputs:
                raise refuse(f"there is no input {name!r}; inputs are {', '.join(inputs)}")
            if isinstance(inputs[name], NDArray):
                inputs[name][...] = value
            else:
                inputs[name] = value
                self._arguments = self._program.arguments_of(inputs.values())

    def _record_outputs(self, result: Any) -> Any:
        self.outputs = dict(trees.leaves_with_paths(result, RESULT))
        return result

    def __call__(self, **changes: Any) -> Any:
        """Call the graph. `changes` are new contents of inputs by name, which are copied to the bound arrays.

        Raises ArgumentError for a name that is not an input, and the errors of `KeptGraph.__call__`.

        >>> import tracejit as tj
        >>> bound = tj.export(lambda x: x + 1, tj.spec("n")).bind(tj.zeros(2))
        >>> bound(x=tj.ones(2)), bound.inputs["x"]
        (NDArray([2., 2.], dtype=float32), NDArray([1., 1.], dtype=float32))
        """
        self._update(changes)
        return self._record_outputs(self._program.call(self._parameters, self._arguments, {}))

    def value_and_grad(self, *names: str, of: str = RESULT, **changes: Any) -> tuple[Any, dict[str, Any]]:
        """Call the graph and return ``(result, gradients)``, the gradients by name of an input or parameter.

        names: inputs or parameters with respect to which to differentiate.
        of:    the name of the output to differentiate, a floating scalar.
        Raises ArgumentError for unknown names, ShapeError if the output is not a floating scalar.

        >>> import tracejit as tj
        >>> graph = tj.export(lambda p, x: (p["w"] * x).sum(), {"w": tj.spec("n")}, tj.spec("n"))
        >>> bound = graph.bind({"w": tj.ones(2)}, tj.asarray([1.0, 2.0]))
        >>> bound.value_and_grad("p['w']")[1]
        {"p['w']": NDArray([1., 2.], dtype=float32)}
        """
        self._update(changes)
        arrays = {**self._parameters, **self.inputs}
        for name in names:
            if not isinstance(arrays.get(name), NDArray):
                known = ", ".join(n for n, value in arrays.items() if isinstance(value, NDArray))
                raise refuse(f"there is no array {name!r} to take the gradient for; there are {known}")
        wrt = {name: arrays[name] for name in names}
        result, gradients = self._program.gradient(wrt, self._parameters, self._arguments, of)
        return self._record_outputs(result), gradients
