"""`tj.random`: reproducible random numbers.

For a given seed, numbers are identical in eager, traced and replayed execution, and for any number of
workers. The generator is counter-based (see `streams`): a number is a pure function of a key and a position.
Each device has a stream, which `seed` restarts. A `Generator` is an independent stream, which all functions
accept as `generator`, and which has them as methods.

>>> import tracejit as tj
>>> tj.random.seed(7)
>>> first = tj.random.normal(shape=3)
>>> bool((tj.random.Generator(7).normal(shape=3) == first).all())
True

Modules; each imports only modules to its right and below:

    orders                         permutations and choices
    discrete, continuous, vectors  distributions of integers, of numbers, of vectors and classes
    gammas, rejection              gamma numbers; Poisson and binomial numbers
    generator                      `Generator`, an independent stream
    request, streams, normal_distribution
                                   arguments of a call and its random bits; streams and seeds; the normal
                                   distribution function and its inverse

The package imports `axes`, `core`, `devices`, `direct`, `dispatch`, `functions`, `hints`, `ir`, `linalg`,
`ops`, `promotion`, `python` and `recording`. `ndarray` is imported for type checkers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracejit.frontend.arrays.hints import hint as _hint
from tracejit.frontend.arrays.random import continuous, discrete, gammas, orders, streams, vectors
from tracejit.frontend.arrays.random import generator as _generator
from tracejit.frontend.arrays.random.continuous import *
from tracejit.frontend.arrays.random.discrete import *
from tracejit.frontend.arrays.random.gammas import *
from tracejit.frontend.arrays.random.generator import Generator as Generator
from tracejit.frontend.arrays.random.orders import *
from tracejit.frontend.arrays.random.streams import *
from tracejit.frontend.arrays.random.vectors import *

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise AttributeError(
            f"module 'tracejit.random' has no attribute {name!r}{_hint('random', name)}", name=name
        )


DISTRIBUTIONS: dict[str, Any] = {
    name: getattr(module, name)
    for module in (continuous, discrete, gammas, orders, vectors)
    for name in module.__all__
}
_generator.add_methods(DISTRIBUTIONS)
__all__ = ["Generator", *streams.__all__, *DISTRIBUTIONS]
