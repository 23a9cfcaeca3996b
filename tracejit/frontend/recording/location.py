"""Locations in the user's code: the nearest frame outside this package, for messages and errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from tracejit.errors import ArgumentError, locate

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep

FILES = 4096
_ours: dict[str, bool] = {}
"""Whether a file is part of the package, cached for at most `FILES` files whose code has run."""


def user_location() -> str | None:
    """Return ``file:line`` of the nearest calling frame that is not part of tracejit."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        ours = _ours.get(file)
        if ours is None:
            if len(_ours) >= FILES:
                _ours.clear()
            ours = _ours[file] = file.startswith(_PACKAGE)
        if not ours:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None


RUNNERS: set[int] = set()
"""Identities of the code of this package that calls the body of a traced function."""


def runs_body(frame: FrameType) -> bool:
    """Whether a frame has called the body of a traced function."""
    return id(frame.f_code) in RUNNERS


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs code of this package."""
    return is_of_ours(frame.f_globals)


def is_of_ours(namespace: Mapping[str, Any]) -> bool:
    """Whether globals are those of a module of this package."""
    return str(namespace.get("__name__")).partition(".")[0] == "tracejit"


def check_callable(name: str, function: Any) -> None:
    """Raise an ArgumentError at the user's line if `function`, an argument of the function `name`, is not
    callable.
    """
    if not callable(function):
        text = f"{name}: expected a function, got {type(function).__name__}"
        raise locate(ArgumentError(text), user_location())
