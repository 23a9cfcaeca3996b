"""The functions that create the initial states of optimizers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tracejit.optim.adaptive import adadelta_state, adam_state, rmsprop_state
from tracejit.optim.descent import zeros_like

_STATES = {"adam": adam_state, "adamw": adam_state, "lamb": adam_state}
_STATES |= {"rmsprop": rmsprop_state, "adadelta": adadelta_state}


def state_of(optimizer: Callable[..., Any]) -> Callable[[Any], Any] | None:
    """Return the function that creates the initial state of an optimizer of `tj.optim`; None if it has no
    state.

    >>> import tracejit as tj
    >>> state_of(tj.optim.adam) is tj.optim.adam_state, state_of(tj.optim.sgd)
    (True, None)
    """
    names = list(inspect.signature(optimizer).parameters)
    if len(names) < 3 or names[2] not in ("state", "velocity", "square"):
        return None
    return _STATES.get(optimizer.__name__, zeros_like)
