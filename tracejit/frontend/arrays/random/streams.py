"""Streams of random numbers, one per device, and their seeds.

A *stream* is a key and a counter. A draw of n numbers consumes the positions counter .. counter + n - 1 and
advances the counter. Each number is a pure function of key and position (Philox 4x32-10), independent of the
worker that computes it and of the order. In a trace, positions are relative to the counter at the launch, and
a replay advances the stream by the recorded total.

Each device has its own stream, seeded by the operating system unless `seed` is called.

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
from tracejit.frontend.python.purity import NO_ARRAY_WORK
from tracejit.frontend.recording.origins import RuntimeNumber
from tracejit.frontend.recording.recording import Recording
from tracejit.ir.graph import Value
from tracejit.ir.types import Device

WORD = 1 << 64
UINT64 = np.dtype("uint64")


class Stream:
    """A key and the number of consumed positions; threads that share a stream get disjoint positions.

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
        """Restart the stream from an integer, or with None from a seed of the operating system.

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
        """Consume `count` positions, and return the first of them. An interrupt consumes none.

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
        """Return positions that were consumed last, and not used, to the stream.

        >>> import tracejit as tj
        >>> stream = tj.random.Stream(seed=1)
        >>> stream.give_back(stream.advance(10), 10)
        >>> stream.counter
        0
        """
        with self.lock:
            if self.counter == (start + count) % WORD:
                self.counter = start

    def keep_until(self, end: int, start: int, count: int) -> int:
        """Return the positions from `end` on of `count` ones that begin at `start` to the stream, like
        `give_back`. The result is the number of positions before `end`.

        >>> import tracejit as tj
        >>> stream = tj.random.Stream(seed=1)
        >>> start = stream.advance(10)
        >>> stream.keep_until(4, start, 10), stream.counter
        (4, 4)
        """
        kept = (end - start) % WORD
        self.give_back(end, count - kept)
        return kept


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
    target = chosen_device("random.stream", device)
    with _streams_lock:
        return _streams.setdefault(target, Stream(_seed_of(target)))


def _seed_of(device: Device) -> int | None:
    """Return the key of a device's stream: the seed for index 0, otherwise the seed mixed with the index.

    Equal keys would produce equal dropout masks on all devices. The mixing function is that of SplitMix64
    (Steele, Lea and Flood 2014).
    """
    if _seed[0] is None or not device.index:
        return _seed[0]
    mixed = (_seed[0] + device.index * 0x9E3779B97F4A7C15) % WORD
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % WORD
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % WORD
    return mixed ^ mixed >> 31


def seed(value: int | None) -> None:
    """Restart all streams from an integer, or with None from seeds of the operating system.

    A call in a traced function makes the function piecewise.
    Raises ArgumentError for a value that is not an integer.

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


NO_ARRAY_WORK[seed.__code__] = "tj.random.seed"


def stream_values(recording: Recording, source: Stream, count: int) -> tuple[Value, Value]:
    """Consume `count` positions, and return the key and the counter as uint64 numbers of the recording."""
    draw = getattr(recording, "draw", None)
    if draw is not None:
        return draw(source, count)
    start = source.advance(count)
    return (
        recording.number(RuntimeNumber(source.key, source.key), UINT64),
        recording.number(RuntimeNumber(start, start), UINT64),
    )


__all__ = ["Stream", "seed", "stream"]
