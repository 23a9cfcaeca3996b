"""Stacking of several modules into one, for `tj.vmap`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays.functions.movement import stack as stack_arrays
from tracejit.frontend.python import kinds
from tracejit.frontend.recording.location import user_location
from tracejit.nn.modules.base import Module

kinds.treat_like_users(__name__)

M = TypeVar("M", bound=Module)


def stack(modules: Sequence[M]) -> M:
    """Stack modules of one class into one module, by stacking their arrays along a new first axis, for
    `tj.vmap`.

    Attributes that are not arrays are those of the first module. The arrays of the result are new.
    Raises ArgumentError for an empty sequence, and for modules whose arrays have different names, ShapeError
    for arrays of different shapes.

    >>> import tracejit as tj
    >>> nets = tj.nn.stack([tj.nn.Linear(2, 3) for _ in range(4)])
    >>> tj.vmap(lambda net, x: net(x))(nets, tj.ones((4, 5, 2))).shape
    (4, 5, 3)
    """
    if not modules:
        raise locate(ArgumentError("nn.stack: at least one module is needed"), user_location())
    states = [module.state_dict() for module in modules]
    for number, state in enumerate(states):
        if state.keys() != states[0].keys():
            names = f"{sorted(states[0])} and {sorted(state)}"
            what = f"nn.stack: modules 0 and {number} have arrays of different names: {names}"
            raise locate(ArgumentError(what), user_location())
    stacked = {id(x): stack_arrays([state[name] for state in states]) for name, x in states[0].items()}
    return copy.deepcopy(modules[0], stacked)
