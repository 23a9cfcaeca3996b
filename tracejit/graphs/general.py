"""Merges the texts of one function for several extents into one text with named extents.

Where the texts differ in an integer, the integer is a polynomial of the extents, with up to three factors per
term, that has all these values. There are more texts than are needed to determine the polynomial, so a wrong
one is detected. Where they differ in a float (a divisor in a mean), the float is such an integer, a number
divided by one, or the quotient of two that occur in the text or differ by one from such (sample variance).
Any other difference means that the function performs different operations for different extents, which is
an error with the user's line.

>>> one, two, three, four = (f"graph(%0: float32[{n},4]) [size={2 * n * n}]" for n in (3, 5, 7, 11))
>>> points = [{"n": n} for n in (3, 5, 7, 11)]
>>> merge_texts(points, [one, two, three, four])
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
"""Extents for which functions are recorded: widely spaced, with all remainders by small divisors, and
unlikely to coincide with other numbers.
"""
NAMES = 3  # maximum number of named extents: more would require too many recordings
FLOAT64 = np.dtype("float64")
FLOATING = {str(dtype): dtype for dtype in DTYPES if is_floating(dtype) and dtype not in HALVES}
LONGEST = 1 << 53  # integers below are exact in float64


def points_for(names: Sequence[str]) -> list[Extents]:
    """Choose the extents for which to record: enough to determine polynomials, and two more for checks."""
    points: list[Extents] = [{}]
    if names:
        basis = monomials(names)
        candidates = [_point(names, step) for step in range(99)]
        n_points = next(n for n in range(len(basis), 99) if fit(candidates[:n], [0] * n, basis) is not None)
        points = candidates[: n_points + 2]
    return points


def _point(names: Sequence[str], step: int) -> Extents:
    indices = [step * (2 * j + 1) + 3 * j + step * step * j for j in range(len(names))]
    return {name: LENGTHS[index % len(LENGTHS)] for name, index in zip(names, indices, strict=True)}


def merge_texts(points: Sequence[Extents], texts: Sequence[str]) -> str:
    """Merge texts for some extents into one text for all extents.

    Raises ArgumentError if they differ in anything but numbers that are polynomials or quotients of these.
    """
    if len(set(texts)) == 1:
        return texts[0]
    lines = [text.split("\n") for text in texts]
    if len({len(text_lines) for text_lines in lines}) > 1:
        raise _mismatch_error(
            points, *next(rows for rows in zip(*lines, strict=False) if _shapes_differ(rows))
        )
    numbers = _Numbers(points)
    rows, errors = [], []
    for row in zip(*lines, strict=True):
        try:
            rows.append(_Line(points, row, numbers))
        except ArgumentError as error:
            errors.append(error)
    merged = []
    for line in rows:
        try:
            merged.append(line.text())
        except ArgumentError as error:
            errors.append(error)
    if errors:
        raise next((error for error in errors if error.location is not None), errors[0])
    return "\n".join(merged)


def _shapes_differ(rows: Sequence[str]) -> bool:
    return len({tuple(map(_kind, TOKEN.findall(row))) for row in rows}) > 1


def _kind(token: str) -> str:
    """Return "integer" or "float" for a number, and any other token itself."""
    return "integer" if _INTEGER.fullmatch(token) else "float" if _FLOAT.fullmatch(token) else token


class _Line:
    """A line of all texts.

    Integers are fitted when the line is created, and floats by `text`, after the polynomials of all lines.
    """

    def __init__(self, points: Sequence[Extents], row: Sequence[str], numbers: _Numbers) -> None:
        self.points, self.row, self.numbers = points, row, numbers
        self.columns: list[tuple[str, list[str]]] = []  # the text before a token, and the token in each text
        self.end = row[0]
        if len(set(row)) == 1:
            return
        if _shapes_differ(row):
            raise _mismatch_error(points, *row)
        position = 0
        for matches in zip(*(TOKEN.finditer(text) for text in row), strict=True):
            self.columns.append((row[0][position : matches[0].start("token")], [m["token"] for m in matches]))
            position = matches[0].end("token")
        self.end = row[0][position:]
        for _, tokens in self.columns:
            if len(set(tokens)) > 1:
                numbers.polynomial_of(tokens)

    def text(self) -> str:
        """Return the line for all extents; raise ArgumentError if there is none."""
        dtype = _dtype_of([tokens[0] for _, tokens in self.columns])
        text = ""
        for before, tokens in self.columns:
            merged_token: str | None = tokens[0]
            if len(set(tokens)) > 1:
                is_integer = _kind(tokens[0]) == "integer"
                merged_token = (
                    self.numbers.integer(tokens) if is_integer else self.numbers.quotient(tokens, dtype)
                )
            if merged_token is None:
                raise _mismatch_error(self.points, *self.row)
            text += before + merged_token
        return text + self.end


def _dtype_of(tokens: Sequence[str]) -> np.dtype:
    """The dtype of the floats in a line: the node's attribute `dtype`, else float64."""
    for name, sign, value in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if (name, sign) == ("dtype", "=") and value in FLOATING:
            return FLOATING[value]
    return FLOAT64


class _Numbers:
    """Numbers of the texts as functions of the extents.

    known: the polynomials that occur in the texts, so far.
    """

    def __init__(self, points: Sequence[Extents]) -> None:
        self.points, self.basis = points, monomials(points[0])
        self.known: dict[Polynomial, None] = {}
        self._cache: dict[tuple[str, ...], Polynomial | None] = {}

    def polynomial_of(self, tokens: Sequence[str]) -> Polynomial | None:
        """The polynomial equal to a number (or, for a float, to its reciprocal); None if there is none."""
        key = tuple(tokens)
        if key not in self._cache:
            values = [float(token) for token in tokens]
            polynomial = self._fitted([int(t) if _kind(t) == "integer" else float(t) for t in tokens])
            if polynomial is None and _kind(tokens[0]) == "float":
                polynomial = self._fitted([1.0 / value if value else 0.0 for value in values])
            if polynomial is not None:
                self.known[polynomial] = None
            self._cache[key] = polynomial
        return self._cache[key]

    def integer(self, tokens: Sequence[str]) -> str | None:
        """The text of an integer; None if it is not a polynomial."""
        polynomial = self.polynomial_of(tokens)
        return None if polynomial is None else str(polynomial)

    def quotient(self, tokens: Sequence[str], dtype: np.dtype) -> str | None:
        """The text of a float; None if it is not a quotient of known polynomials, rounded to the dtype."""
        polynomial = self.polynomial_of(tokens)
        known = [*([polynomial] if polynomial is not None else []), *self.known, *map(named, self.points[0])]
        terms = list(dict.fromkeys([Polynomial({(): 1}), *known, *(p + n for p in known for n in (-1, 1))]))
        values = [float(token) for token in tokens]
        columns = {p: [float(p.value(point)) for point in self.points] for p in terms}
        for p, q in itertools.product(terms, terms):
            if _quotients(columns[p], columns[q], dtype) == values:
                return f"quotient({p},{q})"
        for q in terms:  # the number with the fewest digits divided by one of them
            for digits in range(1, 10):
                number = float(f"{values[0] * columns[q][0]:.{digits}g}")
                if _quotients([number] * len(values), columns[q], dtype) == values:
                    return f"quotient({number!r},{q})"
        return None

    def _fitted(self, values: Sequence[float]) -> Polynomial | None:
        rounded = [Fraction(round(x)) for x in values if abs(x) < LONGEST]
        return fit(self.points, rounded, self.basis) if len(rounded) == len(values) else None


def _quotients(above: Sequence[float], below: Sequence[float], dtype: np.dtype) -> list[float]:
    """The values of quotients, rounded as by the parser in `ir.text`."""
    return [float(dtype.type(a / b)) if b else float("inf") for a, b in zip(above, below, strict=True)]


def _mismatch_error(points: Sequence[Extents], *row: str) -> ArgumentError:
    """Create the error for lines that differ in more than polynomials."""
    first = row[0]
    differing_point, second = next(
        ((point, text) for point, text in zip(points, row, strict=False) if text != first), (points[0], first)
    )
    match = _LOCATION.search(first) or _LOCATION.search(second)
    shown = [_LOCATION.sub("", text).strip() for text in (first, second)]
    extents = [
        ", ".join(f"{name}={n}" for name, n in point.items()) for point in (points[0], differing_point)
    ]
    error = ArgumentError(
        f"export: the function is not one graph for all extents: for {extents[0]} it records\n"
        f"    {shown[0]}\n"
        f"  and for {extents[1]}\n    {shown[1]}\n"
        "  Export it for integer extents (a loop over an extent is unrolled), or write an extent that must "
        "be even, for instance, as '2*n'"
    )
    return locate(error, json.loads(match[1]) if match else None)  # type: ignore[return-value]
