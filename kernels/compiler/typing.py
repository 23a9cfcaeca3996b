"""Typing rules for the operators of kernels.

Kernels are loops over integers around scalar functions, so the rules are those of `typed_values`: all
operands of an operator have the same type. Numba's own rules are the fallback, for example for an int8
compared with a literal. Numba's rules for arrays, strings, dates and containers are left out, because Numba
would try each of them at every ``+``. Functions that Numba implements in Python (`numba.extending.overload`)
are left out too, because Numba would have to compile them: ``min`` and ``max`` of two integers are single
instructions here.

`tracejit.kernels.compiler.target` installs a `TypingRules` and `LOWERING` in its contexts.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator

from llvmlite import ir
from numba import types
from numba.core import cgutils, imputils
from numba.core.typing import builtins, enumdecl, templates

from tracejit.kernels.compiler import ranges
from tracejit.kernels.compiler.memory import pause

ARITHMETIC = (
    *("add", "sub", "mul", "and_", "or_", "xor", "neg"),
    *("iadd", "isub", "imul", "iand", "ior", "ixor"),
)
DIVISION = ("floordiv", "mod")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
MACHINE = frozenset({types.int64, types.uint64, types.float32, types.float64})
"""The types on which operators work without a conversion."""

INTRINSIC = type(pause)
"""The type that `numba.extending.intrinsic` returns."""

RULES = templates.Registry()
LOWERING = imputils.Registry("tracejit kernels")


class OneType(templates.AbstractTemplate):
    """The typing of operators whose operands and result have the same type."""

    def generic(self, args, kws):
        first, *others = map(types.unliteral, args)
        if first in MACHINE and all(other == first for other in others):
            return templates.signature(first, first, *others)
        return None


class Division(templates.AbstractTemplate):
    """The typing of the quotient or remainder of two int64."""

    def generic(self, args, kws):
        if [types.unliteral(a) for a in args] == [types.int64] * 2:
            return templates.signature(types.int64, types.int64, types.int64)
        return None

    def get_impl_key(self, sig):
        return Division, self.key


class Comparison(templates.AbstractTemplate):
    """The typing of comparisons: the operands have the same type, the result is a bool."""

    def generic(self, args, kws):
        left, right = map(types.unliteral, args)
        return templates.signature(types.boolean, left, right) if left == right and left in MACHINE else None


class Extremum(templates.AbstractTemplate):
    """The typing of the smaller or larger of two int64."""

    def generic(self, args, kws):
        if [types.unliteral(a) for a in args] == [types.int64] * 2:
            return templates.signature(types.int64, types.int64, types.int64)
        return None


class Membership(templates.AbstractTemplate):
    """The typing of ``x in t`` for an int64 and a tuple of int64."""

    def generic(self, args, kws):
        members, value = map(types.unliteral, args)
        if isinstance(members, types.UniTuple) and types.unliteral(members.dtype) == value == types.int64:
            return templates.signature(types.boolean, members, value)
        return None


def _declare() -> None:
    """Fill the registries `RULES` and `LOWERING`."""
    for rule, names in ((OneType, ARITHMETIC), (Division, DIVISION), (Comparison, COMPARISONS)):
        for name in names:
            RULES.register_global(getattr(operator, name))(rule)
    for name in DIVISION:
        LOWERING.lower((Division, getattr(operator, name)), types.int64, types.int64)(_divide(name))
    for function, sign in ((min, "<"), (max, ">")):
        RULES.register_global(function)(Extremum)
        LOWERING.lower(function, types.int64, types.int64)(_select(sign))
    RULES.register_global(operator.contains)(Membership)
    LOWERING.lower(operator.contains, types.UniTuple, types.int64)(_is_member)
    ranges.declare(RULES, LOWERING)


def _divide(name):
    """Return the lowering of a quotient or remainder.

    It divides without branches and rounds down, as Python does; the result of a division by 0 is 0.
    """

    def lower(context, builder, signature, args):
        dividend, divisor = args
        zero, one = (ir.Constant(divisor.type, n) for n in (0, 1))
        by_zero = builder.icmp_signed("==", divisor, zero)
        safe = builder.select(by_zero, one, divisor)
        remainder = builder.srem(dividend, safe)
        inexact = builder.icmp_signed("!=", remainder, zero)
        adjust = builder.and_(inexact, builder.icmp_signed("<", builder.xor(remainder, safe), zero))
        if name == "mod":
            return builder.add(remainder, builder.select(adjust, safe, zero))
        quotient = builder.sub(builder.sdiv(dividend, safe), builder.zext(adjust, divisor.type))
        return builder.select(by_zero, zero, quotient)

    return lower


def _select(sign):
    """Return the lowering of the operand that compares true by `sign` with the other one."""

    def lower(context, builder, signature, args):
        return builder.select(builder.icmp_signed(sign, *args), *args)

    return lower


def _is_member(context, builder, signature, args):
    members = cgutils.unpack_tuple(builder, args[0])
    return functools.reduce(builder.or_, (builder.icmp_signed("==", m, args[1]) for m in members))


_declare()


def _is_needed(template) -> bool:
    """Whether `template` is a rule of Numba's core language, or an intrinsic."""
    return isinstance(template.key, INTRINSIC) or any(
        base.__module__ == builtins.__name__ for base in template.__mro__
    )


def declaration_count(registry, loader: type[templates.BaseRegistryLoader]) -> int:
    """The number of declarations in a registry; `loader` is the class that loads registries of its kind."""
    return sum(len(getattr(registry, name)) for name in loader.registry_items)


class TypingRules:
    """The rules of this module and the rules needed of Numba's, in a registry.

    The registry grows as functions are declared.
    """

    def __init__(self) -> None:
        self.registry = templates.Registry()
        self._builtin = templates.RegistryLoader(templates.builtin_registry)
        self._builtin_count = -1
        self.registry.globals.extend(RULES.globals)
        self.registry.attributes.extend(enumdecl.registry.attributes)  # slots of blocks are IntEnums

    def update(self) -> bool:
        """Add the declarations that are new since the last call; return whether there were any."""
        count = declaration_count(templates.builtin_registry, templates.RegistryLoader)
        if count == self._builtin_count:
            return False
        self._builtin_count = count
        for template in filter(_is_needed, self._builtin.new_registrations("functions")):
            self.registry.register(template)
        for template in filter(_is_needed, self._builtin.new_registrations("attributes")):
            self.registry.register_attr(template)
        for value, kind in self._globals():
            self.registry.register_global(value, kind)
        return True

    def _globals(self) -> Iterator[tuple[object, types.Type]]:
        """Yield the new global values and their types, functions with only the needed templates."""
        for value, kind in self._builtin.new_registrations("globals"):
            if not isinstance(kind, types.Function):
                yield value, kind
            elif needed := [template for template in kind.templates if _is_needed(template)]:
                yield value, types.Function(needed)
