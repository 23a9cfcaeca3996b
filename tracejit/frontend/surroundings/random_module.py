"""Stand-ins for NumPy's generators in a traced body: those that the body creates from a given seed.

    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 4))

Every call of such a body draws the same numbers, so they are constants of the trace. When a body that names
`np.random.default_rng`, and nothing else of `np.random`, is about to run, the trace restarts
(`Assumptions.generators`), and the body finds a stand-in for `numpy`. The stand-in's `default_rng` returns a
`SeededGenerator`. It draws NumPy's numbers, and makes the following piecewise, with its line: no seed, draws
that depend on recorded values, a generator that outlives the call. A seed that is an argument is guarded. The
iterations of a loop over a range draw different numbers, so all of them are recorded.

All other generators of NumPy are refused: a replay can neither check nor advance them.

`installed` imports this module when it is needed, as NumPy imports its own `random` at the first use.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.makers import MAKERS
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.surroundings.module_stand_ins import StandIns
from tracejit.frontend.surroundings.numpy_module import NUMPY

REMEDY = "use tj.random"

DRAWS = frozenset(
    name
    for name in vars(np.random.Generator)
    if not name.startswith("_") and name not in ("bit_generator", "spawn")
)
"""The methods of NumPy's generators that draw numbers."""


class SeededGenerator(np.random.Generator):
    """A generator that a traced body has created from a seed. `trace`: the recording of that body."""

    trace: Trace


def _drawing(name: str) -> Callable[..., Any]:
    """Return the method that draws numbers by NumPy's method of this name."""
    draw = getattr(np.random.Generator, name)

    def method(self: SeededGenerator, *args: Any, **options: Any) -> Any:
        trace = self.trace
        if thread.trace is not trace:
            if trace.numbers.closed:
                return draw(self, *args, **options)
            trace.give_up("a generator of NumPy is used in another recording than its own", REMEDY)
        operands = trees.leaves((args, options))
        if any(isinstance(operand, np.ndarray) for operand in operands):
            for captured in trace.captured:
                captured.use_as_data()
        if any(isinstance(operand, ArrayCore) for operand in operands):
            trace.give_up(f"{name} of a NumPy generator needs the values of a recorded array", REMEDY)
        if trace.nest.loops:
            trace.nest.loops[-1].unroll("a NumPy generator draws other numbers in each iteration")
        if trace.nodes:
            trace.draws.last = trace.nodes[-1]
        result = draw(self, *args, **options)
        return MAKERS["array"](result) if trace.recorded_numpy and type(result) is np.ndarray else result

    return method


def _exposing(name: str) -> Callable[[SeededGenerator], Any]:
    """Return the getter of an attribute that gives access to the generator's state."""

    def get(self: SeededGenerator) -> Any:
        if not self.trace.numbers.closed:
            self.trace.give_up(f"{name} gives access to the state of a NumPy generator", REMEDY)
        return getattr(super(SeededGenerator, self), name)

    return get


for _name in DRAWS:
    setattr(SeededGenerator, _name, _drawing(_name))
for _name in ("spawn", "bit_generator", "__reduce__"):
    setattr(SeededGenerator, _name, property(_exposing(_name)))


def _default_rng(seed: Any = None) -> Any:
    """Implement `numpy.random.default_rng` in a recording."""
    trace = thread.trace
    if type(seed) is NumberProxy:
        seed = operator.index(seed)  # guarded
    if not isinstance(seed, int | np.integer) and not (
        isinstance(seed, list | tuple) and all(type(each) is int for each in seed)
    ):
        kind = "without a seed" if seed is None else f"from {type(seed).__name__}"
        trace.give_up(f"a NumPy generator {kind} may give other numbers on every call", REMEDY)
    generator = SeededGenerator(np.random.default_rng(seed).bit_generator)
    generator.trace = trace
    return generator


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **options: Any) -> Any:
        thread.trace.give_up(f"numpy.random.{name} may give other numbers on every call", REMEDY)

    return refuse


def is_seeded() -> bool:
    """Return whether this thread records a trace in which `default_rng` returns a `SeededGenerator`."""
    return type(thread.trace) is Trace and thread.trace.assumed.generators


RANDOM = StandIns(
    np.random,
    {name: _refused(name) for name in np.random.__all__ if callable(getattr(np.random, name))}
    | {"default_rng": _default_rng},
    is_seeded,
)
NUMPY.add("random", RANDOM.stand_in(np.random))
