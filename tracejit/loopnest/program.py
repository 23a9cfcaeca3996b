"""The loop program of a fused kernel: terms over one iteration domain, as data.

A kernel iterates over a `Domain`: kept dimensions (they stand in the result) and reduced ones. Its
`LoopProgram` is a short list of `Term`s, each an element of something for every index of the domain:

- leaves: an element of an input (`LOAD`), a run-time number (`NUMBER`), an index (`INDEX`, an affine
  function of i);
- an operator applied to elements (`APPLY`), an element found through another one (`GATHER`), a checked index
  (`CHECK`);
- `REDUCE` and `SCAN` over the reduced dimensions, `MATCH` (a step of argmax).

Terms are in order of definition, and a term's level is the highest among what it depends on. `trace`
makes programs, `merge` writes them over as few dimensions as possible, `schedule` says when each term is
computed.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tracejit.errors import TracejitError
from tracejit.ir.graph import Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View
from tracejit.tuning import Tuning


class Unfusable(TracejitError, ValueError):
    """Nodes that cannot be one kernel; the message says why."""


class Level(enum.IntEnum):
    """The indices that a term depends on."""

    HOST = 0  # numbers only
    KEPT = 1  # the kept index
    FULL = 2  # the kept and the reduced index


class TermKind(enum.Enum):
    """The kinds of terms."""

    LOAD = "load"
    NUMBER = "number"
    INDEX = "index"
    APPLY = "apply"
    GATHER = "gather"
    CHECK = "check"
    REDUCE = "reduce"
    SCAN = "scan"
    MATCH = "match"

    __hash__ = object.__hash__  # members are unique; the one of `Enum` is Python code


LOAD, NUMBER, INDEX, APPLY, GATHER, CHECK, REDUCE, SCAN, MATCH = TermKind
HOST, KEPT, FULL = Level
"""The members as constants: asking an enumeration for one takes longer than most of what is done with it."""


class Domain(NamedTuple):
    """Extents of the kept and of the reduced dimensions; ``pieces`` > 0 splits the first reduced
    dimension.
    """

    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    pieces: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.kept + self.reduced

    def check_size(self, type: ArrayType) -> None:
        """Raise `Unfusable` unless an array has an element for each kept index, or for each index at all."""
        if type.size not in (math.prod(self.kept), math.prod(self.shape)):
            raise Unfusable(f"{type} fits neither the kept nor the full shape of the kernel")

    def level(self, view: View) -> Level:
        """KEPT if `view` stays at one element while the reduced index runs."""
        return FULL if any(view.strides[len(self.kept) :]) else KEPT


@dataclass(eq=False, repr=False, slots=True)
class Term:
    """One element computed for each index of the domain. Fields that its kind does not need are None.
    None changes. That is not enforced: there are hundreds of terms, and making one would take twice as long.

    view:   elements of `value` over the domain (LOAD, GATHER), or the index itself (INDEX).
    node:   the body node it comes from; for REDUCE `function` is the kind of reduction.
    stride: how far one step of the index goes (GATHER); bound: extent of the axis (CHECK, MATCH).
    """

    kind: TermKind
    dtype: np.dtype
    level: Level
    args: tuple[Term, ...] = ()
    value: Value | None = None
    view: View | None = None
    function: str | None = None
    node: Node | None = None
    stride: int = 0
    bound: int = 0

    @property
    def expensive(self) -> bool:
        """Whether computing it again costs more than a store and a load."""
        return self.kind is SCAN or (self.node is not None and Trait.EXPENSIVE in self.node.op.traits)


class OutputStore(NamedTuple):
    """Write `term` to output number `output`, at `view` of its buffer; `base`: of input number `base` (an
    update).
    """

    output: int
    term: Term
    view: View
    level: Level
    base: int | None = None


class LoopProgram(NamedTuple):
    """A kernel's computation: all terms in order of definition, and the stores in the order of the outputs.
    `tuning`: of the device of its arrays, which says how large and how dear things are.
    """

    domain: Domain
    terms: tuple[Term, ...]
    stores: tuple[OutputStore, ...]
    matmul: Node | None
    tuning: Tuning


def elements_per_unit(program: LoopProgram) -> int:
    """A power of two, from a rough price in nanoseconds of one element: memory, arithmetic, functions."""
    costs = program.tuning.costs
    price = costs.access * len(program.stores)
    for term in program.terms:
        if term.kind in (LOAD, GATHER):
            price += costs.gathered if term.kind is GATHER else costs.access
        else:
            price += costs.expensive if term.expensive else costs.operator
    return 1 << max(10, int(math.log2(program.tuning.units.nanoseconds / price)))


def piece_length(domain: Domain) -> int:
    """The length of one piece along the first reduced dimension."""
    length = -(-math.prod(domain.reduced) // domain.pieces)
    inner = math.prod(domain.reduced[1:])
    if length % max(inner, 1):
        raise Unfusable(f"pieces of {length} elements do not end on rows of {inner}")
    return length // max(inner, 1)


def row_tile(program: LoopProgram) -> tuple[int, int]:
    """The tile (over the last two dimensions) that is one row of the product of a panel kernel."""
    assert program.matmul is not None
    row = program.matmul.output.type.shape[-1]
    domain = program.domain
    if any(t.kind in (REDUCE, SCAN) for t in program.terms):
        if math.prod(domain.reduced) != row or row == 0:
            raise Unfusable("a reduction over a product's rows takes whole rows, and some")
        return 1, row
    rows, columns = (1, *domain.kept)[-2:]
    if row == columns or (row and columns % row == 0):
        return 1, row
    if columns and row % columns == 0 and rows % (row // columns) == 0:
        return row // columns, columns
    raise Unfusable("the rows of the product fall into more than two dimensions")


def are_one(views: Sequence[View], d: int, extent: int) -> bool:
    """Whether dimension `d` and the one before it are one dimension to all views."""
    for view in views:
        strides = view.strides
        if strides[d - 1] != strides[d] * extent:
            return False
    return True


def merge(program: LoopProgram) -> LoopProgram:
    """The same program over fewer dimensions: neighbours that are contiguous in every access become one.

    There is at least one kept dimension, and one reduced dimension if there is a reduction.
    """
    domain = program.domain
    if len(domain.kept) == len(domain.reduced) == 1:
        return program
    given = [t.view for t in program.terms if t.view is not None] + [s.view for s in program.stores]
    views = list({id(view): view for view in given}.values())  # most are shared
    groups: list[list[int]] = []
    for d, extent in enumerate(domain.shape):
        if groups and d != len(domain.kept) and are_one(views, d, extent):
            groups[-1].append(d)
        else:
            groups.append([d])
    kept = [g for g in groups if g[0] < len(domain.kept)] or [[]]
    folds = any(t.kind in (REDUCE, SCAN) for t in program.terms)
    reduced = [g for g in groups if g[0] >= len(domain.kept)] or ([[]] if folds else [])

    def extents(part: list[list[int]]) -> tuple[int, ...]:
        return tuple(math.prod(domain.shape[d] for d in g) for g in part)

    shape = extents(kept) + extents(reduced)
    if shape == domain.shape:
        return program
    last = [g[-1] if g else None for g in kept + reduced]
    narrowed = {
        id(v): View(v.offset, shape, tuple(0 if d is None else v.strides[d] for d in last)) for v in views
    }
    made: dict[Term, Term] = {}
    for t in program.terms:
        view = None if t.view is None else narrowed[id(t.view)]
        args = tuple([made[a] for a in t.args])
        made[t] = Term(t.kind, t.dtype, t.level, args, t.value, view, t.function, t.node, t.stride, t.bound)
    stores = tuple(
        OutputStore(s.output, made[s.term], narrowed[id(s.view)], s.level, s.base) for s in program.stores
    )
    merged = Domain(extents(kept), extents(reduced), domain.pieces)
    return LoopProgram(merged, tuple(made.values()), stores, program.matmul, program.tuning)
