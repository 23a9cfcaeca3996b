"""`range` in kernels: an induction variable that is compared and incremented.

Numba's own iterators divide to compute the trip count and raise an exception for a step of 0, which is most
of the code of a small kernel. Here the step is positive, and LLVM derives the trip count.

`independent` is a range whose iterations may run in any order, or simultaneously: no iteration reads memory
that another one writes. LLVM relies on this (see `tracejit.kernels.compiler.loops`).
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils, imputils
from numba.core.typing import templates
from numba.extending import models, register_model


def independent(start: int, stop: int) -> range:
    """Return ``range(start, stop)``, for a loop whose iterations share no memory that one of them writes."""
    return range(start, stop)


class Counter(types.SimpleIteratorType):
    """The type of an iterator over a range: the address of the counter, its bound, and its step."""

    def __init__(self, *, independent: bool = False) -> None:
        super().__init__("independent_counter" if independent else "kernel_counter", types.int64)
        self.independent = independent


class RangeType(types.SimpleIterableType):
    """The type of ``range(start, stop, step)``."""

    def __init__(self, counter: Counter) -> None:
        super().__init__(f"range_of_{counter.name}", counter)


RANGE = RangeType(Counter())
INDEPENDENT = RangeType(Counter(independent=True))


@register_model(Counter)
class CounterModel(models.StructModel):
    """The memory layout of a counter."""

    def __init__(self, manager, kind):
        members = [("address", types.CPointer(types.int64)), ("stop", types.int64), ("step", types.int64)]
        super().__init__(manager, kind, members)


@register_model(RangeType)
class RangeModel(models.StructModel):
    """The memory layout of a range."""

    def __init__(self, manager, kind):
        super().__init__(manager, kind, [(name, types.int64) for name in ("start", "stop", "step")])


class RangeRule(templates.AbstractTemplate):
    """The typing of ``range`` of one to three int64."""

    def generic(self, args, kws):
        if 1 <= len(args) <= 3 and all(types.unliteral(a) == types.int64 for a in args):
            return templates.signature(RANGE, *[types.int64] * len(args))
        return None

    def get_impl_key(self, sig):
        return RangeRule


class IndependentRule(templates.AbstractTemplate):
    """The typing of ``independent`` of two int64."""

    def generic(self, args, kws):
        if len(args) == 2 and all(types.unliteral(a) == types.int64 for a in args):
            return templates.signature(INDEPENDENT, *[types.int64] * 2)
        return None

    def get_impl_key(self, sig):
        return IndependentRule


def declare(rules: templates.Registry, instructions: imputils.Registry) -> None:
    """Register the typing rules and the lowering of ranges."""
    rules.register_global(range, typing_key=range)(RangeRule)
    rules.register_global(independent, typing_key=independent)(IndependentRule)
    for arity in (1, 2, 3):
        instructions.lower(RangeRule, *[types.int64] * arity)(_create_range)
    instructions.lower(IndependentRule, *[types.int64] * 2)(_create_range)
    for kind in (RANGE, INDEPENDENT):
        instructions.lower("getiter", kind)(_create_counter)
        instructions.lower("iternext", kind.iterator_type)(_advance)


def _struct(builder, kind, values):
    """Build a struct of the type `kind` from `values`."""
    result = ir.Constant(kind, ir.Undefined)
    for position, value in enumerate(values):
        result = builder.insert_value(result, value, position)
    return result


def _create_range(context, builder, signature, args):
    zero, one = (context.get_constant(types.int64, n) for n in (0, 1))
    start, stop, step = {1: [zero, *args, one], 2: [*args, one], 3: args}[len(args)]
    return _struct(builder, context.get_value_type(RANGE), [start, stop, step])


def _create_counter(context, builder, signature, args):
    start, stop, step = cgutils.unpack_tuple(builder, args[0], 3)
    address = cgutils.alloca_once_value(builder, start)
    counter = context.get_value_type(signature.return_type)
    return _struct(builder, counter, [address, stop, step])


def _advance(context, builder, signature, args):
    address, stop, step = cgutils.unpack_tuple(builder, args[0], 3)
    value = builder.load(address)
    builder.store(builder.add(value, step, flags=["nsw"]), address)
    valid = builder.icmp_signed("<", value, stop)
    return _struct(builder, context.get_value_type(signature.return_type), [value, valid])
