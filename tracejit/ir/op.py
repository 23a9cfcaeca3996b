"""The record that declares an operator, and the registry.

One `Op` describes an operator completely: its typing rule, its NumPy meaning, its gradient, the
scalar kernel that computes it and its traits. The declarations live in `tracejit.ops`; passes and code
generation read traits and never keep lists of operator names.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class Trait(enum.Enum):
    """A property that passes may assume of an operator."""

    ELEMENTWISE = "elementwise"  # out[i] depends only on in[i]; operands: the output's shape, or numbers
    COMMUTATIVE = "commutative"
    VIEW = "view"  # the output is an index map of the input; costs nothing inside a kernel
    REDUCTION = "reduction"  # attrs: axes (sorted tuple of ints), pieces (see `ops.reduce`); the axes vanish
    CAN_FAIL = "can-fail"  # may report an error at run time (a bad index): sits before the commit point
    ORDERED = "ordered"  # has a side effect: never removed, merged or reordered (callbacks)
    EXPENSIVE = "expensive"  # a transcendental: computing it twice costs more than storing it
    LIBRARY = "library"  # runs as a library task, also with an elementwise epilogue
    HOST = "host"  # a library's routine: NumPy's meaning itself runs, as a Python task on the arrays' memory
    SCAN = "scan"  # along an axis; every element is the reduction `Op.along` of all up to it
    MOVES = "moves"  # the elements of the result are elements of the operands
    NESTED = "nested"  # its meaning is that of a nested graph, which it runs
    COMPILED = "compiled"  # passes make it of other operators: no recorded or exported graph has it
    SLOW = "slow"  # takes longer than to read its operands, but is not EXPENSIVE: a division, a root
    PRODUCT = "product"  # the first operand times the last one: in a sum one fused multiply-add
    QUOTIENT = "quotient"  # the first operand over the second; a loop-invariant one is inverted once
    TYPED = "typed"  # the operands do not say the result's dtype: it is part of the scalar function's name
    EXACT = "exact"  # exactly rounded or integer or only moved: NumPy's result bit for bit

    __hash__ = object.__hash__  # members are unique; `Enum`'s own is slow Python code


(ELEMENTWISE, COMMUTATIVE, VIEW, REDUCTION, CAN_FAIL, ORDERED, EXPENSIVE, LIBRARY, HOST, SCAN, MOVES,
 NESTED, COMPILED, SLOW, PRODUCT, QUOTIENT, TYPED, EXACT) = Trait  # fmt: skip
"""The members as constants: passes read them thousands of times, and attribute access on an enumeration is
slow.
"""


class Accumulation(enum.Enum):
    """The way in which a kernel combines the floats of a reduction (all others are combined in order)."""

    IN_ORDER = "in order"
    ANY_ORDER = "any order"  # as LLVM likes, and so in vectors
    COMPENSATED = "compensated"  # ANY_ORDER in blocks, which are added in float64, with what that rounds off
    HIGHEST = "highest"  # the largest of integers in the order of the floats
    LOWEST = "lowest"  # HIGHEST of the negatives


IN_ORDER, ANY_ORDER, COMPENSATED, HIGHEST, LOWEST = Accumulation


@dataclass(eq=False, repr=False)
class Op:
    """One operator.

    name:      the field's standard name, unique.
    infer:     typing rule: ``infer(*types, **attrs)`` returns the output `ArrayType` (a tuple of them for
               several outputs), or raises a `TracejitError` that names the operator and what it expected.
    evaluate:  NumPy meaning: ``evaluate(*arrays, **attrs)``.
    gradient:  ``gradient(node, cotangents)`` on symbolic values (see `tracejit.ops.symbolic`) returns one
               cotangent or None for each input; None instead of a function: not differentiable, cotangents
               stop.
    batch:     ``batch(node)`` on symbolic values (see `tracejit.ops.batching`) returns the result for a batch
               of examples; None: what the traits imply.
    maps:      whether the results are those of single examples, from whether each operand is.
    kernel:    name of the scalar function in `tracejit.kernels.scalar`: of an elementwise operator, or the
               one with which a reduction or scan combines two elements.
    identity:  ``identity(dtype)``: the result of a reduction, or the start of a scan, without elements.
    accumulation: the way in which a reduction combines floats, see `Accumulation`.
    traits:    see `Trait`.
    work:      ``work(shapes, attrs)``: multiplications, from the shapes of operands and result; None: the
               time is that of reading and writing.
    along:     the reduction of which an operator along one axis (attrs: axis) is made: `max` for argmax.
    doc:       one line of documentation.
    example:   operands and result of a public elementwise function: ``"[1, 2]; 3 -> [4, 5] int64"``.
    arity:     operands of a public elementwise function, else 0.
    admits:    dtypes an elementwise operator (or a reduction) is defined for.
    promotion: how the public function casts its operands: "same" to NumPy's common dtype, "float" to NumPy's
               floating dtype for it, "bool" to truth values, "choice" all but the first to the common
               dtype, and the first to truth values; None: no public elementwise function.
    """

    name: str
    infer: Callable[..., Any]
    evaluate: Callable[..., Any]
    gradient: Callable[..., Any] | None = None
    kernel: str | None = None
    traits: frozenset[Trait] = frozenset()
    doc: str = ""
    arity: int = 0
    admits: frozenset[Any] = frozenset()
    promotion: str | None = None
    example: str = ""
    work: Callable[[Sequence[tuple[int, ...]], Mapping[str, Any]], int] | None = None
    along: str = ""
    batch: Callable[..., Any] | None = None
    maps: Callable[[Sequence[bool]], bool] = any
    identity: Callable[[Any], Any] | None = None
    accumulation: Accumulation = IN_ORDER

    def is_exact(self, dtypes: Iterable[Any]) -> bool:
        """Whether the result for operands of these NumPy dtypes is NumPy's bit for bit. Arithmetic of complex
        numbers is not: NumPy rounds their products once or twice, as the processor has it.
        """
        return EXACT in self.traits and not (self.arity and any(dtype.kind == "c" for dtype in dtypes))

    @property
    def widens(self) -> bool:
        """Whether half operands are computed in float32, and half results rounded from it. Kernels do so with
        each elementwise operator themselves (see `tracejit.kernels.scalar.declare`).
        """
        return not {ELEMENTWISE, VIEW, MOVES, ORDERED, NESTED} & self.traits

    def __repr__(self) -> str:
        return f"<Op {self.name}>"


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add `op` to the registry; a name can be declared once."""
    if op.name in OPS:
        raise ValueError(f"operator {op.name!r} is declared twice")
    OPS[op.name] = op
    return op
