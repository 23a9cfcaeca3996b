"""Generators of one's own: a stream of random numbers whose state is an array.

The state is two words, the key and how many numbers were drawn under it. A draw reads it and moves the second
word on in place, as array code does, so a generator needs nothing of a trace: as an argument, in a container,
as an attribute of a module or reached by name it gives the same numbers eagerly, traced and replayed, and
calls that share one are ordered by the engine's variable of its state.
"""

from __future__ import annotations

import functools
import inspect
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, ShapeError
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.core import ArrayCore, computed
from tracejit.frontend.arrays.devices import chosen_device
from tracejit.frontend.arrays.functions.creation import asarray, zeros
from tracejit.frontend.arrays.functions.manipulation import broadcast_to
from tracejit.frontend.arrays.functions.movement import stack
from tracejit.frontend.arrays.random.request import UINT64, is_small, refuse, words_at
from tracejit.frontend.arrays.random.streams import WORD
from tracejit.frontend.recording.look_loops.states import OBJECTS
from tracejit.frontend.recording.recording import lock
from tracejit.frontend.recording.storage import memory_lock

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray


@dataclass(init=False, eq=False, repr=False)
class Generator:
    """A stream of random numbers of one's own, with a method for each distribution of `tj.random`.

    seed: an integer, or None for the operating system's randomness. A generator gives the numbers that
    `tj.random.seed` with this seed gives.
    Its `state` is an array, so `tj.save` keeps it, and a generator is a tree with this leaf.
    Raises ArgumentError for a seed that is no integer, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> rng = tj.random.Generator(7)
    >>> saved = rng.state.copy()
    >>> x = rng.normal(shape=3)
    >>> rng.state[...] = saved
    >>> bool((rng.normal(shape=3) == x).all())
    True
    """

    state: NDArray
    """Key and counter, uint64[2]: copy it to save it, and write into it, or assign, to restore it."""

    def __init__(self, seed: int | None = None, *, device: Any = None) -> None:
        fresh = seed is None
        key = int.from_bytes(os.urandom(8), "little") if fresh else integer("random.Generator", seed) % WORD
        place = chosen_device("random.Generator", device)
        self.state = asarray(np.array([key, 0], UINT64), device=place)

    def __repr__(self) -> str:
        return f"Generator(state={self.state!r})"

    def spawn(self, count: int) -> list[Generator]:
        """New generators, independent of this one and of each other: their keys are numbers drawn from it.

        Raises ArgumentError for a count that is no integer or negative.

        >>> import tracejit as tj
        >>> one, two = tj.random.Generator(7).spawn(2)
        >>> float(one.uniform()) == float(two.uniform())
        False
        """
        number = integer("random.Generator.spawn", count)
        if number < 0:
            raise refuse(f"random.Generator.spawn: expected a count of at least 0, got {number}")
        keys = self._bits(number, UINT64)
        return [with_state(stack([keys[i], zeros((), UINT64)])) for i in range(number)]

    def _bits(self, count: int, dtype: np.dtype) -> Any:
        """`count` random words, which no other draw gets; in one step, for other threads."""
        state = _checked(self.state)
        words = _at_once(state, count, dtype) if is_small(count, state.device) else None
        if words is not None:
            return computed(words)
        drawn = []

        def draw(counter: Any, words: int) -> Any:
            index = dispatch.emit(ops.iota, size=words, device=state.device)
            key, start = (broadcast_to(word, (words,)) for word in (state[0], counter))
            drawn.append(dispatch.emit(ops.random_bits, key, start, index, dtype=dtype))
            return counter + words

        dispatch.in_place("draw", draw, state[1:], count)
        return drawn[0]

    if TYPE_CHECKING:  # the distributions, see `add_methods`

        def __getattr__(self, name: str) -> Any: ...


OBJECTS.add(Generator)


def _at_once(state: Any, count: int, dtype: np.dtype) -> np.ndarray | None:
    """`count` words, and the state moved on, if the state is in memory and nothing under way uses it."""
    with lock, memory_lock:
        held = state._writable()
        if held is None:
            return None
        key, start = held.tolist()
        words = words_at(key, start, count, dtype)
        if words is not None:
            held[1] = (start + count) % WORD
        return words


def with_state(state: Any) -> Generator:
    """The generator that goes on from a state (uint64[2])."""
    made = object.__new__(Generator)
    made.state = state
    return made


def _checked(state: Any) -> Any:
    """A generator's state, which people may have assigned."""
    if not isinstance(state, ArrayCore):
        raise refuse(f"random.Generator: state must be an array, got {type(state).__name__}", ArgumentError)
    if state.dtype != UINT64:
        raise refuse(f"random.Generator: state must be uint64, not {state.dtype}", DTypeError)
    if state.shape != (2,):
        raise refuse(f"random.Generator: state must have shape (2,), not {state.shape}", ShapeError)
    return state


def add_methods(distributions: dict[str, Any]) -> None:
    """Give generators a method for each of these functions, which have a parameter `generator`."""
    for name, function in distributions.items():
        setattr(Generator, name, _method(name, function))


def _method(name: str, function: Any) -> Any:
    given = inspect.signature(function)
    own = [p for p in given.parameters.values() if p.name not in ("device", "generator")]

    @functools.wraps(function)
    def method(self: Generator, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs or "generator" in kwargs:
            raise refuse(f"random.Generator.{name}: a generator draws on its own device")
        return function(*args, generator=self, **kwargs)

    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = given.replace(parameters=[receiver, *own])  # type: ignore[attr-defined]
    return method


__all__ = ["Generator"]
