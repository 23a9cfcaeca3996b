"""Streams of random numbers: what a seed starts, and each device has one of.

A *stream* is a key and a counter. A draw of n numbers takes the positions counter .. counter + n - 1 and
moves the counter on; element i is a pure function of key and position (Philox 4x32-10), whoever computes it,
in whatever order. In a trace the positions are relative to the counter at the launch, and a replay moves the
stream by the recorded total.

Each device has a stream of its own; it starts from the operating system's randomness unless `seed` is called.

>>> import tracejit as tj
>>> tj.random.seed(7)
>>> first = tj.random.normal(shape=3)
>>> tj.random.seed(7)
>>> (tj.random.normal(shape=3) == first).all()
NDArray(True, dtype=bool)
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tracejit.forking import make_lock
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.devices import chosen_device
from tracejit.frontend.recording.origins import RuntimeNumber
from tracejit.frontend.recording.recording import Recording
from tracejit.ir.graph import Value
from tracejit.ir.types import Device

WORD = 1 << 64
UINT64 = np.dtype("uint64")


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
    """Key and counter (uint64 numbers of the recording) for `count` numbers, which the stream skips then."""
    draw = getattr(recording, "draw", None)
    if draw is not None:
        return draw(source, count)
    start = source.advance(count)
    return (
        recording.number(RuntimeNumber(source.key, source.key), UINT64),
        recording.number(RuntimeNumber(start, start), UINT64),
    )


__all__ = ["Stream", "seed", "stream"]
