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
    EXACT = "exact"  # exactly rounded or integer or only moved: NumPy's result bit for bit

    __hash__ = object.__hash__  # members are unique; `Enum`'s own is slow Python code


(ELEMENTWISE, COMMUTATIVE, VIEW, REDUCTION, CAN_FAIL, ORDERED, EXPENSIVE, LIBRARY, HOST, SCAN, MOVES,
 NESTED, EXACT) = Trait  # fmt: skip
"""The members as constants: passes read them thousands of times, and attribute access on an enumeration is
slow.
"""


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
    kernel:    name of the scalar function in `tracejit.kernels.scalar`: of an elementwise operator, or the
               one with which a reduction combines two elements.
    traits:    see `Trait`.
    work:      ``work(shapes, attrs)``: multiplications, from the shapes of operands and result; None: the
               time is that of reading and writing.
    along:     the reduction of which an operator along one axis (attrs: axis) is made: `max` for argmax.
    doc:       one line of documentation.
    example:   operands and result of a public elementwise function: ``"[1, 2]; 3 -> [4, 5] int64"``.
    arity:     operands of a public elementwise function, else 0.
    admits:    dtypes an elementwise operator (or a reduction) is defined for.
    promotion: how the public function casts its operands: "same" to NumPy's common dtype, "float" to NumPy's
               floating dtype for it, "bool" to truth values; None: no public elementwise function.
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
