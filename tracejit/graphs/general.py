"""Merges the recordings of one function for several extents into one recording with named extents.

A recording is a contract and its graph; both are plain data (`ir.text`). An integer that differs between
the recordings becomes a polynomial of the extents, with up to three factors per term, that has all these
values. There are more recordings than are needed to determine the polynomial, so a wrong one is detected. A
float that differs (a divisor in a mean) is such an integer, a number divided by one, or the quotient of two
that occur in the recordings or differ by one from such (sample variance). Any other difference means that
the function performs different operations for different extents, which is an error with the user's line.

>>> from tracejit.ir.extents import Polynomial
>>> points = [{"n": n} for n in (3, 5, 7, 11)]
>>> numbers = FittedNumbers(points)
>>> numbers.integer([18, 50, 98, 242])
2*n*n
>>> numbers.quotient([0.5, 0.25, 1 / 6, 0.1], FLOAT64)
Quotient(above=1, below=n - 1)
"""

from __future__ import annotations

import dataclasses
import decimal
import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tracejit.errors import ArgumentError, locate
from tracejit.graphs.contract import Contract
from tracejit.ir.extents import Extents, Polynomial, fit, monomials, named
from tracejit.ir.graph import Effect, Graph, Node, Value
from tracejit.ir.printer import ValueNames
from tracejit.ir.text import Quotient, write, write_node, write_type
from tracejit.ir.types import DTYPES, HALVES, ArrayType, Device, is_floating
from tracejit.ir.view import View

LENGTHS = (11, 102, 37, 252, 19, 150, 53, 13, 126, 29, 210, 83, 17, 174, 46, 61, 108, 23, 139, 66, 31, 43)
"""Extents for which functions are recorded: widely spaced, with all remainders by small divisors, and
unlikely to coincide with other numbers.
"""
MAX_EXTENT_NAMES = 3  # maximum number of named extents: more would require too many recordings
FLOAT64 = np.dtype("float64")
FLOATING = frozenset(dtype for dtype in DTYPES if is_floating(dtype) and dtype not in HALVES)
MAX_EXACT_INTEGER = 1 << 53  # integers below are exact in float64
ATOMS = (bool, type(None), str, complex, Device, np.dtype)  # types of plain data without numbers to merge

RecordedExport = tuple[Contract, Graph]
MergeColumn = Sequence[Any]
"""A datum at the same position of all recordings."""


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


def merge(points: Sequence[Extents], recordings: Sequence[RecordedExport]) -> RecordedExport:
    """Merge recordings for some extents into one for all extents, whose numbers are polynomials.

    Raises ArgumentError if they differ in anything but numbers that are polynomials or quotients of these.
    """
    numbers = FittedNumbers(points)

    def collect(column: MergeColumn, dtype: np.dtype) -> Any:
        numbers.polynomial_of(column)
        return column[0]

    def general(column: MergeColumn, dtype: np.dtype) -> Any:
        is_integer = type(column[0]) is int
        number = numbers.integer(column) if is_integer else numbers.quotient(column, dtype)
        if number is None:
            raise _Mismatch
        return number

    collection, merging = _Traversal(points, collect), _Traversal(points, general)
    collection.recording(recordings)  # quotients consist of the polynomials of the complete recordings
    merged = merging.recording(recordings)
    errors = collection.errors + merging.errors
    if errors:
        raise next((error for error in errors if error.location is not None), errors[0])
    return merged


def are_equal(one: RecordedExport, other: RecordedExport) -> bool:
    """Whether two recordings are of the same operations on the same data."""
    return all(map(_is_same, _contract_data(one[0]), _contract_data(other[0]))) and _is_same(one[1], other[1])


def _is_same(one: Any, other: Any) -> bool:
    """Whether plain data are equal, graphs up to the identity of their values."""
    traversal = _Traversal([{}, {}], _refuse_number)
    try:
        traversal.data([one, other], FLOAT64)
    except _Mismatch:
        return False
    return not traversal.errors


def _refuse_number(column: MergeColumn, dtype: np.dtype) -> Any:
    raise _Mismatch


class _Mismatch(Exception):
    """The recordings differ in more than numbers."""


class _Row(NamedTuple):
    """An item of a recording that is compared as a unit: a field of the contract, a node, the results, ...

    data:     plain data, in which values are represented by their names.
    text:     returns how an error shows the row.
    location: the user's line.
    dtype:    of the floats in the row: the attribute `dtype` of a node, else float64.
    """

    data: Any
    text: Callable[[], str]
    location: str | None = None
    dtype: np.dtype = FLOAT64


class _Traversal:
    """A traversal of several recordings at once, which merges them row by row.

    number: returns the merged number for a column of differing ones; raises `_Mismatch` if there is none.
    errors: one for each row in which the recordings differ otherwise.
    """

    def __init__(self, points: Sequence[Extents], number: Callable[[MergeColumn, np.dtype], Any]) -> None:
        self.points, self.number = points, number
        self.errors: list[ArgumentError] = []

    def recording(self, recordings: Sequence[RecordedExport]) -> RecordedExport:
        """Merge recordings; the result is meaningful if there are no errors."""
        contracts, graphs = zip(*recordings, strict=True)
        rows = self._rows([list(_contract_rows(contract)) for contract in contracts])
        return Contract(*rows), self._graph(graphs)

    def _rows(self, recorded: Sequence[list[_Row]]) -> list[Any]:
        """Merge the rows of all recordings; return their data. There is an error if there are more in one."""
        is_aligned = len(set(map(len, recorded))) == 1
        merged = []
        for rows in zip(*recorded, strict=False):
            try:
                merged.append(self.data([row.data for row in rows], rows[0].dtype))
            except _Mismatch:
                self.errors.append(_mismatch_error(self.points, rows))
                if not is_aligned:  # unrelated rows follow
                    break
                merged.append(rows[0].data)
        return merged

    def _graph(self, graphs: Sequence[Graph]) -> Graph:
        rows = self._rows([list(_graph_rows(graph)) for graph in graphs])
        first = graphs[0]
        if len(rows) < len(first.nodes) + 2:  # after an error
            return first
        inputs, *node_rows, (effects, outputs) = rows
        values: dict[str, Value] = {}

        def define(typed_names: Sequence[tuple[str, ArrayType]]) -> tuple[Value, ...]:
            defined = {name: Value(type) for name, type in typed_names}
            values.update(defined)
            return tuple(defined.values())

        parameters = define(inputs)
        nodes = []
        for node, (results, _, operands, attrs, location) in zip(first.nodes, node_rows, strict=True):
            arguments = tuple(values[name] for name in operands)
            nodes.append(Node(node.op, arguments, define(results), dict(attrs), location))
        return Graph(
            parameters,
            tuple(nodes),
            tuple(values[name] for name in outputs),
            tuple(Effect(values[target], values[value]) for target, value in effects),
        )

    def data(self, column: MergeColumn, dtype: np.dtype) -> Any:
        """Merge data that occur at one position of all recordings; raise `_Mismatch` if impossible."""
        first = column[0]
        if all(isinstance(view, View) for view in column):
            return View(*self.data([(v.offset, v.shape, v.strides, v.writable) for v in column], dtype))
        if len(set(map(type, column))) > 1:
            raise _Mismatch
        if type(first) is tuple:
            if len(set(map(len, column))) > 1:
                raise _Mismatch
            return tuple(self.data(items, dtype) for items in zip(*column, strict=True))
        if isinstance(first, Graph):
            return self._graph(column)
        if isinstance(first, ArrayType):
            return ArrayType(*self.data([(t.shape, t.dtype, t.device) for t in column], dtype))
        if type(first) in (int, float):
            if len(set(map(_bits, column))) == 1:
                return first
            if not all(map(math.isfinite, column)):
                raise _Mismatch
            return self.number(column, dtype)
        is_same = (lambda x: _bits(x) == _bits(first)) if isinstance(first, ATOMS) else (lambda x: x is first)
        if not all(map(is_same, column)):
            raise _Mismatch
        return first


def _bits(value: Any) -> Any:
    """Return a key of an atom, which distinguishes zeros and does not distinguish NaNs."""
    if isinstance(value, complex):
        return _bits(value.real), _bits(value.imag)
    return struct.pack("<d", value) if isinstance(value, float) else value


def _contract_data(contract: Contract) -> list[Any]:
    return [getattr(contract, field.name) for field in dataclasses.fields(contract)]


def _contract_rows(contract: Contract) -> Iterator[_Row]:
    for field, data in zip(dataclasses.fields(contract), _contract_data(contract), strict=True):
        yield _Row(data, lambda name=field.name, data=data: f"{name} = {write(data)}")  # type: ignore[misc]


def _graph_rows(graph: Graph) -> Iterator[_Row]:
    """The rows of a graph: its inputs, its nodes, and its effects with its outputs."""
    name = ValueNames()

    def typed(values: Sequence[Value]) -> tuple[tuple[str, ArrayType], ...]:
        return tuple((name(value), value.type) for value in values)

    def names(values: Sequence[Value]) -> tuple[str, ...]:
        return tuple(map(name, values))

    inputs = typed(graph.inputs)
    yield _Row(
        inputs, lambda: f"graph({', '.join(f'{value}: {write_type(type)}' for value, type in inputs)})"
    )
    for node in graph.nodes:
        attrs = tuple(node.attrs.items())
        data = (typed(node.outputs), node.op.name, names(node.inputs), attrs, node.location)
        dtype = node.attrs.get("dtype")
        dtype = dtype if isinstance(dtype, np.dtype) and dtype in FLOATING else FLOAT64
        yield _Row(data, lambda node=node: _shown_node(node, name), node.location, dtype)  # type: ignore[misc]
    effects = tuple(names((effect.target, effect.value)) for effect in graph.effects)
    outputs = names(graph.outputs)
    shown = [*(f"{target} <- {value}" for target, value in effects), f"return {', '.join(outputs)}".rstrip()]
    yield _Row((effects, outputs), lambda: "; ".join(shown))


def _shown_node(node: Node, name: ValueNames) -> str:
    """How an error shows a node: without nested graphs and without the location."""
    attrs = {key: value for key, value in node.attrs.items() if not isinstance(value, Graph)}
    return write_node(Node(node.op, node.inputs, node.outputs, attrs), name)


class FittedNumbers:
    """Numbers of the recordings as functions of the extents.

    known: the polynomials that occur in the recordings, so far.
    """

    def __init__(self, points: Sequence[Extents]) -> None:
        self.points, self.basis = points, monomials(points[0])
        self.known: dict[Polynomial, None] = {}
        self._cache: dict[tuple[type, tuple[float, ...]], Polynomial | None] = {}

    def polynomial_of(self, column: Sequence[float]) -> Polynomial | None:
        """The polynomial equal to a number (or, for a float, to its reciprocal); None if there is none."""
        key = type(column[0]), tuple(column)
        if key not in self._cache:
            polynomial = self._fitted(column)
            if polynomial is None and isinstance(column[0], float):
                polynomial = self._fitted([1.0 / value if value else 0.0 for value in column])
            if polynomial is not None:
                self.known[polynomial] = None
            self._cache[key] = polynomial
        return self._cache[key]

    def integer(self, column: Sequence[int]) -> Polynomial | None:
        """The polynomial equal to an integer; None if there is none."""
        return self.polynomial_of(column)

    def quotient(self, column: Sequence[float], dtype: np.dtype) -> Quotient | None:
        """A float as a quotient of known polynomials, rounded to the dtype; None if it is not one."""
        polynomial = self.polynomial_of(column)
        known = [*([polynomial] if polynomial is not None else []), *self.known, *map(named, self.points[0])]
        terms = list(dict.fromkeys([Polynomial({(): 1}), *known, *(p + n for p in known for n in (-1, 1))]))
        values = list(column)
        evaluated = {p: [float(p.value(point)) for point in self.points] for p in terms}
        for p, q in itertools.product(terms, terms):
            if _quotients(evaluated[p], evaluated[q], dtype) == values:
                return Quotient(p, q)
        for q in terms:  # the number with the fewest digits divided by one of them
            for digits in range(1, 10):
                number = _rounded(values[0] * evaluated[q][0], digits)
                if _quotients([number] * len(values), evaluated[q], dtype) == values:
                    return Quotient(number, q)
        return None

    def _fitted(self, values: Sequence[float]) -> Polynomial | None:
        rounded = [Fraction(round(x)) for x in values if abs(x) < MAX_EXACT_INTEGER]
        return fit(self.points, rounded, self.basis) if len(rounded) == len(values) else None


def _rounded(number: float, digits: int) -> float:
    """Round to significant decimal digits."""
    return float(decimal.Context(prec=digits).create_decimal_from_float(number))


def _quotients(above: Sequence[float], below: Sequence[float], dtype: np.dtype) -> list[float]:
    """The values of quotients, rounded as by the parser in `ir.text`."""
    return [float(dtype.type(a / b)) if b else float("inf") for a, b in zip(above, below, strict=True)]


def _mismatch_error(points: Sequence[Extents], rows: Sequence[_Row]) -> ArgumentError:
    """Create the error for rows that differ in more than polynomials."""
    first = rows[0]
    differing_point, second = next(
        (pair for pair in zip(points, rows, strict=True) if not _is_same(first.data, pair[1].data)),
        (points[0], first),
    )
    extents = [
        ", ".join(f"{name}={n}" for name, n in point.items()) for point in (points[0], differing_point)
    ]
    error = ArgumentError(
        f"export: the function is not one graph for all extents: for {extents[0]} it records\n"
        f"    {first.text()}\n"
        f"  and for {extents[1]}\n    {second.text()}\n"
        "  Export it for integer extents (a loop over an extent is unrolled), or write an extent that must "
        "be even, for instance, as '2*n'"
    )
    return locate(error, first.location or second.location)  # type: ignore[return-value]
