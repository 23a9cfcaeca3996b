"""Replay functions from their text, which is compiled once for all that have the same."""

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
"""Tell the sources of replay functions apart; an address would come again."""

_gone: deque[str] = deque()
"""Files of functions that are gone. The next function takes them out of `linecache`; a finalizer must not, as
it may run while somebody walks through that.
"""


def _next_gone() -> str | None:
    try:
        return _gone.popleft()
    except IndexError:  # another thread may have taken the last one
        return None


@functools.lru_cache(maxsize=256)
def _compiled(text: str) -> types.CodeType:
    """The code of a replay function. Signatures that differ in shapes only have one text, mostly."""
    (code,) = (
        c for c in compile(text, "<tracejit replay>", "exec").co_consts if isinstance(c, types.CodeType)
    )
    return code


def _placed(code: types.CodeType, filename: str) -> types.CodeType:
    """`code` as if it were written in the file `filename`."""
    constants = [_placed(c, filename) if isinstance(c, types.CodeType) else c for c in code.co_consts]
    return code.replace(co_filename=filename, co_consts=tuple(constants))


def function_of(
    checks: Sequence[str],
    actions: Sequence[str],
    names: dict[str, Any],
    name: str,
    parameters: str = "args, kwargs",
) -> tuple[Callable[..., Any], str]:
    """The function ``replay(args, kwargs)`` (a path's has a `Memo`, too) of `checks` and `actions`, in which
    `names` have a meaning, and its source, which is registered with `linecache`.
    """
    text = _text(checks, actions, parameters)
    for gone in iter(_next_gone, None):
        linecache.cache.pop(gone, None)
    filename = f"<tracejit replay of {name} #{next(_serials)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    replay = types.FunctionType(_placed(_compiled(text), filename), names)
    weakref.finalize(replay, _gone.append, filename)
    return replay, text


def _text(checks: Sequence[str], actions: Sequence[str], parameters: str) -> str:
    checked = "".join(f"        {line}\n" for line in checks)
    acted = "".join(f"    {line}\n" for line in actions)
    return f"def replay({parameters}):\n    try:\n{checked}    except MISFITS: return MISS\n{acted}"
