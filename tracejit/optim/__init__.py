"""Optimizers as functions on trees of arrays: they update the parameters in place.

State is a tree like the parameters (`zeros_like`) or a dict of such trees (`adam_state`), so it can be passed
to traced functions, saved and loaded like any tree. Learning rates and step counters are numbers, whose
changes do not retrace. Parameters whose gradient is None, such as numbers among the arrays, are unchanged.

Schedules are functions of the step, which return a number for a number and an array for a traced step. They
can be multiplied: ``warm_up(step, 100) * cosine(step, 10_000, 0.1)``.

>>> import tracejit as tj
>>> params, grads = {"w": tj.ones(2)}, {"w": tj.ones(2)}
>>> tj.optim.sgd(params, grads, 0.25)
>>> params
{'w': NDArray([0.75, 0.75], dtype=float32)}

Modules; each imports only modules to its right and below:

    states               the initial states of optimizers
    adaptive, descent    steps scaled by the history of gradients; descent with momentum
    rows, alike          corresponding leaves of trees; loops over many of them, recorded in a few
                         iterations
    clipping, schedules  gradient clipping; learning rates as functions of the step

The package is a client of the frontend; below it, it imports `ops`, `ir`, and `passes.cse` (in `alike`).
"""

from tracejit.frontend.python import kinds
from tracejit.optim.adaptive import (
    adadelta,
    adadelta_state,
    adagrad,
    adam,
    adam_state,
    adamw,
    lamb,
    rmsprop,
    rmsprop_state,
)
from tracejit.optim.clipping import clip_by_global_norm, clip_by_value, global_norm
from tracejit.optim.descent import lion, momentum, sgd, zeros_like
from tracejit.optim.schedules import (
    cosine,
    exponential,
    linear,
    one_cycle,
    piecewise_constant,
    step_decay,
    warm_up,
)

kinds.treat_like_users(__name__)

__all__ = [
    "adadelta",
    "adadelta_state",
    "adagrad",
    "adam",
    "adam_state",
    "adamw",
    "clip_by_global_norm",
    "clip_by_value",
    "cosine",
    "exponential",
    "global_norm",
    "lamb",
    "linear",
    "lion",
    "momentum",
    "one_cycle",
    "piecewise_constant",
    "rmsprop",
    "rmsprop_state",
    "sgd",
    "step_decay",
    "warm_up",
    "zeros_like",
]
