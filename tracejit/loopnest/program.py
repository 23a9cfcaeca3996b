"""The loop program of a fused kernel: terms over one iteration domain, as data.

A kernel iterates over a `Domain`, which consists of kept dimensions (those of the result) and reduced ones.
Its `LoopProgram` is a short list of `Term`s. A term is a value computed for every index of the domain:

- a leaf: an element of an input (`LOAD`), a run-time number (`NUMBER`), or an index (`INDEX`, an affine
  function of the domain's index);
- an operator applied to terms (`APPLY`), an element addressed by another term (`GATHER`), or a bounds-checked
  index (`CHECK`);
- a reduction or scan over the reduced dimensions (`REDUCE`, `SCAN`), or a step of argmax (`MATCH`).

Terms are in order of definition. The level of a term is the highest level among its operands. `build.trace`
builds programs, `merge` rewrites them over as few dimensions as possible, and `schedule` decides when each
term is computed.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

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
    """The nodes cannot be fused into one kernel; the message is the reason."""


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

    __hash__ = object.__hash__  # members are unique, and `Enum.__hash__` is Python code


LOAD, NUMBER, INDEX, APPLY, GATHER, CHECK, REDUCE, SCAN, MATCH = TermKind
HOST, KEPT, FULL = Level
"""The members as constants: reading a member of an enumeration takes longer than most uses of it."""


class Domain(NamedTuple):
    """The extents of the kept and of the reduced dimensions. If ``pieces`` > 0, the first reduced
    dimension is split into that many ranges.
    """

    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    pieces: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.kept + self.reduced

    def check_size(self, type: ArrayType) -> None:
        """Raise `Unfusable` unless an array has one element for each kept index or for each index of the
        domain.
        """
        if type.size not in (math.prod(self.kept), math.prod(self.shape)):
            raise Unfusable(f"{type} fits neither the kept nor the full shape of the kernel")

    def level(self, view: View) -> Level:
        """Return KEPT if the element that `view` addresses does not depend on the reduced index, else
        FULL.
        """
        return FULL if any(view.strides[len(self.kept) :]) else KEPT


@dataclass(eq=False, repr=False, slots=True)
class Term:
    """A value computed for each index of the domain. Fields that its kind does not need are None.

    Terms are immutable. This is not enforced: there are hundreds of terms, and creating one would take twice
    as long.

    view:   the elements of `value` over the domain (LOAD, GATHER), or the index itself (INDEX).
    node:   the body node that the term computes; for REDUCE, `function` is the kind of reduction.
    stride: the distance in elements per step of the index (GATHER).
    bound:  the extent of the axis (CHECK, MATCH).
    """

    kind: TermKind
    dtype: np.dtype
    level: Level
    args: "tuple[Term, ...]" = ()
    value: Value | None = None
    view: View | None = None
    function: str | None = None
    node: Node | None = None
    stride: int = 0
    bound: int = 0

    @property
    def expensive(self) -> bool:
        """Whether recomputing the term costs more than a store and a load."""
        return self.kind is SCAN or (self.node is not None and Trait.EXPENSIVE in self.node.op.traits)


class OutputStore(NamedTuple):
    """A store of `term` to output number `output`, at `view` of its buffer. `base`: the number of the
    input that the output updates, or None.
    """

    output: int
    term: Term
    view: View
    level: Level
    base: int | None = None


class LoopProgram(NamedTuple):
    """The computation of a kernel: all terms in order of definition, and the stores in the order of the
    outputs. `tuning`: sizes and costs of the device that the arrays are on.
    """

    domain: Domain
    terms: tuple[Term, ...]
    stores: tuple[OutputStore, ...]
    matmul: Node | None
    tuning: Tuning


def elements_per_unit(program: LoopProgram) -> int:
    """Return the number of elements per unit, a power of two, from a rough estimate in nanoseconds of the
    cost of one element: memory accesses, arithmetic and functions.
    """
    costs = program.tuning.costs
    cost = costs.access * len(program.stores)
    for term in program.terms:
        if term.kind in (LOAD, GATHER):
            cost += costs.gathered if term.kind is GATHER else costs.access
        else:
            cost += costs.expensive if term.expensive else costs.operator
    return 1 << max(10, int(math.log2(program.tuning.units.nanoseconds / cost)))


def piece_length(domain: Domain) -> int:
    """Return the length of one piece along the first reduced dimension."""
    length = -(-math.prod(domain.reduced) // domain.pieces)
    inner = math.prod(domain.reduced[1:])
    if length % max(inner, 1):
        raise Unfusable(f"pieces of {length} elements do not end on rows of {inner}")
    return length // max(inner, 1)


def row_tile(program: LoopProgram) -> tuple[int, int]:
    """Return the tile (over the last two dimensions) that corresponds to one row of the product of a panel
    kernel.
    """
    assert program.matmul is not None
    row = program.matmul.output.type.shape[-1]
    domain = program.domain
    if any(t.kind in (REDUCE, SCAN) for t in program.terms):
        if math.prod(domain.reduced) != row or row == 0:
            raise Unfusable("a reduction over the rows of a product needs complete, non-empty rows")
        return 1, row
    rows, columns = (1, *domain.kept)[-2:]
    if row == columns or (row and columns % row == 0):
        return 1, row
    if columns and row % columns == 0 and rows % (row // columns) == 0:
        return row // columns, columns
    raise Unfusable("a row of the product is not a tile of the last two dimensions")


def are_mergeable(views: Sequence[View], d: int, extent: int) -> bool:
    """Return whether dimensions `d` - 1 and `d` can be merged into one in all views."""
    for view in views:
        strides = view.strides
        if strides[d - 1] != strides[d] * extent:
            return False
    return True


def merge(program: LoopProgram) -> LoopProgram:
    """Return the same program over fewer dimensions: adjacent dimensions that are contiguous in every
    access are merged.

    The result has at least one kept dimension, and one reduced dimension if there is a reduction.
    """
    domain = program.domain
    if len(domain.kept) == len(domain.reduced) == 1:
        return program
    all_views = [t.view for t in program.terms if t.view is not None] + [s.view for s in program.stores]
    views = list({id(view): view for view in all_views}.values())  # most are shared
    groups: list[list[int]] = []
    for d, extent in enumerate(domain.shape):
        if groups and d != len(domain.kept) and are_mergeable(views, d, extent):
            groups[-1].append(d)
        else:
            groups.append([d])
    kept = [g for g in groups if g[0] < len(domain.kept)] or [[]]
    folds = any(t.kind in (REDUCE, SCAN) for t in program.terms)
    reduced = [g for g in groups if g[0] >= len(domain.kept)] or ([[]] if folds else [])

    def extents(dims: list[list[int]]) -> tuple[int, ...]:
        return tuple(math.prod(domain.shape[d] for d in g) for g in dims)

    shape = extents(kept) + extents(reduced)
    if shape == domain.shape:
        return program
    innermost = [g[-1] if g else None for g in kept + reduced]
    narrowed = {
        id(v): View(v.offset, shape, tuple(0 if d is None else v.strides[d] for d in innermost))
        for v in views
    }
    rebuilt: dict[Term, Term] = {}
    for t in program.terms:
        view = None if t.view is None else narrowed[id(t.view)]
        args = tuple([rebuilt[a] for a in t.args])
        rebuilt[t] = Term(
            t.kind, t.dtype, t.level, args, t.value, view, t.function, t.node, t.stride, t.bound
        )
    stores = tuple(
        OutputStore(s.output, rebuilt[s.term], narrowed[id(s.view)], s.level, s.base) for s in program.stores
    )
    merged = Domain(extents(kept), extents(reduced), domain.pieces)
    return LoopProgram(merged, tuple(rebuilt.values()), stores, program.matmul, program.tuning)
