"""Texts of one function for several extents, as one text with their names.

Where the texts differ in an integer, it is a polynomial of the extents: the one of up to three factors that
has all its values. More texts are written than determine it, so a polynomial that does not tell the truth
shows. Where they differ in a float (a count in a mean), it is such an integer, a number over one, or the
quotient of two that are found in the text, or are one more or less (the variance of a sample). Any other
difference means that the function does something else for other extents, which is refused with the line.

>>> one, two, three, four = (f"graph(%0: float32[{n},4]) [size={2 * n * n}]" for n in (3, 5, 7, 11))
>>> points = [{"n": n} for n in (3, 5, 7, 11)]
>>> generalised(points, [one, two, three, four])
'graph(%0: float32[n,4]) [size=2*n*n]'
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from tracejit.errors import ArgumentError, locate
from tracejit.ir.extents import Extents, Polynomial, fit, monomials, named
from tracejit.ir.text import TOKEN
from tracejit.ir.types import DTYPES, HALVES, is_floating

_INTEGER = re.compile(r"-?\d+", re.ASCII)
_FLOAT = re.compile(r"-?\d[\d.e+-]*[.e][\d.e+-]*", re.ASCII)
_LOCATION = re.compile(r' at ("(?:[^"\\]|\\.)*")$')
LENGTHS = (11, 102, 37, 252, 19, 150, 53, 13, 126, 29, 210, 83, 17, 174, 46, 61, 108, 23, 139, 66, 31, 43)
"""Extents for which functions are recorded: wide apart, with all remainders by small divisors, and
rarely something else by chance.
"""
NAMES = 3  # the most named extents: more would take too many recordings
FLOAT64 = np.dtype("float64")
FLOATING = {str(dtype): dtype for dtype in DTYPES if is_floating(dtype) and dtype not in HALVES}
LONGEST = 1 << 53  # integers below are exact in float64


def points_for(names: Sequence[str]) -> list[Extents]:
    """Extents for which the function is recorded: enough to determine polynomials, and two points more."""
    points: list[Extents] = [{}]
    if names:
        basis = monomials(names)
        every = [_point(names, step) for step in range(99)]
        least = next(n for n in range(len(basis), 99) if fit(every[:n], [0] * n, basis) is not None)
        points = every[: least + 2]
    return points


def _point(names: Sequence[str], step: int) -> Extents:
    places = [step * (2 * j + 1) + 3 * j + step * step * j for j in range(len(names))]
    return {name: LENGTHS[place % len(LENGTHS)] for name, place in zip(names, places, strict=True)}


def generalised(points: Sequence[Extents], texts: Sequence[str]) -> str:
    """One text for all extents, of texts for some.

    Raises ArgumentError where they differ in anything but numbers that are polynomials of the extents.
    """
    if len(set(texts)) == 1:
        return texts[0]
    lines = [text.split("\n") for text in texts]
    if len({len(each) for each in lines}) > 1:
        raise _different(points, *next(rows for rows in zip(*lines, strict=False) if _shapes_differ(rows)))
    numbers = _Numbers(points)
    rows, errors = [], []
    for row in zip(*lines, strict=True):
        try:
            rows.append(_Line(points, row, numbers))
        except ArgumentError as error:
            errors.append(error)
    found = []
    for line in rows:
        try:
            found.append(line.text())
        except ArgumentError as error:
            errors.append(error)
    if errors:
        raise next((error for error in errors if "\n  at " in str(error)), errors[0])
    return "\n".join(found)


def _shapes_differ(rows: Sequence[str]) -> bool:
    return len({tuple(map(_kind, TOKEN.findall(row))) for row in rows}) > 1


def _kind(token: str) -> str:
    """A token, or what kind of number it is."""
    return "integer" if _INTEGER.fullmatch(token) else "float" if _FLOAT.fullmatch(token) else token


class _Line:
    """One line of all texts; integers are found at once, floats when `text` is asked for."""

    def __init__(self, points: Sequence[Extents], row: Sequence[str], numbers: _Numbers) -> None:
        self.points, self.row, self.numbers = points, row, numbers
        self.columns: list[tuple[str, list[str]]] = []  # the text before a token; the token in each text
        self.end = row[0]
        if len(set(row)) == 1:
            return
        if _shapes_differ(row):
            raise _different(points, *row)
        position = 0
        for places in zip(*(TOKEN.finditer(text) for text in row), strict=True):
            self.columns.append((row[0][position : places[0].start("token")], [m["token"] for m in places]))
            position = places[0].end("token")
        self.end = row[0][position:]
        for _, tokens in self.columns:
            if len(set(tokens)) > 1:
                numbers.look_at(tokens)

    def text(self) -> str:
        """The line for all extents."""
        dtype = _dtype_of([tokens[0] for _, tokens in self.columns])
        text = ""
        for before, tokens in self.columns:
            found: str | None = tokens[0]
            if len(set(tokens)) > 1:
                is_integer = _kind(tokens[0]) == "integer"
                found = self.numbers.integer(tokens) if is_integer else self.numbers.quotient(tokens, dtype)
            if found is None:
                raise _different(self.points, *self.row)
            text += before + found
        return text + self.end


def _dtype_of(tokens: Sequence[str]) -> np.dtype:
    """The dtype of the floats in a line: that of the node's attribute, else float64."""
    for name, sign, said in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if (name, sign) == ("dtype", "=") and said in FLOATING:
            return FLOATING[said]
    return FLOAT64


class _Numbers:
    """Numbers of the texts as functions of the extents.

    known: the polynomials found so far.
    """

    def __init__(self, points: Sequence[Extents]) -> None:
        self.points, self.basis = points, monomials(points[0])
        self.known: dict[Polynomial, None] = {}
        self._found: dict[tuple[str, ...], Polynomial | None] = {}

    def look_at(self, tokens: Sequence[str]) -> Polynomial | None:
        """The polynomial that a number is (a float, or one over it); None if there is none."""
        key = tuple(tokens)
        if key not in self._found:
            values = [float(token) for token in tokens]
            found = self._fitted([int(t) if _kind(t) == "integer" else float(t) for t in tokens])
            if found is None and _kind(tokens[0]) == "float":
                found = self._fitted([1.0 / value if value else 0.0 for value in values])
            if found is not None:
                self.known[found] = None
            self._found[key] = found
        return self._found[key]

    def integer(self, tokens: Sequence[str]) -> str | None:
        """An integer as text; None if it is no polynomial."""
        found = self.look_at(tokens)
        return None if found is None else str(found)

    def quotient(self, tokens: Sequence[str], dtype: np.dtype) -> str | None:
        """A float as text; None if no quotient of known polynomials gives it in this dtype."""
        own = self.look_at(tokens)
        known = [*([own] if own is not None else []), *self.known, *map(named, self.points[0])]
        terms = list(dict.fromkeys([Polynomial({(): 1}), *known, *(p + n for p in known for n in (-1, 1))]))
        values = [float(token) for token in tokens]
        columns = {p: [float(p.value(point)) for point in self.points] for p in terms}
        for p, q in itertools.product(terms, terms):
            if _quotients(columns[p], columns[q], dtype) == values:
                return f"quotient({p},{q})"
        for q in terms:  # a number over one of them: that with the fewest digits
            for digits in range(1, 10):
                number = float(f"{values[0] * columns[q][0]:.{digits}g}")
                if _quotients([number] * len(values), columns[q], dtype) == values:
                    return f"quotient({number!r},{q})"
        return None

    def _fitted(self, values: Sequence[float]) -> Polynomial | None:
        rounded = [Fraction(round(x)) for x in values if abs(x) < LONGEST]
        return fit(self.points, rounded, self.basis) if len(rounded) == len(values) else None


def _quotients(above: Sequence[float], below: Sequence[float], dtype: np.dtype) -> list[float]:
    """The values of a text's quotients, as `ir.text` reads them."""
    return [float(dtype.type(a / b)) if b else float("inf") for a, b in zip(above, below, strict=True)]


def _different(points: Sequence[Extents], *row: str) -> ArgumentError:
    """The error for a line that differs in more than such numbers."""
    one = row[0]
    at, other = next(
        ((point, text) for point, text in zip(points, row, strict=False) if text != one), (points[0], one)
    )
    match = _LOCATION.search(one) or _LOCATION.search(other)
    shown = [_LOCATION.sub("", text).strip() for text in (one, other)]
    extents = [", ".join(f"{name}={n}" for name, n in point.items()) for point in (points[0], at)]
    error = ArgumentError(
        f"export: the function is not one graph for all extents: for {extents[0]} it records\n"
        f"    {shown[0]}\n"
        f"  and for {extents[1]}\n    {shown[1]}\n"
        "  Export it for extents that are integers (a loop over one is unrolled), or write what must be "
        "even, say, as '2*n'"
    )
    return locate(error, json.loads(match[1]) if match else None)  # type: ignore[return-value]
