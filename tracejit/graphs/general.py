"""Texts of one function for several extents, as one text with their names.

Where the texts differ in an integer, it is a polynomial of the extents: the one of up to three factors that
has all its values. More texts are written than determine it, so a polynomial that does not tell the truth
shows. Where they differ in a float (a count in a mean), it is that of such an integer, or one over it. Any
other difference means that the function does something else for other extents, which is refused with the
user's line.

>>> one, two, three, four = (f"graph(%0: float32[{n},4]) [size={2 * n * n}]" for n in (3, 5, 7, 11))
>>> points = [{"n": n} for n in (3, 5, 7, 11)]
>>> generalised(points, [one, two, three, four])
'graph(%0: float32[n,4]) [size=2*n*n]'
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fractions import Fraction

from tracejit.errors import ArgumentError, locate
from tracejit.ir.extents import Extents, fit, monomials
from tracejit.ir.text import TOKEN

_INTEGER = re.compile(r"-?\d+", re.ASCII)
_FLOAT = re.compile(r"-?\d[\d.e+-]*[.e][\d.e+-]*", re.ASCII)
_LOCATION = re.compile(r' at ("(?:[^"\\]|\\.)*")$')
LONGEST = 1 << 53  # of an integer of which a float may tell


def generalised(points: Sequence[Extents], texts: Sequence[str]) -> str:
    """One text for all extents, of texts for some.

    Raises ArgumentError where they differ in anything but numbers that are polynomials of the extents.
    """
    if len(set(texts)) == 1:
        return texts[0]
    basis = monomials(points[0])
    lines = [text.split("\n") for text in texts]
    if len({len(each) for each in lines}) > 1:
        raise _different(points, *next(rows for rows in zip(*lines, strict=False) if _shapes_differ(rows)))
    return "\n".join(_line(points, row, basis) for row in zip(*lines, strict=True))


def _shapes_differ(rows: Sequence[str]) -> bool:
    return len({tuple(map(_kind, TOKEN.findall(row))) for row in rows}) > 1


def _kind(token: str) -> str:
    """A token, or what kind of number it is."""
    return "integer" if _INTEGER.fullmatch(token) else "float" if _FLOAT.fullmatch(token) else token


def _line(points: Sequence[Extents], row: Sequence[str], basis: Sequence[tuple[str, ...]]) -> str:
    """One line for all extents."""
    if len(set(row)) == 1:
        return row[0]
    if _shapes_differ(row):
        raise _different(points, *row)
    matches = [list(TOKEN.finditer(text)) for text in row]
    text, position = "", 0
    for places in zip(*matches, strict=True):
        first = places[0]
        tokens = [match["token"] for match in places]
        text += row[0][position : first.start("token")]
        position = first.end("token")
        if len(set(tokens)) == 1:
            text += tokens[0]
            continue
        found = _number(points, tokens, basis)
        if found is None:
            raise _different(points, *row)
        text += found
    return text + row[0][position:]


def _number(points: Sequence[Extents], tokens: Sequence[str], basis: Sequence[tuple[str, ...]]) -> str | None:
    """A number of the text as a function of the extents; None if none is found."""
    if all(_INTEGER.fullmatch(token) for token in tokens):
        found = fit(points, [int(token) for token in tokens], basis)
        return None if found is None else str(found)
    values = [float(token) for token in tokens]
    for name, integers in (("float", values), ("inverse", [1.0 / v if v else 0.0 for v in values])):
        rounded = [round(x) for x in integers if abs(x) < LONGEST]
        if len(rounded) < len(values):
            continue
        found = fit(points, [Fraction(n) for n in rounded], basis)
        back = [float(n) if name == "float" else 1.0 / n if n else 0.0 for n in rounded]
        if found is not None and back == values:
            return f"{name}({found})"
    return None


def _different(points: Sequence[Extents], *row: str) -> ArgumentError:
    """The error for a line that differs in more than such numbers."""
    one = row[0]
    at, other = next(
        ((point, text) for point, text in zip(points, row, strict=False) if text != one), (points[0], one)
    )
    match = _LOCATION.search(one)
    shown = [_LOCATION.sub("", text).strip() for text in (one, other)]
    extents = [", ".join(f"{name}={n}" for name, n in point.items()) for point in (points[0], at)]
    error = ArgumentError(
        f"export: the function is not one graph for all extents: for {extents[0]} it records\n"
        f"    {shown[0]}\n"
        f"  and for {extents[1]}\n    {shown[1]}\n"
        "  Export it for extents that are integers, or write what must be even, say, as '2*n'"
    )
    return locate(error, json.loads(match[1]) if match else None)  # type: ignore[return-value]
