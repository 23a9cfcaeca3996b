"""Named extents: symbolic lengths of axes, and polynomials of them.

A `Polynomial` of names replaces an integer: in a shape, a stride, the size of a range. The text form of a
graph (`ir.text`) may contain polynomials; parsing it with known extents yields integers.

>>> size = parse("2*n + 1") * parse("batch")
>>> print(size, size.at({"n": 3, "batch": 10}))
2*batch*n + batch 70
>>> print(fit([{"n": 3}, {"n": 5}, {"n": 9}], [3, 10, 36], [(), ("n",), ("n", "n")]))
div(n*n - n,2)
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from tracejit.device_kinds import HOST_NAME, KINDS
from tracejit.errors import ArgumentError, ShapeError
from tracejit.ir.types import DTYPES

Extents = Mapping[str, int]
Monomial = tuple[str, ...]
"""A product of names in alphabetical order; the empty product is 1."""

_KEYWORDS = "None True False inf nan quotient complex div graph return at"
RESERVED = frozenset({*_KEYWORDS.split(), *KINDS, HOST_NAME, *map(str, DTYPES)})
"""Keywords of the text form, which cannot name extents."""
_TERM = re.compile(r"\s*([+-]?)\s*(?:(\d{1,18})(?:\s*\*\s*([A-Za-z_]\w*))?|([A-Za-z_]\w*))\s*", re.ASCII)


class Polynomial:
    """A polynomial of names with rational coefficients. Immutable.

    terms: the nonzero coefficients by monomial.
    """

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, Fraction | int]) -> None:
        ordered = sorted(terms.items(), key=lambda term: (-len(term[0]), term[0]))
        self.terms = {m: Fraction(c) for m, c in ordered if c}

    def __add__(self, other: Any) -> Polynomial:
        terms = dict(self.terms)
        for monomial, coefficient in _terms(other).items():
            terms[monomial] = terms.get(monomial, Fraction(0)) + coefficient
        return Polynomial(terms)

    def __mul__(self, other: Any) -> Polynomial:
        terms: dict[Monomial, Fraction] = {}
        for (m, a), (n, b) in itertools.product(self.terms.items(), _terms(other).items()):
            product = tuple(sorted(m + n))
            terms[product] = terms.get(product, Fraction(0)) + a * b
        return Polynomial(terms)

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial | int) and self.terms == _terms(other)

    def __hash__(self) -> int:
        return hash(tuple(self.terms.items()))

    def names(self) -> set[str]:
        """The names that occur in the polynomial."""
        return {name for monomial in self.terms for name in monomial}

    def value(self, extents: Extents) -> Fraction:
        """Evaluate the polynomial for these extents."""
        total = Fraction(0)
        for monomial, coefficient in self.terms.items():
            for name in monomial:
                coefficient *= extents[name]
            total += coefficient
        return total

    def at(self, extents: Extents) -> int:
        """Evaluate the polynomial for these extents; raise ShapeError if the value is not an integer."""
        value = self.value(extents)
        if value.denominator != 1:
            shown = ", ".join(f"{name}={extents[name]}" for name in sorted(self.names()))
            raise ShapeError(f"{self} is not an integer for {shown}")
        return int(value)

    def __str__(self) -> str:
        divisor = math.lcm(*(coefficient.denominator for coefficient in self.terms.values()))
        text = ""
        for monomial, coefficient in self.terms.items():
            number = int(coefficient * divisor)
            factors = "*".join(monomial if abs(number) == 1 and monomial else (str(abs(number)), *monomial))
            sign = (" - " if number < 0 else " + ") if text else ("-" if number < 0 else "")
            text += sign + factors
        return text or "0" if divisor == 1 else f"div({text},{divisor})"

    __repr__ = __str__


def _terms(x: Any) -> Mapping[Monomial, Fraction]:
    return x.terms if isinstance(x, Polynomial) else {(): Fraction(x)} if x else {}


def named(name: str) -> Polynomial:
    """The polynomial that consists of a single name."""
    return Polynomial({(name,): 1})


def simplest(polynomial: Polynomial) -> Polynomial | int:
    """Convert a constant polynomial to an integer; return other polynomials unchanged."""
    if polynomial.names():
        return polynomial
    return polynomial.at({})


def parse(text: str) -> Polynomial:
    """Parse a sum that a user wrote: integers, names, and products of an integer and a name.

    Raises ArgumentError for any other text.

    >>> print(parse("batch"), parse("2*n - 1"))
    batch 2*n - 1
    """
    polynomial, position = Polynomial({}), 0
    while position < len(text) or not position:
        match = _TERM.match(text, position)
        if match is None or (position and not match[1]):
            raise ArgumentError(
                f"{text!r} is not an extent: write an integer, a name like 'batch', or a sum like '2*n + 1'"
            )
        sign, number, factor, name = match.groups()
        name = name or factor
        if name in RESERVED:
            raise ArgumentError(f"{text!r}: {name!r} cannot name an extent; choose another name")
        term = Polynomial({(name,) if name else (): int(number or 1)})
        polynomial += term * (-1 if sign == "-" else 1)
        position = match.end()
    return polynomial


def solve(polynomial: Polynomial, value: int) -> tuple[str, int] | None:
    """Solve for the extent at which a polynomial in one name, of degree 1, has this value.

    Returns the name and the extent; None if no nonnegative integer is a solution.

    >>> solve(parse("2*n + 1"), 7), solve(parse("2*n + 1"), 8)
    (('n', 3), None)
    """
    (name,) = polynomial.names()
    extent = (value - polynomial.terms.get((), 0)) / polynomial.terms[(name,)]
    return (name, int(extent)) if extent.denominator == 1 and extent >= 0 else None


def monomials(names: Iterable[str]) -> list[Monomial]:
    """List the products of up to three names in which no name occurs more than twice.

    >>> monomials("n")
    [(), ('n',), ('n', 'n')]
    """
    ordered = sorted(names)
    products: list[Monomial] = []
    for degree in range(4):
        for product in itertools.combinations_with_replacement(ordered, degree):
            if all(product.count(name) <= 2 for name in product):
                products.append(product)
    return products


def fit(
    points: Sequence[Extents], values: Sequence[int | Fraction], basis: Sequence[Monomial]
) -> Polynomial | None:
    """Interpolate: return the polynomial of these monomials that has these values at these points.

    Returns None if there is none, or more than one.
    """
    rows = [
        [*(Polynomial({m: 1}).value(point) for m in basis), Fraction(value)]
        for point, value in zip(points, values, strict=True)
    ]
    for column in range(len(basis)):
        pivot = next((r for r in range(column, len(rows)) if rows[r][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = [x / rows[column][column] for x in rows[column]]
        rows[column] = head
        for r, row in enumerate(rows):
            if r != column and row[column]:
                rows[r] = [x - row[column] * y for x, y in zip(row, head, strict=True)]
    if any(row[-1] for row in rows[len(basis) :]):
        return None
    return Polynomial({m: rows[i][-1] for i, m in enumerate(basis)})
