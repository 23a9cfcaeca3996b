"""`Generator`, an independent stream of random numbers whose state is an array.

The state consists of two uint64 elements: the key, and the number of draws under this key. A draw reads the
state and advances the second element in place, like any array code. A generator therefore needs no support by
traces: as an argument, in a container, as an attribute of a module or as a global it generates the same
numbers in eager, traced and replayed execution. The engine's variable of the state orders calls that share a
generator.
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
from tracejit.frontend.arrays.random.request import UINT64, bits_at, is_small, refuse
from tracejit.frontend.arrays.random.streams import WORD
from tracejit.frontend.recording.look_loops.states import OBJECTS
from tracejit.frontend.recording.recording import lock
from tracejit.frontend.recording.storage import memory_lock

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray


@dataclass(init=False, eq=False, repr=False)
class Generator:
    """An independent stream of random numbers, with a method for each distribution of `tj.random`.

    seed: an integer, or None for a seed from the operating system. A generator produces the same numbers as
    the functions after `tj.random.seed` with this seed.
    Its `state` is an array, which `tj.save` stores, and a generator is a tree with this leaf.
    Raises ArgumentError for a seed that is not an integer, DeviceError for an unknown device.

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
        is_random = seed is None
        key = (
            int.from_bytes(os.urandom(8), "little") if is_random else integer("random.Generator", seed) % WORD
        )
        target = chosen_device("random.Generator", device)
        self.state = asarray(np.array([key, 0], UINT64), device=target)

    def __repr__(self) -> str:
        return f"Generator(state={self.state!r})"

    def spawn(self, count: int) -> list[Generator]:
        """New generators, independent of this one and of each other, with keys drawn from this one.

        Raises ArgumentError for a count that is negative or no integer.

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
        """Return `count` random numbers of `dtype`, and advance the state, atomically for other threads."""
        state = _checked(self.state)
        numbers = _immediate_bits(state, count, dtype) if is_small(count, state.device) else None
        if numbers is not None:
            return computed(numbers)
        drawn = []

        def draw(counter: Any, size: int) -> Any:
            index = dispatch.emit(ops.iota, size=size, device=state.device)
            key, start = (broadcast_to(element, (size,)) for element in (state[0], counter))
            drawn.append(dispatch.emit(ops.random_bits, key, start, index, dtype=dtype))
            return counter + size

        dispatch.in_place("draw", draw, state[1:], count)
        return drawn[0]

    if TYPE_CHECKING:  # the distributions, see `add_methods`

        def __getattr__(self, name: str) -> Any: ...


OBJECTS.add(Generator)


def _immediate_bits(state: Any, count: int, dtype: np.dtype) -> np.ndarray | None:
    """Compute `count` numbers and advance the state, if it is in memory and no task in flight uses it."""
    with lock, memory_lock:
        elements = state._writable()
        if elements is None:
            return None
        key, start = elements.tolist()
        numbers = bits_at(key, start, count, dtype)
        if numbers is not None:
            elements[1] = (start + count) % WORD
        return numbers


def with_state(state: Any) -> Generator:
    """Return the generator with this state (uint64[2])."""
    generator = object.__new__(Generator)
    generator.state = state
    return generator


def _checked(state: Any) -> Any:
    """Check the state of a generator, which users may have assigned, and return it."""
    if not isinstance(state, ArrayCore):
        raise refuse(f"random.Generator: state must be an array, got {type(state).__name__}", ArgumentError)
    if state.dtype != UINT64:
        raise refuse(f"random.Generator: state must be uint64, not {state.dtype}", DTypeError)
    if state.shape != (2,):
        raise refuse(f"random.Generator: state must have shape (2,), not {state.shape}", ShapeError)
    return state


def add_methods(distributions: dict[str, Any]) -> None:
    """Define a method of generators for each of these functions, which have a parameter `generator`."""
    for name, function in distributions.items():
        setattr(Generator, name, _method(name, function))


def _method(name: str, function: Any) -> Any:
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in ("device", "generator")]

    @functools.wraps(function)
    def method(self: Generator, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs or "generator" in kwargs:
            raise refuse(f"random.Generator.{name}: a generator draws on its own device")
        return function(*args, generator=self, **kwargs)

    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = signature.replace(parameters=[receiver, *parameters])  # type: ignore[attr-defined]
    return method


__all__ = ["Generator"]
