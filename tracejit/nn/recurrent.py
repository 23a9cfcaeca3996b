"""Recurrent cells and sequences: a state that every step of a sequence changes.

Weights have PyTorch's layout: the rows of all gates one below the other, ``input, forget, cell, output`` for
lstm, ``reset, update, new`` for gru. A sequence multiplies all its steps by the input's weight at once, and
then goes through the steps in a loop: a traced function contains every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.functions.creation import zeros
from tracejit.frontend.arrays.functions.manipulation import moveaxis
from tracejit.frontend.arrays.functions.movement import stack
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location
from tracejit.nn.activations import relu, sigmoid, tanh
from tracejit.nn.common import check_choice, check_dimensions, check_shape, floats
from tracejit.nn.functional import linear


class _Weights(NamedTuple):
    """The parameters of a cell, in one floating dtype."""

    input: Any
    hidden: Any
    input_bias: Any
    hidden_bias: Any

    @property
    def units(self) -> int:
        """The extent of the state."""
        return self.hidden.shape[1]


def _prepared(name: str, gates: int, x: Any, given: tuple[Any, ...]) -> tuple[Any, _Weights]:
    """Inputs and checked weights in their common floating dtype."""
    array, *found = floats(name, x, *given)
    weights = _Weights(*found)
    for what, matrix in (("input_weight", weights.input), ("hidden_weight", weights.hidden)):
        check_dimensions(name, what, matrix, 2, f"({gates} * units, inputs or units)")
    rows = gates * weights.units
    many = "units" if gates == 1 else f"{gates} * units"
    if weights.input.shape[0] != rows or weights.hidden.shape[0] != rows:
        shapes = f"input_weight {weights.input.shape} and hidden_weight {weights.hidden.shape}"
        expected = f"expected ({many}, inputs) and ({many}, units)"
        raise locate(ShapeError(f"{name}: {shapes}; {expected}"), user_location())
    if array.shape[-1:] != weights.input.shape[1:]:
        raise locate(
            ShapeError(
                f"{name}: x of shape {array.shape} for an input_weight of shape {weights.input.shape}"
            ),
            user_location(),
        )
    return array, weights


def _initial(name: str, state: Any, x: Any, weights: _Weights) -> Any:
    """A state of shape (batch, units); zeros for None."""
    shape = (*x.shape[:-1], weights.units)
    if state is None:
        return zeros(shape, dtype=x.dtype, device=x.device)
    array = dispatch.cast(dispatch.as_array(name, state), x.dtype)
    check_shape(name, "state", array, shape, "the batch of x, and the units")
    return array


def _pair(name: str, state: Any) -> tuple[Any, Any]:
    """The two states of lstm."""
    if state is None:
        return None, None
    if not isinstance(state, tuple | list) or len(state) != 2:
        given = type(state).__name__
        raise locate(
            ArgumentError(f"{name}: state is a pair (hidden, cell), or None, not a {given}"), user_location()
        )
    return state[0], state[1]


def _split(x: Any, parts: int) -> list[Any]:
    """Equal parts along the last dimension (views)."""
    extent = x.shape[-1] // parts
    return [x[..., i * extent : (i + 1) * extent] for i in range(parts)]


# ---- one step, from products of the input


def _rnn_step(projected: Any, state: Any, weights: _Weights, function: Any) -> Any:
    return function(projected + linear(state, weights.hidden, weights.hidden_bias))


def _lstm_step(projected: Any, state: tuple[Any, Any], weights: _Weights) -> tuple[Any, Any]:
    hidden, cell = state
    entering, forgetting, new, leaving = _split(
        projected + linear(hidden, weights.hidden, weights.hidden_bias), 4
    )
    cell = sigmoid(forgetting) * cell + sigmoid(entering) * tanh(new)
    return sigmoid(leaving) * tanh(cell), cell


def _gru_step(projected: Any, state: Any, weights: _Weights) -> Any:
    reset, update, new = _split(projected, 3)
    reset_too, update_too, new_too = _split(linear(state, weights.hidden, weights.hidden_bias), 3)
    update = sigmoid(update + update_too)
    new = tanh(new + sigmoid(reset + reset_too) * new_too)
    return new + update * (state - new)


# ---- cells


def rnn_cell(
    x: Any,
    state: Any,
    input_weight: Any,
    hidden_weight: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
    /,
    *,
    nonlinearity: str = "tanh",
) -> NDArray:
    """One step of a simple recurrent net: ``tanh(input_weight @ x + hidden_weight @ state)`` plus biases.

    x: (batch, inputs), or (inputs,); state: (batch, units), or None for zeros; input_weight: (units, inputs);
    hidden_weight: (units, units); biases: (units,), or None. nonlinearity: "tanh" or "relu".
    Elman, Finding structure in time, 1990.
    Returns the next state.
    Raises ShapeError if a shape does not fit, ArgumentError for another `nonlinearity`.

    >>> import tracejit as tj
    >>> tj.nn.rnn_cell(tj.ones((1, 2)), None, tj.ones((1, 2)), tj.ones((1, 1)), nonlinearity="relu")
    NDArray([[2.]], dtype=float32)
    """
    name = "nn.rnn_cell"
    function = _nonlinearity(name, nonlinearity)
    array, weights = _prepared(name, 1, x, (input_weight, hidden_weight, input_bias, hidden_bias))
    before = _initial(name, state, array, weights)
    return _rnn_step(linear(array, weights.input, weights.input_bias), before, weights, function)


def _nonlinearity(name: str, chosen: str) -> Any:
    check_choice(name, "nonlinearity", chosen, ("tanh", "relu"))
    return tanh if chosen == "tanh" else relu


def lstm_cell(
    x: Any,
    state: Any,
    input_weight: Any,
    hidden_weight: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
    /,
) -> tuple[NDArray, NDArray]:
    """One step of long short-term memory: the next (hidden, cell).

    x: (batch, inputs), or (inputs,); state: a pair (hidden, cell) of shape (batch, units), or None for zeros;
    input_weight: (4 * units, inputs); hidden_weight: (4 * units, units); biases: (4 * units,), or None; rows
    in the order input, forget, cell, output.
    Hochreiter and Schmidhuber, Long short-term memory, 1997; Gers et al., Learning to forget, 2000.
    Raises ShapeError if a shape does not fit, ArgumentError for a state that is no pair.

    >>> import tracejit as tj
    >>> hidden, cell = tj.nn.lstm_cell(tj.ones((1, 2)), None, tj.zeros((4, 2)), tj.zeros((4, 1)))
    >>> hidden, cell
    (NDArray([[0.]], dtype=float32), NDArray([[0.]], dtype=float32))
    """
    name = "nn.lstm_cell"
    array, weights = _prepared(name, 4, x, (input_weight, hidden_weight, input_bias, hidden_bias))
    hidden, cell = (_initial(name, part, array, weights) for part in _pair(name, state))
    return _lstm_step(linear(array, weights.input, weights.input_bias), (hidden, cell), weights)


def gru_cell(
    x: Any,
    state: Any,
    input_weight: Any,
    hidden_weight: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
    /,
) -> NDArray:
    """One step of a gated recurrent unit: the next state.

    x: (batch, inputs), or (inputs,); state: (batch, units), or None for zeros; input_weight: (3 * units,
    inputs); hidden_weight: (3 * units, units); biases: (3 * units,), or None; rows in the order reset,
    update, new. The reset gate acts on the product of the state, as in PyTorch.
    Cho et al., Learning phrase representations, 2014.
    Raises ShapeError if a shape does not fit.

    >>> import tracejit as tj
    >>> tj.nn.gru_cell(tj.ones((1, 2)), tj.ones((1, 1)), tj.zeros((3, 2)), tj.zeros((3, 1)))
    NDArray([[0.5]], dtype=float32)
    """
    name = "nn.gru_cell"
    array, weights = _prepared(name, 3, x, (input_weight, hidden_weight, input_bias, hidden_bias))
    before = _initial(name, state, array, weights)
    return _gru_step(linear(array, weights.input, weights.input_bias), before, weights)


# ---- sequences


def _first(name: str, x: Any) -> Any:
    """The first step of sequences, (batch, inputs)."""
    check_dimensions(name, "x", x, 3, "(batch, steps, inputs)")
    if not x.shape[1]:
        raise locate(ShapeError(f"{name}: x of shape {x.shape} has no step"), user_location())
    return x[:, 0]


def _sequence(
    name: str,
    x: Any,
    weights: _Weights,
    state: Any,
    reverse: bool,
    step: Callable[[Any, Any], tuple[Any, Any]],
) -> tuple[Any, Any]:
    """All outputs, (batch, steps, units), and the last state; `step` gives an output and the next state."""
    steps = x.shape[1]
    projected = moveaxis(linear(x, weights.input, weights.input_bias), 1, 0)
    outputs: list[Any] = [None] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        outputs[t], state = step(projected[t], state)
    return stack(outputs, axis=1), state


def rnn(
    x: Any,
    state: Any,
    input_weight: Any,
    hidden_weight: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
    /,
    *,
    nonlinearity: str = "tanh",
    reverse: bool = False,
) -> tuple[NDArray, NDArray]:
    """`rnn_cell` along sequences: all states, (batch, steps, units), and the last one.

    x: (batch, steps, inputs); all others as for `rnn_cell`. With `reverse` the last step comes first.
    Raises ShapeError if a shape does not fit, ArgumentError for another `nonlinearity`.

    >>> import tracejit as tj
    >>> x, w = tj.ones((1, 3, 1)), tj.ones((1, 1))
    >>> tj.nn.rnn(x, None, w, w, nonlinearity="relu")[0].numpy().reshape(-1)
    array([1., 2., 3.], dtype=float32)
    """
    name = "nn.rnn"
    function = _nonlinearity(name, nonlinearity)
    array, weights = _prepared(name, 1, x, (input_weight, hidden_weight, input_bias, hidden_bias))

    def step(projected: Any, state: Any) -> tuple[Any, Any]:
        found = _rnn_step(projected, state, weights, function)
        return found, found

    first = _initial(name, state, _first(name, array), weights)
    return _sequence(name, array, weights, first, reverse, step)


def lstm(
    x: Any,
    state: Any,
    input_weight: Any,
    hidden_weight: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
    /,
    *,
    reverse: bool = False,
) -> tuple[NDArray, tuple[NDArray, NDArray]]:
    """`lstm_cell` along sequences: all hidden states, (batch, steps, units), and the last (hidden, cell).

    x: (batch, steps, inputs); all others as for `lstm_cell`. With `reverse` the last step comes first.
    Raises ShapeError if a shape does not fit, ArgumentError for a state that is no pair.

    >>> import tracejit as tj
    >>> outputs, (hidden, cell) = tj.nn.lstm(tj.ones((2, 5, 3)), None, tj.ones((16, 3)), tj.ones((16, 4)))
    >>> outputs.shape, hidden.shape
    ((2, 5, 4), (2, 4))
    """
    name = "nn.lstm"
    array, weights = _prepared(name, 4, x, (input_weight, hidden_weight, input_bias, hidden_bias))

    def step(projected: Any, state: Any) -> tuple[Any, Any]:
        found = _lstm_step(projected, state, weights)
        return found[0], found

    first = tuple(_initial(name, part, _first(name, array), weights) for part in _pair(name, state))
    return _sequence(name, array, weights, first, reverse, step)


def gru(
    x: Any,
    state: Any,
    input_weight: Any,
    hidden_weight: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
    /,
    *,
    reverse: bool = False,
) -> tuple[NDArray, NDArray]:
    """`gru_cell` along sequences: all states, (batch, steps, units), and the last one.

    x: (batch, steps, inputs); all others as for `gru_cell`. With `reverse` the last step comes first.
    Raises ShapeError if a shape does not fit.

    >>> import tracejit as tj
    >>> tj.nn.gru(tj.ones((2, 5, 3)), None, tj.ones((12, 3)), tj.ones((12, 4)))[0].shape
    (2, 5, 4)
    """
    name = "nn.gru"
    array, weights = _prepared(name, 3, x, (input_weight, hidden_weight, input_bias, hidden_bias))

    def step(projected: Any, state: Any) -> tuple[Any, Any]:
        found = _gru_step(projected, state, weights)
        return found, found

    first = _initial(name, state, _first(name, array), weights)
    return _sequence(name, array, weights, first, reverse, step)


__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_cell"]
