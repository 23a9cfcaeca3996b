"""Recurrent nets as modules: layers of lstm or gru, in one or both directions."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.functions.movement import concat, stack
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python import kinds
from tracejit.nn.modules.base import Module
from tracejit.nn.modules.layers import symmetric_uniform
from tracejit.nn.recurrent import gru, lstm

kinds.treat_like_users(__name__)


class Direction(Module):
    """The weights of one direction of one layer.

    >>> import tracejit as tj
    >>> {name: x.shape for name, x in tj.nn.LSTM(2, 3).cells[0].parameters().items()}
    {'input_weight': (12, 2), 'hidden_weight': (12, 3), 'input_bias': (12,), 'hidden_bias': (12,)}
    """

    def __init__(self, rows: int, inputs: int, units: int, bias: bool, dtype: Any) -> None:
        self.input_weight = symmetric_uniform((rows, inputs), units, dtype)
        self.hidden_weight = symmetric_uniform((rows, units), units, dtype)
        self.input_bias = symmetric_uniform((rows,), units, dtype) if bias else None
        self.hidden_bias = symmetric_uniform((rows,), units, dtype) if bias else None

    def weights(self) -> tuple[Any, ...]:
        """The weights in the order of the functions' arguments.

        >>> import tracejit as tj
        >>> len(tj.nn.GRU(2, 3).cells[0].weights())
        4
        """
        return self.input_weight, self.hidden_weight, self.input_bias, self.hidden_bias


class Recurrent(Module):
    """The base class of `LSTM` and `GRU`: layers of cells, each with one or two directions."""

    function: ClassVar[Any]
    gates: ClassVar[int]

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        layers: int = 1,
        bidirectional: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.directions = 2 if bidirectional else 1
        self.cells = [
            Direction(
                self.gates * units, inputs if layer == 0 else units * self.directions, units, bias, dtype
            )
            for layer in range(layers)
            for _ in range(self.directions)
        ]

    def run(self, x: Any, state: Any) -> tuple[Any, Any]:
        """Return all outputs of the last layer, and the last states of all layers; implements `forward`."""
        states = []
        for first in range(0, len(self.cells), self.directions):
            outputs = []
            for reverse in range(self.directions):
                index = first + reverse
                initial = None if state is None else trees.map(lambda array, i=index: array[i], state)
                weights = self.cells[index].weights()
                output, after = type(self).function(x, initial, *weights, reverse=bool(reverse))
                outputs.append(output)
                states.append(after)
            x = outputs[0] if len(outputs) == 1 else concat(outputs, axis=2)
        return x, trees.map(lambda *arrays: stack(arrays), *states)


class LSTM(Recurrent):
    """Stacked `lstm` layers, each of which reads the outputs of the preceding layer; with `bidirectional` in
    both directions.

    Inputs are (batch, steps, inputs), outputs (batch, steps, directions * units); `directions` is 2 with
    `bidirectional`, else 1. Source: Hochreiter and Schmidhuber, Long short-term memory, 1997; weights as in
    PyTorch.

    >>> import tracejit as tj
    >>> outputs, (hidden, cell) = tj.nn.LSTM(3, 4, layers=2, bidirectional=True)(tj.ones((2, 5, 3)))
    >>> outputs.shape, hidden.shape
    ((2, 5, 8), (4, 2, 4))
    """

    function: ClassVar[Any] = staticmethod(lstm)
    gates: ClassVar[int] = 4

    def forward(self, x: Any, state: Any = None) -> tuple[NDArray, tuple[NDArray, NDArray]]:
        """Return all outputs, (batch, steps, directions * units), and the last state.

        x: (batch, steps, inputs).
        state: a pair (hidden, cell) of arrays (layers * directions, batch, units), or None for zeros. The
        last state is such a pair, too.

        Raises ShapeError for other shapes, ArgumentError for a state that is not a pair.

        >>> import tracejit as tj
        >>> outputs, (hidden, cell) = tj.nn.LSTM(3, 4).forward(tj.ones((2, 5, 3)))
        >>> outputs.shape, cell.shape
        ((2, 5, 4), (1, 2, 4))
        """
        return self.run(x, state)


class GRU(Recurrent):
    """Stacked `gru` layers, each of which reads the outputs of the preceding layer; with `bidirectional` in
    both directions.

    Inputs are (batch, steps, inputs), outputs (batch, steps, directions * units); `directions` is 2 with
    `bidirectional`, else 1. Source: Cho et al., Learning phrase representations, 2014; weights as in PyTorch.

    >>> import tracejit as tj
    >>> outputs, state = tj.nn.GRU(3, 4)(tj.ones((2, 5, 3)))
    >>> outputs.shape, state.shape
    ((2, 5, 4), (1, 2, 4))
    """

    function: ClassVar[Any] = staticmethod(gru)
    gates: ClassVar[int] = 3

    def forward(self, x: Any, state: Any = None) -> tuple[NDArray, NDArray]:
        """Return all outputs, (batch, steps, directions * units), and the last state.

        x: (batch, steps, inputs).
        state: an array (layers * directions, batch, units), or None for zeros. The last state has this shape,
        too.

        Raises ShapeError for other shapes.

        >>> import tracejit as tj
        >>> outputs, state = tj.nn.GRU(3, 4).forward(tj.ones((2, 5, 3)))
        >>> outputs.shape, state.shape
        ((2, 5, 4), (1, 2, 4))
        """
        return self.run(x, state)


__all__ = ["GRU", "LSTM"]
