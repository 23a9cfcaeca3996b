"""The remainder of a division of floats, exact, for machines whose LLVM target and libraries have none: GPUs.

Long division in binary, as everybody's C library does it: the divisor's significand is subtracted from that
of the dividend where it can be, and the rest doubled, once for each binary place between the two.

    5.5 % 1.5:  5.5 = 1.375 * 2**2, 1.5 = 1.5 * 2**0, so two places:  1.375 -> 2.75 -> (2.75 - 1.5) * 2 -> 1.0
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tracejit.kernels.compiler.lane import LLVM_TYPE, WIDTH, Lane

PLACES = {"float32": 23, "float64": 52}
"""Binary places of a significand."""


def remainder(x: Lane, y: Lane) -> Lane:
    """C's ``fmod``: exact, with the sign of `x`; nan for an infinite `x` and for a `y` of 0."""
    width, places = WIDTH[x.dtype], PLACES[x.dtype]
    sign, top, last = 1 << (width - 1), 1 << places, (1 << (width - 1)) - 1
    infinity = last ^ (top - 1)
    a, b = _bits(x), _bits(y)
    of_x, size, divisor = a & sign, a & last, b & last
    (exponent, rest), (least, step) = _parts(size, places), _parts(divisor, places)
    rest = _reduced(rest, step, exponent - least)
    rest = _chosen(rest >= step, rest - step, rest)
    shift = _leading_zeros(rest) - (width - 1 - places)
    raised = rest << _unsigned(shift)
    found = least - shift
    small = _chosen(found < 1, 1 - found, found.lift(0))
    subnormal = raised >> _unsigned(_chosen(small > places, small.lift(places), small))
    bits = _chosen(found < 1, subnormal, (raised & (top - 1)) | _unsigned(found << places))
    bits = _chosen(rest == 0, rest, bits)
    bits = _chosen(size < divisor, size, bits)
    bad = (size >= infinity) | (divisor > infinity) | (divisor == 0)
    bits = _chosen(bad, bits.lift(infinity | (top >> 1)), bits | of_x)
    return x.like(x.builder.bitcast(_unsigned(bits).value, LLVM_TYPE[x.dtype]))


def _bits(x: Lane) -> Lane:
    """The bits of a float as an unsigned integer."""
    dtype = f"uint{WIDTH[x.dtype]}"
    return x.like(x.builder.bitcast(x.value, LLVM_TYPE[dtype]), dtype)


def _unsigned(x: Lane) -> Lane:
    return x.like(x.value, f"uint{WIDTH[x.dtype]}")


def _signed(x: Lane) -> Lane:
    return x.like(x.value, f"int{WIDTH[x.dtype]}")


def _chosen(condition: Lane, a: Lane, b: Lane) -> Lane:
    return a.like(a.builder.select(condition.value, a.value, b.value))


def _leading_zeros(x: Lane) -> Lane:
    """Zeros before the first one, as a signed integer of the same width; all of them for 0."""
    kind, module = LLVM_TYPE[x.dtype], x.builder.module
    name = f"llvm.ctlz.i{WIDTH[x.dtype]}"
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(kind, [kind, ir.IntType(1)]), name)
    return _signed(x.like(x.builder.call(function, [x.value, ir.IntType(1)(0)])))


def _parts(size: Lane, places: int) -> tuple[Lane, Lane]:
    """Exponent (signed) and significand (unsigned, its first bit set) of a magnitude; 0 has none of them."""
    width, top = WIDTH[size.dtype], 1 << places
    field, fraction = _signed(size >> places), size & (top - 1)
    shift = _leading_zeros(fraction) - (width - 1 - places)
    is_normal = field != 0
    return _chosen(is_normal, field, 1 - shift), _chosen(
        is_normal, fraction | top, fraction << _unsigned(shift)
    )


def _reduced(rest: Lane, step: Lane, count: Lane) -> Lane:
    """`rest` after `count` rounds of subtracting where it can be and doubling."""
    builder: Any = rest.builder
    before = builder.block
    head, body, after = (
        builder.append_basic_block(f"remainder.{part}") for part in ("head", "body", "after")
    )
    builder.branch(head)
    builder.position_at_end(head)
    left, current = (builder.phi(lane.value.type) for lane in (count, rest))
    builder.cbranch((count.like(left) > 0).value, body, after)
    builder.position_at_end(body)
    now = rest.like(current)
    doubled = _chosen(now >= step, now - step, now) << 1
    for phi, start, following in (
        (left, count, count.like(left) - 1),
        (current, rest, doubled),
    ):
        phi.add_incoming(start.value, before)
        phi.add_incoming(following.value, body)
    builder.branch(head)
    builder.position_at_end(after)
    return now
