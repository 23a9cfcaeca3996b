"""Symbolic values, in terms of which gradient rules and composed operators are written.

A `Sym` wraps a `Value` and has Python's operators and the common methods; operators are called like functions
on Syms. Each call appends one node to the *ambient builder*, so a rule reads like mathematics and is composed
of registered operators, which are differentiable themselves: higher derivatives need no further rules.

    def gradient(node, cotangents):          # the form of every `Op.gradient`
        (ct,) = cotangents                   # one per output; None where an output has no cotangent
        x, y = node.inputs                   # Syms; node.outputs and node.attrs are available too
        return [ct * y, ct * x]              # one per input, of the input's type; None: no dependence

    with building(builder, location):        # every emitted node carries `location`
        x = Sym(value)
        y = 2 * sin(x) + x.sum((0,)).spread((0,), x.shape)

A Python number becomes a `constant` on the host with the dtype of the last symbolic operand, so that
``where(mask, x, 0)`` and ``2 * x`` have the expected dtype. Host numbers may be combined with arrays. A
gradient rule must not apply an operator to run-time host numbers only: it converts them to arrays with
`dense` first.

`pull_back` applies the rule of one node; the gradient pass is a loop around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from tracejit.errors import TracejitError, VerificationError, locate
from tracejit.ir.graph import Builder, Node, Value, constant_of
from tracejit.ir.op import OPS, Op
from tracejit.ir.types import ArrayType, Device, is_inexact
from tracejit.ir.view import View


class Scope:
    """The builder to which nodes are appended, and the location in the user's program that they record."""

    __slots__ = ("builder", "location")

    def __init__(self, builder: Builder, location: str | None):
        self.builder, self.location = builder, location


_scope: ContextVar[Scope] = ContextVar("building")


@contextmanager
def building(builder: Builder, location: str | None = None) -> Iterator[None]:
    """Make `builder` the ambient builder: operators applied to Syms inside append their nodes to it."""
    token = _scope.set(Scope(builder, location))
    try:
        yield
    finally:
        _scope.reset(token)


def _ambient() -> Scope:
    scope = _scope.get(None)
    if scope is None:
        raise VerificationError("symbolic values are computed inside `with building(builder):` only")
    return scope


class Operator(Op):
    """An `Op` that can be applied to symbolic values: ``sin(x)``, ``gather(x, index, axis=0)``."""

    def __call__(self, *operands: SymOperand, **attrs: Any) -> Any:
        return emit(self, *operands, **attrs)


class Sym:
    """A value of the graph under construction, with Python's operators."""

    __slots__ = ("value",)

    def __init__(self, value: Value):
        self.value = value

    @property
    def type(self) -> ArrayType:
        return self.value.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype

    @property
    def device(self) -> Device:
        return self.type.device

    @property
    def on_host(self) -> bool:
        return self.type.on_host

    @property
    def is_floating(self) -> bool:
        """Whether the value is floating-point or complex, and so can have a cotangent."""
        return is_inexact(self.dtype)

    def __add__(self, other: SymOperand) -> Sym:
        return _apply("add", self, other)

    def __radd__(self, other: SymOperand) -> Sym:
        return _apply("add", other, self)

    def __sub__(self, other: SymOperand) -> Sym:
        return _apply("subtract", self, other)

    def __rsub__(self, other: SymOperand) -> Sym:
        return _apply("subtract", other, self)

    def __mul__(self, other: SymOperand) -> Sym:
        return _apply("multiply", self, other)

    def __rmul__(self, other: SymOperand) -> Sym:
        return _apply("multiply", other, self)

    def __truediv__(self, other: SymOperand) -> Sym:
        return _apply("divide", self, other)

    def __rtruediv__(self, other: SymOperand) -> Sym:
        return _apply("divide", other, self)

    def __pow__(self, other: SymOperand) -> Sym:
        return _apply("pow", self, other)

    def __neg__(self) -> Sym:
        return _apply("negative", self)

    def __matmul__(self, other: Sym) -> Sym:
        return _apply("matmul", self, other)

    def __lt__(self, other: SymOperand) -> Sym:
        return _apply("less", self, other)

    def __le__(self, other: SymOperand) -> Sym:
        return _apply("less_equal", self, other)

    def __gt__(self, other: SymOperand) -> Sym:
        return _apply("greater", self, other)

    def __ge__(self, other: SymOperand) -> Sym:
        return _apply("greater_equal", self, other)

    def astype(self, dtype: np.dtype) -> Sym:
        """Convert the value to another dtype."""
        return self if self.dtype == dtype else _apply("astype", self, dtype=np.dtype(dtype))

    def sum(self, axes: Sequence[int]) -> Sym:
        """Sum over `axes`, which are removed from the shape."""
        if not axes:
            return self
        return by_components(lambda x: _apply("sum", x, axes=tuple(sorted(axes)), pieces=0), self)

    def identity_view(self) -> View:
        """The identity view of this value, from which other views are derived."""
        return View.of_shape(self.shape)

    def view(self, view: View) -> Sym:
        """The elements that `view` selects."""
        return self if view.is_identity(self.shape) else _apply("view", self, view=view)

    def reshape(self, shape: Sequence[int]) -> Sym:
        """The same elements in C order under another shape."""
        return self.view(View.of_shape(shape))

    def permute(self, axes: Sequence[int]) -> Sym:
        """Reorder dimensions."""
        return self.view(self.identity_view().permute(axes))

    @property
    def mT(self) -> Sym:
        """Matrix transpose: the last two dimensions swapped."""
        n = len(self.shape)
        return self.permute((*range(n - 2), n - 1, n - 2))

    def flip(self, axis: int) -> Sym:
        """Reverse one dimension."""
        return self.view(self.identity_view().slice_axis(axis, None, None, -1))

    def spread(self, axes: Sequence[int], shape: Sequence[int]) -> Sym:
        """Broadcast to `shape` along inserted dimensions `axes`: the adjoint of `sum` over `axes`."""
        view = self.identity_view()
        for axis in sorted(axes):
            view = view.expand(axis)
        return self.view(view.broadcast(shape))

    def full(self, shape: Sequence[int], device: Device) -> Sym:
        """Create an array filled with this host number."""
        return _apply("full", self, shape=tuple(shape), device=device)


SymOperand = Sym | bool | int | float


class SymNode:
    """A node as seen by its gradient rule."""

    __slots__ = ("attrs", "inputs", "outputs")

    def __init__(self, inputs: tuple[Sym, ...], outputs: tuple[Sym, ...], attrs: dict[str, Any]):
        self.inputs, self.outputs, self.attrs = inputs, outputs, attrs

    @property
    def output(self) -> Sym:
        """The only output."""
        (sym,) = self.outputs
        return sym


def emit(op: Op, *operands: SymOperand, **attrs: Any) -> Any:
    """Append one node to the ambient builder; return its output as a Sym (a tuple for several outputs)."""
    scope = _ambient()
    dtype = next((x.dtype for x in reversed(operands) if isinstance(x, Sym)), None)
    values = [x.value if isinstance(x, Sym) else number(x, dtype).value for x in operands]
    results = scope.builder.emit(op, *values, location=scope.location, **attrs)
    return tuple(map(Sym, results)) if isinstance(results, tuple) else Sym(results)


def _apply(name: str, *operands: SymOperand, **attrs: Any) -> Any:
    return emit(OPS[name], *operands, **attrs)


def number(value: float, dtype: np.dtype | None) -> Sym:
    """Emit a literal as a host value of `dtype`; raises VerificationError if `dtype` is None."""
    if dtype is None:
        raise VerificationError(f"no symbolic operand says which dtype {value!r} has")
    return _apply("constant", **constant_of(value, dtype))


def literal(x: Sym) -> float | None:
    """The value of `x` if a `constant` node of the ambient builder defines it, else None."""
    if not x.on_host:
        return None
    constants = (n for n in _ambient().builder.nodes if n.op.name == "constant")
    return next((n.attrs["value"] for n in constants if n.output is x.value), None)


def by_components(function: Callable[[Sym], Sym], x: Sym) -> Sym:
    """Apply a linear function to `x`, by real and imaginary parts if complex: kernels add real numbers."""
    if x.dtype.kind != "c":
        return function(x)
    return _apply("complex", function(_apply("real", x)), function(_apply("imag", x)))


def full_like(x: Sym, value: float) -> Sym:
    """An array of the type of `x`, filled with the literal `value`."""
    return number(value, x.dtype).full(x.shape, x.device)


def dense(x: Sym, like: Sym) -> Sym:
    """Convert `x` to an array of the shape of `like` if `x` is a host number and `like` is not."""
    return x.full(like.shape, like.device) if x.on_host and not like.on_host else x


def pull_back(builder: Builder, node: Node, cotangents: Sequence[Value | None]) -> list[Value | None]:
    """Append the gradient of `node` to `builder`; return the cotangent of each input, or None.

    At least one of `cotangents`, one for each output, is not None. Raises VerificationError if the rule
    returns a cotangent whose type differs from that of the input.
    """
    if node.op.gradient is None:
        return [None] * len(node.inputs)
    sym_node = SymNode(tuple(map(Sym, node.inputs)), tuple(map(Sym, node.outputs)), dict(node.attrs))
    with building(builder, node.location):
        try:
            results = node.op.gradient(sym_node, [None if ct is None else Sym(ct) for ct in cotangents])
        except TracejitError as error:
            raise locate(error, node.location) from None
    for x, result in zip(node.inputs, results, strict=True):
        if result is not None and result.type != x.type:
            raise VerificationError(
                f"the gradient rule of {node.op.name} returns {result.type} for an input {x.type}"
            )
    return [None if result is None else result.value for result in results]
