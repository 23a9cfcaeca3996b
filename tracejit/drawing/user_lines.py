"""The functions and source text of the user's lines, if the source is available."""

from __future__ import annotations

import ast
import functools
import linecache
import os
from typing import NamedTuple

from tracejit.errors import file_and_line


class Line(NamedTuple):
    """A user's source line: the enclosing function (empty if none or unknown) and the text."""

    function: str
    code: str


def line_of(location: str | None) -> Line:
    """Look up the source line at ``file:line`` and its enclosing function.

    >>> line_of("nowhere.py:3")
    Line(function='', code='')
    """
    file, number = file_and_line(location)
    if not number:
        return Line("", "")
    code = linecache.getline(file, int(number)).strip()
    spans = [span for span in _functions(file) if span[1] <= int(number) <= span[2]]
    return Line(max(spans, key=lambda span: span[1])[0] if spans else "", code)


@functools.lru_cache(maxsize=64)
def _functions(file: str) -> list[tuple[str, int, int]]:
    """List the functions of a file with their first and last lines."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # for instance a notebook's magic command
        return []
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [(n.name, n.lineno, n.end_lineno or n.lineno) for n in ast.walk(tree) if isinstance(n, kinds)]


def short(location: str | None) -> str:
    """``file:line`` without folders.

    >>> short(os.path.join("some", "where", "net.py:3"))
    'net.py:3'
    """
    return os.path.basename(location or "")
