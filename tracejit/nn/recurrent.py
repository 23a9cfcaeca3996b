"""Recurrent cells and sequences: a state that is updated by every step of a sequence.

Weights have PyTorch's layout: the rows of all gates are stacked, in the order ``input, forget, cell, output``
for lstm, ``reset, update, new`` for gru. A sequence multiplies all its steps by the input's weight in one
product, and then loops over the steps: a traced function contains every step.
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
    """The parameters of a cell, in a common floating dtype."""

    input: Any
    hidden: Any
    input_bias: Any
    hidden_bias: Any

    @property
    def units(self) -> int:
        """The extent of the state."""
        return self.hidden.shape[1]


def _prepared(name: str, gates: int, x: Any, parameters: tuple[Any, ...]) -> tuple[Any, _Weights]:
    """Return inputs and checked weights in their common floating dtype."""
    array, *converted = floats(name, x, *parameters)
    weights = _Weights(*converted)
    for what, matrix in (("input_weight", weights.input), ("hidden_weight", weights.hidden)):
        check_dimensions(name, what, matrix, 2, f"({gates} * units, inputs or units)")
    rows = gates * weights.units
    row_count = "units" if gates == 1 else f"{gates} * units"
    if weights.input.shape[0] != rows or weights.hidden.shape[0] != rows:
        shapes = f"input_weight {weights.input.shape} and hidden_weight {weights.hidden.shape}"
        expected = f"expected ({row_count}, inputs) and ({row_count}, units)"
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
    """Return a checked state of shape (batch, units), or zeros for None."""
    shape = (*x.shape[:-1], weights.units)
    if state is None:
        return zeros(shape, dtype=x.dtype, device=x.device)
    array = dispatch.cast(dispatch.as_array(name, state), x.dtype)
    check_shape(name, "state", array, shape, "the batch of x, and the units")
    return array


def _pair(name: str, state: Any) -> tuple[Any, Any]:
    """Return the hidden state and the cell of lstm."""
    if state is None:
        return None, None
    if not isinstance(state, tuple | list) or len(state) != 2:
        kind = type(state).__name__
        raise locate(
            ArgumentError(f"{name}: state is a pair (hidden, cell), or None, not a {kind}"), user_location()
        )
    return state[0], state[1]


def _split(x: Any, count: int) -> list[Any]:
    """Split the last dimension into `count` equal views."""
    extent = x.shape[-1] // count
    return [x[..., i * extent : (i + 1) * extent] for i in range(count)]


# ---- one step, from the projected input


def _rnn_step(projected: Any, state: Any, weights: _Weights, function: Any) -> Any:
    return function(projected + linear(state, weights.hidden, weights.hidden_bias))


def _lstm_step(projected: Any, state: tuple[Any, Any], weights: _Weights) -> tuple[Any, Any]:
    hidden, cell = state
    input_gate, forget_gate, new, output_gate = _split(
        projected + linear(hidden, weights.hidden, weights.hidden_bias), 4
    )
    cell = sigmoid(forget_gate) * cell + sigmoid(input_gate) * tanh(new)
    return sigmoid(output_gate) * tanh(cell), cell


def _gru_step(projected: Any, state: Any, weights: _Weights) -> Any:
    reset, update, new = _split(projected, 3)
    hidden_reset, hidden_update, hidden_new = _split(linear(state, weights.hidden, weights.hidden_bias), 3)
    update = sigmoid(update + hidden_update)
    new = tanh(new + sigmoid(reset + hidden_reset) * hidden_new)
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
    """Compute one step of a simple recurrent net: ``tanh(input_weight @ x + hidden_weight @ state +
    biases)``.

    x: (batch, inputs), or (inputs,); state: (batch, units), or None for zeros; input_weight: (units, inputs);
    hidden_weight: (units, units); biases: (units,), or None. nonlinearity: "tanh" or "relu".
    Elman, Finding structure in time, 1990.
    Returns the next state.
    Raises ShapeError if a shape does not match, ArgumentError for another `nonlinearity`.

    >>> import tracejit as tj
    >>> tj.nn.rnn_cell(tj.ones((1, 2)), None, tj.ones((1, 2)), tj.ones((1, 1)), nonlinearity="relu")
    NDArray([[2.]], dtype=float32)
    """
    name = "nn.rnn_cell"
    function = _nonlinearity(name, nonlinearity)
    array, weights = _prepared(name, 1, x, (input_weight, hidden_weight, input_bias, hidden_bias))
    previous = _initial(name, state, array, weights)
    return _rnn_step(linear(array, weights.input, weights.input_bias), previous, weights, function)


def _nonlinearity(name: str, function_name: str) -> Any:
    check_choice(name, "nonlinearity", function_name, ("tanh", "relu"))
    return tanh if function_name == "tanh" else relu


def lstm_cell(
    x: Any,
    state: Any,
    input_weight: Any,
    hidden_weight: Any,
    input_bias: Any = None,
    hidden_bias: Any = None,
    /,
) -> tuple[NDArray, NDArray]:
    """Compute one step of long short-term memory: return the next (hidden, cell).

    x: (batch, inputs), or (inputs,); state: a pair (hidden, cell) of shape (batch, units), or None for zeros;
    input_weight: (4 * units, inputs); hidden_weight: (4 * units, units); biases: (4 * units,), or None; rows
    in the order input, forget, cell, output.
    Hochreiter and Schmidhuber, Long short-term memory, 1997; Gers et al., Learning to forget, 2000.
    Raises ShapeError if a shape does not match, ArgumentError for a state that is not a pair.

    >>> import tracejit as tj
    >>> hidden, cell = tj.nn.lstm_cell(tj.ones((1, 2)), None, tj.zeros((4, 2)), tj.zeros((4, 1)))
    >>> hidden, cell
    (NDArray([[0.]], dtype=float32), NDArray([[0.]], dtype=float32))
    """
    name = "nn.lstm_cell"
    array, weights = _prepared(name, 4, x, (input_weight, hidden_weight, input_bias, hidden_bias))
    hidden, cell = (_initial(name, array_state, array, weights) for array_state in _pair(name, state))
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
    """Compute one step of a gated recurrent unit: return the next state.

    x: (batch, inputs), or (inputs,); state: (batch, units), or None for zeros; input_weight: (3 * units,
    inputs); hidden_weight: (3 * units, units); biases: (3 * units,), or None; rows in the order reset,
    update, new. The reset gate is applied after the product with hidden_weight, as in PyTorch.
    Cho et al., Learning phrase representations, 2014.
    Raises ShapeError if a shape does not match.

    >>> import tracejit as tj
    >>> tj.nn.gru_cell(tj.ones((1, 2)), tj.ones((1, 1)), tj.zeros((3, 2)), tj.zeros((3, 1)))
    NDArray([[0.5]], dtype=float32)
    """
    name = "nn.gru_cell"
    array, weights = _prepared(name, 3, x, (input_weight, hidden_weight, input_bias, hidden_bias))
    previous = _initial(name, state, array, weights)
    return _gru_step(linear(array, weights.input, weights.input_bias), previous, weights)


# ---- sequences


def _first(name: str, x: Any) -> Any:
    """Return the first step of sequences, (batch, inputs)."""
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
    """Return all outputs, (batch, steps, units), and the last state; `step` returns output and next state."""
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
    """Apply `rnn_cell` along sequences: return all states, (batch, steps, units), and the last state.

    x: (batch, steps, inputs); other arguments as for `rnn_cell`. With `reverse`, the steps are processed from
    the last to the first.
    Raises ShapeError if a shape does not match, ArgumentError for another `nonlinearity`.

    >>> import tracejit as tj
    >>> x, w = tj.ones((1, 3, 1)), tj.ones((1, 1))
    >>> tj.nn.rnn(x, None, w, w, nonlinearity="relu")[0].numpy().reshape(-1)
    array([1., 2., 3.], dtype=float32)
    """
    name = "nn.rnn"
    function = _nonlinearity(name, nonlinearity)
    array, weights = _prepared(name, 1, x, (input_weight, hidden_weight, input_bias, hidden_bias))

    def step(projected: Any, state: Any) -> tuple[Any, Any]:
        new_state = _rnn_step(projected, state, weights, function)
        return new_state, new_state

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
    """Apply `lstm_cell` along sequences: return all hidden states, (batch, steps, units), and the last
    (hidden, cell).

    x: (batch, steps, inputs); other arguments as for `lstm_cell`. With `reverse`, the steps are processed
    from the last to the first.
    Raises ShapeError if a shape does not match, ArgumentError for a state that is not a pair.

    >>> import tracejit as tj
    >>> outputs, (hidden, cell) = tj.nn.lstm(tj.ones((2, 5, 3)), None, tj.ones((16, 3)), tj.ones((16, 4)))
    >>> outputs.shape, hidden.shape
    ((2, 5, 4), (2, 4))
    """
    name = "nn.lstm"
    array, weights = _prepared(name, 4, x, (input_weight, hidden_weight, input_bias, hidden_bias))

    def step(projected: Any, state: Any) -> tuple[Any, Any]:
        new_state = _lstm_step(projected, state, weights)
        return new_state[0], new_state

    first = tuple(_initial(name, initial, _first(name, array), weights) for initial in _pair(name, state))
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
    """Apply `gru_cell` along sequences: return all states, (batch, steps, units), and the last state.

    x: (batch, steps, inputs); other arguments as for `gru_cell`. With `reverse`, the steps are processed from
    the last to the first.
    Raises ShapeError if a shape does not match.

    >>> import tracejit as tj
    >>> tj.nn.gru(tj.ones((2, 5, 3)), None, tj.ones((12, 3)), tj.ones((12, 4)))[0].shape
    (2, 5, 4)
    """
    name = "nn.gru"
    array, weights = _prepared(name, 3, x, (input_weight, hidden_weight, input_bias, hidden_bias))

    def step(projected: Any, state: Any) -> tuple[Any, Any]:
        new_state = _gru_step(projected, state, weights)
        return new_state, new_state

    first = _initial(name, state, _first(name, array), weights)
    return _sequence(name, array, weights, first, reverse, step)


__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_cell"]
