"""The arguments of a call of a distribution, and the random bits from which its result is computed.

A `Draw` stores shape, dtype and parameters, and draws from the stream of a device or from a `Generator`:

    draw = Draw("random.laplace", shape, dtype, device, generator, loc, scale)
    centre, width = draw.parameters              # numbers, or arrays of the result's dtype
    unit = draw.open_unit()                      # one uniform number for each element

Invariant: the number of stream positions that a call consumes depends only on the shape, the dtype and the
kinds of the parameters, never on values, so a recording and all its replays consume equal numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from tracejit import ops
from tracejit.config import config
from tracejit.errors import ArgumentError, ShapeError, TracejitError, locate
from tracejit.frontend.arrays import direct, dispatch, promotion
from tracejit.frontend.arrays.axes import new_shape
from tracejit.frontend.arrays.core import ArrayCore, computed
from tracejit.frontend.arrays.devices import chosen_device
from tracejit.frontend.arrays.random.streams import WORD, stream, stream_values
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.recording import lock, quiet, thread
from tracejit.ir.types import BFLOAT16, CPU, FLOAT16, Device, is_floating

if TYPE_CHECKING:
    from tracejit.frontend.arrays.random.generator import Generator

F = TypeVar("F", bound=Callable[..., Any])
FLOAT32, FLOAT64 = np.dtype("float32"), np.dtype("float64")
INT64, UINT32, UINT64 = np.dtype("int64"), np.dtype("uint32"), np.dtype("uint64")
DIGITS = {FLOAT16: 11, BFLOAT16: 8, FLOAT32: 24}
"""Precision of the dtype: binary digits of a number in [1, 2)."""


def refuse(message: str, kind: type[TracejitError] = ArgumentError) -> TracejitError:
    """Return an error with the user's line."""
    return locate(kind(message), user_location())


class Draw:
    """Shape, dtype and parameters of one call, and the source of its random bits.

    extents:    the shape of the result: the requested one, or the broadcast shape of the parameters.
    parameters: numbers unchanged, arrays in the dtype `within`, the dtype of the computation. By default it
    is
                the dtype of a floating result, but float32 for half dtypes.
    tail:       further trailing dimensions for which bits are drawn.
    """

    def __init__(
        self,
        name: str,
        shape: Any,
        dtype: Any,
        device: Any,
        generator: Generator | None,
        *parameters: Any,
        kinds: str = "f",
        within: np.dtype | None = None,
        tail: tuple[int, ...] = (),
    ) -> None:
        default = FLOAT32 if kinds == "f" else INT64
        self.name = name
        self.dtype = default if dtype is None else promotion.supported(name, dtype)
        if not (is_floating(self.dtype) if kinds == "f" else self.dtype.kind in kinds):
            expected = "a floating one" if kinds == "f" else "an integer"
            raise refuse(f"{name}: dtype must be {expected}, not {self.dtype}")
        floating = FLOAT32 if self.dtype in DIGITS else FLOAT64
        self.within = within or (floating if kinds == "f" else FLOAT64)
        self.parameters = [_parameter(name, p, self.within) for p in parameters]
        self.device = chosen_device(name, device)
        self.generator = generator
        self.extents = _extents(name, shape, [p.shape for p in self.parameters if isinstance(p, ArrayCore)])
        self.tail = tail

    def bits(self, dtype: np.dtype = UINT64, proposals: tuple[int, ...] = ()) -> Any:
        """Draw random bits, one position for each element; `proposals` are further leading dimensions."""
        shape = (*proposals, *self.extents, *self.tail)
        count = math.prod(shape)
        if self.generator is None:
            return _of_stream(count, dtype, self.device).reshape(shape)
        return self.generator._bits(count, dtype).reshape(shape)

    def unit(self, dtype: np.dtype | None = None, proposals: tuple[int, ...] = ()) -> Any:
        """Draw uniform numbers in [0, 1), with all bits of the significand of the result's dtype."""
        computed_in = self.within if dtype is None else dtype
        if computed_in == FLOAT32:
            digits = DIGITS.get(self.dtype, DIGITS[FLOAT32])
            return dispatch.cast(self.bits(UINT32, proposals) >> (32 - digits), FLOAT32) * 2.0**-digits
        return dispatch.cast(self.bits(UINT64, proposals) >> 11, FLOAT64) * 2.0**-53

    def open_unit(self, dtype: np.dtype | None = None, proposals: tuple[int, ...] = ()) -> Any:
        """Draw uniform numbers in (0, 1), without both ends.

        They are the midpoints of 2**23 (float32) or 2**52 intervals, so the distribution is symmetric.
        """
        computed_in = self.within if dtype is None else dtype
        if computed_in == FLOAT32:
            return (dispatch.cast(self.bits(UINT32, proposals) >> 9, FLOAT32) + 0.5) * 2.0**-23
        return (dispatch.cast(self.bits(UINT64, proposals) >> 12, FLOAT64) + 0.5) * 2.0**-52

    def normal(self, proposals: tuple[int, ...] = ()) -> Any:
        """Draw standard normal numbers by the Box-Muller transform.

        Each uses the two halves of one position (float32) or two positions (float64).
        """
        if self.within == FLOAT32:
            bits = self.bits(UINT64, proposals)
            radius = dispatch.cast(bits >> 32, FLOAT32) * 2.0**-32 + 2.0**-33
            angle = dispatch.cast((bits & 0xFFFFFFFF) >> 8, FLOAT32) * (2 * math.pi * 2.0**-24)
        else:
            radius = 1 - self.unit(proposals=proposals)
            angle = self.unit(proposals=proposals) * (2 * math.pi)
        length = dispatch.apply(ops.sqrt, dispatch.apply(ops.log, radius) * -2.0)
        return length * dispatch.apply(ops.cos, angle)

    def without_gradient(self, x: Any) -> Any:
        """Mark a parameter on which the choice of a candidate depends.

        A gradient of the result with respect to the parameter raises an error that states the reason.
        """
        if not isinstance(x, ArrayCore):
            return x
        reason = f"{self.name}: the result has no gradient with respect to what decides about candidates"
        return dispatch.emit(ops.without_gradient, x, reason=reason)

    def result(self, x: Any) -> Any:
        """Cast `x` to the requested dtype."""
        return dispatch.cast(x, self.dtype)


def _of_stream(count: int, dtype: np.dtype, device: Device) -> Any:
    """Draw random bits from the stream of a device."""
    if is_small(count, device):
        source = stream(device)
        start = source.advance(count)
        numbers = bits_at(source.key, start, count, dtype)
        if numbers is not None:
            return computed(numbers)
        source.give_back(start, count)
    with quiet, lock:
        recording = eager.current()
        key, counter = stream_values(recording, stream(device), count)
        index = recording.emit(ops.iota, size=count, device=device)
        bits = dispatch.wrap(recording, recording.emit(ops.random_bits, key, counter, index, dtype=dtype))
    recording.end_operation()
    return bits


def is_small(count: int, device: Device) -> bool:
    """Whether `count` numbers are computed immediately instead of being recorded; see `immediate`."""
    return not thread.busy and 0 < count <= eager.SMALL and device is CPU and not config.check


def bits_at(key: int, start: int, count: int, dtype: np.dtype) -> np.ndarray | None:
    """Compute the bits from position `start` on immediately, by the kernel; None if it cannot run."""
    numbers = [direct.Number(x - WORD if x >= WORD // 2 else x, UINT64) for x in (key, start)]
    return direct.compute(ops.random_bits, (*numbers, np.arange(count)), {"dtype": dtype})


def _parameter(name: str, x: Any, dtype: np.dtype) -> Any:
    """Return a parameter of a distribution: arrays in the dtype of the computation, numbers unchanged."""
    if isinstance(x, (tuple, list)):
        raise refuse(f"{name}: {x!r} is no parameter of a distribution; pass a shape as shape={x!r}")
    operand = dispatch.as_operand(name, x)
    if isinstance(operand, complex):
        raise refuse(f"{name}: expected real parameters, got {operand}")
    return dispatch.cast(operand, dtype) if isinstance(operand, ArrayCore) else operand


def _extents(name: str, shape: Any, parameter_shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of the result. Raises ShapeError unless all parameters broadcast to it."""
    if shape is None:
        return dispatch.broadcast_shape(name, parameter_shapes)
    extents = new_shape(name, shape)
    if any(dispatch.broadcast_shape(name, [extents, one]) != extents for one in parameter_shapes):
        shapes = " and ".join(map(str, parameter_shapes))
        raise refuse(f"{name}: parameters of shape {shapes} do not fit into shape={extents}", ShapeError)
    return extents


def accepts_size(function: F) -> F:
    """Wrap a distribution to accept `size`, NumPy's name of `shape`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "size" in kwargs:
            if "shape" in kwargs:
                raise refuse(f"random.{function.__name__}: give shape or size, not both")
            kwargs["shape"] = kwargs.pop("size")
        return function(*args, **kwargs)

    return cast(F, call)


# -- domains -------------------------------------------------------------------------------------------------


def check(name: str, what: str, x: Any, is_valid: Any, expected: str) -> None:
    """Raise ArgumentError unless `is_valid` is true of a parameter: a number, or all elements of an array.

    A traced array is not checked; its invalid elements lead to nan or wrong numbers.
    """
    if isinstance(x, ArrayCore):
        if thread.trace is not None:
            return
        x = x.numpy()
    elif type(x) is NumberProxy:
        if not is_valid(x):  # a guard
            raise refuse(f"{name}: expected {what} {expected}, got {x}")
        return
    elif not isinstance(x, int | float | np.ndarray | np.generic):
        return  # `Draw` raises the error
    with np.errstate(invalid="ignore"):
        valid = np.asarray(is_valid(x))
    if not valid.all():
        values = np.asarray(x)
        invalid = values[~valid].flat[0] if values.ndim else values[()]
        raise refuse(f"{name}: expected {what} {expected}, got {invalid}")


def check_at_least_zero(name: str, what: str, x: Any) -> None:
    """Check that a parameter is not negative; see `check`."""
    check(name, what, x, lambda v: v >= 0, "of at least 0")


def check_positive(name: str, what: str, x: Any) -> None:
    """Check that a parameter is above zero; see `check`."""
    check(name, what, x, lambda v: v > 0, "above 0")


def check_probability(name: str, what: str, x: Any) -> None:
    """Check that a parameter is between 0 and 1; see `check`."""
    check(name, what, x, lambda v: (v >= 0) & (v <= 1), "between 0 and 1")


# -- rejection -----------------------------------------------------------------------------------------------


def first_accepted(candidates: Any, accepted: Any) -> Any:
    """Return the first accepted candidate along axis 0, or the last one if none is accepted."""
    count = accepted.shape[0]
    number = dispatch.emit(ops.iota, size=count, device=accepted.device).reshape(
        (count,) + (1,) * (accepted.ndim - 1)
    )
    chosen = dispatch.apply(ops.where, accepted, number, count - 1).min(axis=0)
    return dispatch.apply(ops.where, number == chosen, candidates, 0).sum(axis=0)
