"""Random numbers: counter-based, so that the same seed gives the same numbers eagerly, traced and replayed.

A *stream* is a key and a counter. A draw of n numbers takes the positions counter .. counter + n - 1 and
moves the counter on; element i is a pure function of key and position (Philox 4x32-10), whoever computes it,
in whatever order. In a trace the positions are relative to the counter at the launch, and a replay moves the
stream by the recorded total.

Each device has a stream of its own; it starts from the operating system's randomness unless `seed` is called,
which gives each device another key.

>>> import tracejit as tj
>>> tj.random.seed(7)
>>> first = tj.random.normal(shape=3)
>>> tj.random.seed(7)
>>> (tj.random.normal(shape=3) == first).all()
NDArray(True, dtype=bool)
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, locate
from tracejit.forking import make_lock
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.axes import integer, new_shape
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.devices import chosen_device
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import plain
from tracejit.frontend.recording.recording import Recording, RuntimeNumber, lock, quiet
from tracejit.ir.graph import Value
from tracejit.ir.types import Device

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

WORD = 1 << 64
BOOL, INT64, UINT32, UINT64 = map(np.dtype, ("bool", "int64", "uint32", "uint64"))
FLOAT32, FLOAT64 = np.dtype("float32"), np.dtype("float64")


class Stream:
    """A key and how many numbers were drawn under it; threads that share one get disjoint positions.

    >>> import tracejit as tj
    >>> stream = tj.random.Stream(seed=1)
    >>> stream.advance(3), stream.advance(2), stream.counter
    (0, 3, 5)
    """

    __slots__ = ("counter", "key", "lock")

    def __init__(self, seed: int | None = None):
        self.lock = make_lock()
        self.seed(seed)

    def seed(self, seed: int | None) -> None:
        """Start again: from an integer, or from the operating system's randomness.

        >>> import tracejit as tj
        >>> stream = tj.random.Stream(seed=1)
        >>> position = stream.advance(10)
        >>> stream.seed(1)
        >>> stream.counter
        0
        """
        with self.lock:
            self.key = int.from_bytes(os.urandom(8), "little") if seed is None else seed % WORD
            self.counter = 0

    def advance(self, count: int) -> int:
        """Take `count` positions; the first of them. An interrupt takes none.

        >>> import tracejit as tj
        >>> stream = tj.random.Stream(seed=1)
        >>> stream.advance(10), stream.counter
        (0, 10)
        """
        start = None
        try:
            with self.lock:
                start = self.counter
                self.counter = (start + count) % WORD
            return start
        except BaseException:
            if start is not None:
                self.give_back(start, count)
            raise

    def give_back(self, start: int, count: int) -> None:
        """Positions that were taken last, and not used, are free again.

        >>> import tracejit as tj
        >>> stream = tj.random.Stream(seed=1)
        >>> stream.give_back(stream.advance(10), 10)
        >>> stream.counter
        0
        """
        with self.lock:
            if self.counter == (start + count) % WORD:
                self.counter = start


_streams: dict[Device, Stream] = {}
_streams_lock = make_lock()
_seed: list[int | None] = [None]


def stream(device: Any = None) -> Stream:
    """The stream of a device.

    Raises DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.random.seed(5)
    >>> x = tj.random.uniform(shape=4)
    >>> tj.random.stream().counter
    4
    """
    place = chosen_device("random.stream", device)
    with _streams_lock:
        return _streams.setdefault(place, Stream(_seed_of(place)))


def _seed_of(device: Device) -> int | None:
    """The key of a device's stream: the seed for ``cpu:0``, for others the seed mixed with their number.

    Equal keys would give equal dropout masks everywhere. The mixing is that of SplitMix64 (Steele, Lea and
    Flood 2014).
    """
    if _seed[0] is None or not device.index:
        return _seed[0]
    mixed = (_seed[0] + device.index * 0x9E3779B97F4A7C15) % WORD
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % WORD
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % WORD
    return mixed ^ mixed >> 31


def seed(value: int | None) -> None:
    """Start all streams again from an integer, or with None from the operating system's randomness.

    Inside a traced function this makes the function piecewise.
    Raises ArgumentError for what is no integer.

    >>> import tracejit as tj
    >>> tj.random.seed(7)
    >>> x = tj.random.uniform(shape=3)
    >>> tj.random.seed(7)
    >>> bool((tj.random.uniform(shape=3) == x).all())
    True
    """
    with _streams_lock:
        _seed[0] = None if value is None else integer("random.seed", value)
        for device, known in _streams.items():
            known.seed(_seed_of(device))


def stream_values(recording: Recording, source: Stream, count: int) -> tuple[Value, Value]:
    """Key and counter (uint64 numbers of the recording) for `count` numbers, which the stream gives up."""
    draw = getattr(recording, "draw", None)
    if draw is not None:
        return draw(source, count)
    start = source.advance(count)
    return (
        recording.number(RuntimeNumber(source.key, source.key), UINT64),
        recording.number(RuntimeNumber(start, start), UINT64),
    )


def _bits(shape: tuple[int, ...], dtype: np.dtype, device: Device) -> Any:
    """Random bits of `dtype` (uint32 or uint64), one position for each element."""
    with lock, quiet:
        recording = eager.current()
        bits = _draw(recording, math.prod(shape), dtype, device)
    recording.end_operation()
    return bits.reshape(shape)


def _draw(recording: Recording, count: int, dtype: np.dtype, device: Device) -> Any:
    key, counter = stream_values(recording, stream(device), count)
    index = recording.emit(ops.iota, size=count, device=device)
    return dispatch.wrap(recording, recording.emit(ops.random_bits, key, counter, index, dtype=dtype))


def _unit(shape: tuple[int, ...], dtype: np.dtype, device: Device) -> Any:
    """Uniform numbers in [0, 1), with all the bits that the dtype's fraction holds."""
    if dtype == FLOAT32:
        return dispatch.cast(_bits(shape, UINT32, device) >> 8, FLOAT32) * 2.0**-24
    return dispatch.cast(_bits(shape, UINT64, device) >> 11, FLOAT64) * 2.0**-53


def _place(name: str, shape: Any, dtype: Any, device: Any) -> tuple[tuple[int, ...], np.dtype, Device]:
    wanted = FLOAT32 if dtype is None else promotion.supported(name, dtype)
    if wanted.kind != "f":
        raise locate(
            ArgumentError(f"{name}: dtype must be float32 or float64, not {wanted}"), user_location()
        )
    return new_shape(name, shape), wanted, chosen_device(name, device)


def _cast(x: Any, dtype: np.dtype) -> Any:
    """A parameter of a distribution: arrays in the dtype of the result, numbers as they are."""
    if isinstance(x, (tuple, list)):
        raise locate(
            ArgumentError(f"random: {x!r} is no parameter of a distribution; pass a shape as shape={x!r}"),
            user_location(),
        )
    return dispatch.cast(x, dtype) if isinstance(x, ArrayCore) else x


def uniform(
    low: Any = 0.0, high: Any = 1.0, shape: Any = (), dtype: Any = None, *, device: Any = None
) -> NDArray:
    """Numbers evenly distributed in [low, high), float32 by default; the bounds may be arrays. Where they are
    large beside their distance, a number may be rounded to `high`, as NumPy's may.
    Raises ArgumentError for a dtype that is not floating, ShapeError for a negative extent or bounds that do
    not broadcast.

    >>> import tracejit as tj
    >>> tj.random.uniform(shape=(2, 3)).shape
    (2, 3)
    """
    extents, wanted, place = _place("random.uniform", shape, dtype, device)
    unit = _unit(extents, wanted, place)
    return unit * (_cast(high, wanted) - _cast(low, wanted)) + _cast(low, wanted)


def normal(
    loc: Any = 0.0, scale: Any = 1.0, shape: Any = (), dtype: Any = None, *, device: Any = None
) -> NDArray:
    """Normally distributed numbers with mean `loc` and standard deviation `scale`, float32 by default.

    By Box and Muller's transform, from the two halves of one position (float32) or from two positions
    (float64).
    Raises ArgumentError for a dtype that is not floating, ShapeError for a negative extent or parameters that
    do not broadcast.

    >>> import tracejit as tj
    >>> tj.random.normal(shape=4, dtype=tj.float64).dtype
    dtype('float64')
    """
    extents, wanted, place = _place("random.normal", shape, dtype, device)
    if type(scale) in (int, float) and scale < 0:
        raise locate(
            ArgumentError(f"random.normal: expected a scale of at least 0, got {scale}"), user_location()
        )
    if wanted == FLOAT32:
        bits = _bits(extents, UINT64, place)
        radius = dispatch.cast(bits >> 32, FLOAT32) * 2.0**-32 + 2.0**-33
        angle = dispatch.cast((bits & 0xFFFFFFFF) >> 8, FLOAT32) * (2 * math.pi * 2.0**-24)
    else:
        radius = 1 - _unit(extents, wanted, place)
        angle = _unit(extents, wanted, place) * (2 * math.pi)
    length = dispatch.apply(ops.sqrt, dispatch.apply(ops.log, radius) * -2.0)
    return length * dispatch.apply(ops.cos, angle) * _cast(scale, wanted) + _cast(loc, wanted)


def integers(
    low: int, high: int | None = None, shape: Any = (), dtype: Any = None, *, device: Any = None
) -> NDArray:
    """Integers evenly distributed from `low` (0 if only one bound is given) to `high` - 1, int64 by default.

    The upper 64 bits of bits * (high - low), so some numbers are more likely than others by at most (high -
    low) / 2**64.
    Raises ArgumentError for a dtype that is no integer one, or bounds that are empty or outside of it.

    >>> import tracejit as tj
    >>> x = tj.random.integers(5, 7, shape=100)
    >>> bool(((x >= 5) & (x < 7)).all())
    True
    """
    bounds = (0, low) if high is None else (low, high)
    first, last = (integer("random.integers", plain(b)) for b in bounds)
    wanted = INT64 if dtype is None else promotion.supported("random.integers", dtype)
    if wanted.kind not in "iu":
        raise locate(
            ArgumentError(f"random.integers: dtype must be an integer, not {wanted}"), user_location()
        )
    limits = np.iinfo(wanted)
    if not limits.min <= first < last <= limits.max + 1:
        raise locate(
            ArgumentError(
                f"random.integers: need low < high within {wanted}, got {first} and {last}; "
                f"low is at least {limits.min}, high at most {limits.max + 1}"
            ),
            user_location(),
        )
    extents = new_shape("random.integers", shape)
    bits = _bits(extents, UINT64, chosen_device("random.integers", device))
    scaled = bits if last - first == WORD else _upper_product(bits, last - first)
    return dispatch.cast(scaled + first % WORD, wanted)


def _upper_product(x: Any, factor: int) -> Any:
    """The upper 64 bits of the 128-bit product of a uint64 array and a number, by halves."""
    low, high = factor & 0xFFFFFFFF, factor >> 32
    x_low, x_high = x & 0xFFFFFFFF, x >> 32
    middle = x_high * low + ((x_low * low) >> 32)
    if not high:
        return middle >> 32
    other = x_low * high + (middle & 0xFFFFFFFF)
    return x_high * high + (middle >> 32) + (other >> 32)


def bernoulli(p: Any = 0.5, shape: Any = (), *, device: Any = None) -> NDArray:
    """Bools that are True with probability `p`, which may be an array that broadcasts.

    Raises ShapeError for a negative extent, or if `p` and `shape` do not broadcast.

    >>> import tracejit as tj
    >>> bool(tj.random.bernoulli(1.0, shape=10).all())
    True
    """
    extents, wanted, place = _place("random.bernoulli", shape, None, device)
    return _unit(extents, wanted, place) < p


__all__ = ["Stream", "bernoulli", "integers", "normal", "seed", "stream", "uniform"]
