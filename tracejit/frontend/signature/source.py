"""Replay functions from their text. Functions with the same text share its compilation."""

from __future__ import annotations

import functools
import itertools
import linecache
import types
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

_serials = itertools.count(1)
"""Numbers that make the file names of replay functions unique. Addresses would be reused."""

_finalized: deque[str] = deque()
"""File names of replay functions that have been freed. The creation of the next function removes them from
`linecache`. A finalizer must not, since it may run while other code iterates over the cache.
"""


def _next_finalized() -> str | None:
    try:
        return _finalized.popleft()
    except IndexError:  # the queue is empty, perhaps because of another thread
        return None


@functools.lru_cache(maxsize=256)
def _compiled(text: str) -> types.CodeType:
    """Return the code of a replay function. Signatures that differ only in shapes usually share it."""
    (code,) = (
        c for c in compile(text, "<tracejit replay>", "exec").co_consts if isinstance(c, types.CodeType)
    )
    return code


def _in_file(code: types.CodeType, filename: str) -> types.CodeType:
    """Return a copy of `code` whose file name is `filename`."""
    constants = [_in_file(c, filename) if isinstance(c, types.CodeType) else c for c in code.co_consts]
    return code.replace(co_filename=filename, co_consts=tuple(constants))


def function_of(
    checks: Sequence[str],
    actions: Sequence[str],
    names: dict[str, Any],
    name: str,
    parameters: Sequence[str],
) -> tuple[Callable[..., Any], str]:
    """Return the function ``replay`` with these lines, and its source, which is registered with
    `linecache`.

    checks:     lines that run first; the function returns `MISS` for the errors that they may raise.
    actions:    the lines after the checks.
    names:      the function's global variables.
    name:       the name of the traced function.
    parameters: the names of its parameters.
    """
    text = _text(checks, actions, ", ".join(parameters))
    for finalized in iter(_next_finalized, None):
        linecache.cache.pop(finalized, None)
    filename = f"<tracejit replay of {name} #{next(_serials)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    replay = types.FunctionType(_in_file(_compiled(text), filename), names)
    weakref.finalize(replay, _finalized.append, filename)
    return replay, text


def _text(checks: Sequence[str], actions: Sequence[str], parameters: str) -> str:
    check_lines = "".join(f"        {line}\n" for line in checks)
    action_lines = "".join(f"    {line}\n" for line in actions)
    return (
        f"def replay({parameters}):\n    try:\n{check_lines}    except MISFITS: return MISS\n{action_lines}"
    )
