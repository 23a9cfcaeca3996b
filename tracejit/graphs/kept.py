"""`KeptGraph`: an exported graph with its parameters.

Its methods are treated like user code (`kinds.treat_like_users`), as those of modules are, so a traced
function that calls a graph discovers its parameters. The functions that they call are treated as code of
the package.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from tracejit.drawing.drawing import Drawing
from tracejit.frontend.arrays.devices import as_device
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python import kinds
from tracejit.graphs.bound import BoundGraph
from tracejit.graphs.interface import GraphInterface
from tracejit.graphs.program import GraphProgram
from tracejit.ir.graph import Graph
from tracejit.ir.types import CPU

kinds.treat_like_users(__name__)


class KeptGraph:
    """An exported graph, as created by `tj.export` and `tj.load_graph`.

    It is called like the exported function, in eager code, inside traced functions and under gradients.
    `parameters` are its arrays by name; they are saved with it, and calls may write them. As a tree (for
    gradients and optimizers) the graph is the dict of its trainable parameters.

    >>> import tracejit as tj
    >>> w = tj.ones((2, 3))
    >>> graph = tj.export(lambda x: x @ w, tj.spec(("batch", 2)))
    >>> print(graph.infer())
    inputs
      x: float32[batch,2]
    parameters
      w: float32[2,3]
    outputs
      result: float32[batch,3]
    >>> graph(tj.ones((1, 2)))
    NDArray([[2., 2., 2.]], dtype=float32)
    """

    def __init__(self, text: str, parameters: dict[str, NDArray], *, is_foreign: bool = False) -> None:
        self.parameters = parameters
        self._program = GraphProgram(text, is_foreign=is_foreign)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the graph with arguments like those of the export.

        Raises ArgumentError for arguments of other types, for numbers that would have taken a different
        branch, and if an argument that the graph writes shares memory with another one; ShapeError for shapes
        that do not match.

        >>> import tracejit as tj
        >>> tj.export(lambda x, y: x - y, tj.spec(1), tj.spec(1))(tj.ones(1), y=tj.zeros(1))
        NDArray([1.], dtype=float32)
        """
        return self._program.call(self.parameters, args, kwargs)

    def __tree__(self) -> dict[str, NDArray]:
        """The graph as a tree: its floating parameters by name, except those that calls write.

        >>> import tracejit as tj
        >>> w = tj.ones(1)
        >>> tj.tree.leaves_with_paths(tj.export(lambda x: x * w, tj.spec(1)))
        [("['w']", NDArray([1.], dtype=float32))]
        """
        return self._program.trained(self.parameters)

    @property
    def text(self) -> str:
        """The complete text of the graph, without the contents of parameters: its contract and operations.

        >>> import tracejit as tj
        >>> print(tj.export(lambda x: -x, tj.spec("n")).text)  # doctest: +ELLIPSIS
        tracejit graph 1
        function = "<lambda>"
        extents = ("n",)
        ...
        """
        return self._program.text

    @property
    def extents(self) -> tuple[str, ...]:
        """The names of extents.

        >>> import tracejit as tj
        >>> tj.export(lambda x: x + 1, tj.spec(("batch", 3))).extents
        ('batch',)
        """
        return self._program.named.contract.extents

    @property
    def inputs(self) -> dict[str, Any]:
        """A `tj.Spec` for each array among the arguments, `int` or `float` for a number, by name.

        >>> import tracejit as tj
        >>> tj.export(lambda p, rate: p["w"] * rate, {"w": tj.spec(("n", 2))}, 0.1).inputs
        {"p['w']": spec((n, 2), float32), 'rate': <class 'float'>}
        """
        return self.infer().inputs

    @property
    def outputs(self) -> dict[str, Any]:
        """Names and types of the results.

        >>> import tracejit as tj
        >>> tj.export(lambda x: {"sum": x.sum(), "x": x}, tj.spec("n")).outputs
        {"result['sum']": spec((), float32), "result['x']": spec((n,), float32)}
        """
        return self.infer().outputs

    @property
    def effects(self) -> dict[str, Any]:
        """Names and types of arguments and parameters that a call writes or rebinds.

        >>> import tracejit as tj
        >>> def step(w, gradient, rate):
        ...     w -= rate * gradient
        >>> tj.export(step, tj.spec(3), tj.spec(3), 0.1).effects
        {'w': spec((3,), float32)}
        """
        return self.infer().effects

    def infer(self, **shapes: Any) -> GraphInterface:
        """Infer names and types of inputs, parameters, outputs and effects, by the operators' typing rules.

        shapes: extents or shapes of inputs by name. Without any, the result contains named extents.
        Raises ShapeError for shapes that do not match, ArgumentError if an extent remains unknown.

        >>> import tracejit as tj
        >>> graph = tj.export(lambda x: x.reshape(-1), tj.spec(("batch", 3)))
        >>> graph.infer(batch=4).outputs, graph.infer(x=(5, 3)).outputs
        ({'result': spec((12,), float32)}, {'result': spec((15,), float32)})
        """
        return self._program.infer(shapes)

    def graph(self, **shapes: Any) -> Graph:
        """Return the graph of operations for extents or shapes of inputs by name; `print` shows it.

        Raises the errors of `infer`.

        >>> import tracejit as tj
        >>> print(tj.export(lambda x: -x, tj.spec("n")).graph(n=2))
        graph(%0: float32[2]) {
          %1: float32[2] = negative(%0)
          return %1
        }
        """
        return self._program.graph(shapes)

    def to(self, device: Any) -> KeptGraph:
        """Return the graph for another device, with its arrays, random numbers and copies of its parameters.

        Raises ArgumentError for a graph on several devices, DeviceError for an unknown device.

        >>> import tracejit as tj
        >>> graph = tj.export(lambda x: x + 1, tj.spec("n")).to(tj.cpu(1))
        >>> print(graph(tj.ones(2, device=tj.cpu(1))).device)
        cpu:1
        """
        target = as_device("KeptGraph.to", device, CPU)
        parameters = {name: array.to(target) for name, array in self.parameters.items()}
        return KeptGraph(self._program.on(target), parameters, is_foreign=self._program.is_foreign)

    def bind(self, *args: Any, **kwargs: Any) -> BoundGraph:
        """Bind the graph to arguments: return a callable that owns its arrays and computes gradients by name.

        Raises the errors of a call with these arguments.

        >>> import tracejit as tj
        >>> graph = tj.export(lambda x: (x * x).sum(), tj.spec("n"))
        >>> small, large = graph.bind(tj.ones(2)), graph.bind(tj.ones(1000))
        >>> float(small()), float(large())
        (2.0, 1000.0)
        """
        return BoundGraph(self._program, self.parameters, args, kwargs)

    def draw(self, path: str | os.PathLike[str] | None = None, **shapes: Any) -> Drawing:
        """Draw the graph with the user's source lines, as recorded and as compiled to kernels.

        path:   a file to write, ``.svg`` or ``.html``. None: only return the drawing, which notebooks show.
        shapes: as in `infer`, for the kernels; without any, each extent is 64.
        Raises ArgumentError for another file name extension, and the errors of `infer`.

        >>> import tracejit as tj
        >>> tj.export(lambda x: tj.tanh(x) + 1, tj.spec("n")).draw()
        <Drawing of <lambda>: .save('graph.svg'), .save('graph.html')>
        """
        drawing = self._program.drawing(shapes)
        if path is not None:
            drawing.save(path)
        return drawing

    def _repr_html_(self) -> str:
        return self.draw()._repr_html_()

    def _repr_svg_(self) -> str:
        return self.draw().svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph and its parameters to one file, atomically; `tj.load_graph` reads it.

        The file is a safetensors file. It contains the user's source lines, but no executable code.

        >>> import os, tempfile, tracejit as tj
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "graph.safetensors")
        ...     tj.export(lambda x: x + 1, tj.spec("n")).save(path)
        ...     tj.load_graph(path)(tj.zeros(2))
        NDArray([1., 1.], dtype=float32)
        """
        files = importlib.import_module("tracejit.graphs.files")  # it imports this module
        files.save_graph(path, self.text, self.parameters)

    def __reduce__(self) -> Any:
        """Pickle and copy the graph as its text and its parameters."""
        return _rebuilt, (self.text, self.parameters, self._program.is_foreign)

    def __repr__(self) -> str:
        return self._program.describe()


def _rebuilt(text: str, parameters: dict[str, NDArray], is_foreign: bool) -> KeptGraph:
    return KeptGraph(text, parameters, is_foreign=is_foreign)
