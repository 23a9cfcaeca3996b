"""The record that declares an operator, and the registry.

One `Op` describes an operator completely: its typing rule, its NumPy semantics, its gradient, its scalar
kernel and its traits. The declarations are in `tracejit.ops`. Passes and code generation test traits instead
of lists of operator names.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Trait(enum.Enum):
    """A property that passes may assume of an operator."""

    ELEMENTWISE = (
        "elementwise"  # out[i] depends on in[i] only; operands have the output's shape or are numbers
    )
    COMMUTATIVE = "commutative"
    VIEW = "view"  # the output is an index map of the input; free inside a kernel
    REDUCTION = (
        "reduction"  # attrs: axes (sorted tuple of ints), which are removed; pieces (see `ops.reduce`)
    )
    CAN_FAIL = "can-fail"  # may report a run-time error (an invalid index): precedes the commit point
    ORDERED = "ordered"  # has a side effect: never removed, merged or reordered (callbacks)
    EXPENSIVE = "expensive"  # transcendental: recomputation costs more than storing the result
    LIBRARY = "library"  # runs as a library task, optionally with an elementwise epilogue
    HOST = "host"  # a library routine: `evaluate` itself runs, as a Python task on the arrays' memory
    SCAN = "scan"  # along an axis: each element is the reduction `Op.along` of all elements up to it
    MOVES = "moves"  # the elements of the result are elements of the operands
    NESTED = "nested"  # executes a nested graph
    COMPILED = "compiled"  # created by passes only: no recorded or exported graph contains it
    SLOW = "slow"  # slower than reading its operands, but not EXPENSIVE: a division, a root
    PRODUCT = "product"  # the first operand times the last: fused multiply-add in a sum
    QUOTIENT = "quotient"  # the first operand over the second; a loop-invariant divisor is inverted once
    TYPED = "typed"  # operands do not determine the result's dtype, which is in the scalar function's name
    EXACT = "exact"  # exactly rounded, integer or a move: bitwise identical to NumPy's result

    __hash__ = object.__hash__  # members are unique; `Enum.__hash__` is slow Python code


(ELEMENTWISE, COMMUTATIVE, VIEW, REDUCTION, CAN_FAIL, ORDERED, EXPENSIVE, LIBRARY, HOST, SCAN, MOVES,
 NESTED, COMPILED, SLOW, PRODUCT, QUOTIENT, TYPED, EXACT) = Trait  # fmt: skip
"""The members as constants, because attribute access on an enumeration is slow and passes use them often."""


class Accumulation(enum.Enum):
    """The order in which a kernel combines the floats of a reduction (other dtypes are combined in order)."""

    IN_ORDER = "in order"
    ANY_ORDER = "any order"  # reassociation permitted, so LLVM vectorises
    COMPENSATED = "compensated"  # ANY_ORDER in blocks; compensated summation of the blocks in float64
    HIGHEST = "highest"  # maximum of integers that are ordered like the floats
    LOWEST = "lowest"  # HIGHEST of the negatives


IN_ORDER, ANY_ORDER, COMPENSATED, HIGHEST, LOWEST = Accumulation


class UsageExample(NamedTuple):
    """A call of an elementwise function: ``UsageExample(([1, 2], 3), "[4, 5]", "int64")``.

    operands: lists for arrays, and numbers.
    elements: those of the result, as printed.
    dtype:    the name of that of the result.
    """

    operands: tuple[Any, ...]
    elements: str
    dtype: str


@dataclass(eq=False, repr=False)
class Op:
    """One operator.

    name:      the standard name, unique.
    infer:     typing rule: ``infer(*types, **attrs)`` returns the output `ArrayType` (a tuple of them for
               several outputs), or raises a `TracejitError` that names the operator and its requirement.
    evaluate:  semantics in NumPy: ``evaluate(*arrays, **attrs)``.
    gradient:  ``gradient(node, cotangents)`` on symbolic values (see `tracejit.ops.symbolic`) returns one
               cotangent or None for each input; None instead of a function: not differentiable, cotangents
               are not propagated.
    batch:     ``batch(node)`` on symbolic values (see `tracejit.ops.batching`) returns the result for a batch
               of examples; None: derived from the traits.
    maps:      whether the results are per example, given for each operand whether it is.
    kernel:    name of the scalar function in `tracejit.kernels.scalar`: of an elementwise operator, or the
               function with which a reduction or scan combines two elements.
    identity:  ``identity(dtype)``: the result of an empty reduction, or the initial value of a scan.
    accumulation: the order in which a reduction combines floats, see `Accumulation`.
    traits:    see `Trait`.
    work:      ``work(shapes, attrs)``: number of multiplications, from the shapes of operands and result;
               None: memory-bound.
    along:     the reduction on which an operator along one axis (attrs: axis) is based: `max` for argmax.
    doc:       one line of documentation.
    example:   a call of a public elementwise function, for its docstring.
    arity:     operands of a public elementwise function, else 0.
    admits:    the dtypes for which an elementwise operator (or a reduction) is defined.
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
    example: UsageExample | None = None
    work: Callable[[Sequence[tuple[int, ...]], Mapping[str, Any]], int] | None = None
    along: str = ""
    batch: Callable[..., Any] | None = None
    maps: Callable[[Sequence[bool]], bool] = any
    identity: Callable[[Any], Any] | None = None
    accumulation: Accumulation = IN_ORDER

    def is_exact(self, dtypes: Iterable[Any]) -> bool:
        """Whether the result for operands of these NumPy dtypes is bitwise identical to NumPy's.

        Complex arithmetic is not: NumPy rounds products once or twice, depending on the processor.
        """
        return EXACT in self.traits and not (self.arity and any(dtype.kind == "c" for dtype in dtypes))

    @property
    def widens(self) -> bool:
        """Whether half-precision operands are computed in float32, and half-precision results rounded.

        The kernels of elementwise operators do so themselves (see `tracejit.kernels.scalar.declare`).
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
