"""The entry points of machine code between ranks (`kernels.ranks`), from the kernel store like kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from tracejit.codegen.objects.loader import Kernel, Recipe, load
from tracejit.engine.native import builtin, function

MODULE = "tracejit.kernels.ranks.entry_points"
RECIPE = Recipe("ranks", ("ranks",), lambda: f"from {MODULE} import RANKS\n", entries=(MODULE, "RANKS"))


class ExchangeCalls(NamedTuple):
    """The entry points; the kernel that they are part of stays in memory with them."""

    begin: Callable[..., int]
    cancel: Callable[[int, int], None]
    advance: Callable[[int, int, int], int]
    take_over: Callable[[int, int], int]
    tell: Callable[[int, int, int, int], int]
    next_notice: Callable[[int, int, int], int]
    has_notice: Callable[[int, int, int], int]
    read: Callable[[int, int, int, int, int], int]
    lend: Callable[[int], int]
    expect: Callable[[int, int, int], None]
    leave: Callable[[int, int, int], None]
    add_to_link: Callable[[int, int, int], None]
    arrive: Callable[[int, int], int]
    due: Callable[[int], int]
    kernel: Kernel


@functools.cache
def calls() -> ExchangeCalls:
    """The entry points, loaded at the first call."""
    ((kernel, _),) = load([RECIPE])

    def quick(name: str, arity: int) -> Callable[..., Any]:
        return function(kernel.addresses, f"ranks_{name}", arity, holds_gil=True)

    def long(name: str, arity: int) -> Callable[..., Any]:
        return function(kernel.addresses, f"ranks_{name}", arity, holds_gil=False)

    return ExchangeCalls(
        begin=builtin(kernel.addresses, "begin", "ranks"),
        cancel=quick("cancel", 2),
        advance=long("advance", 3),
        take_over=quick("take_over", 2),
        tell=quick("tell", 4),
        next_notice=quick("next_notice", 3),
        has_notice=quick("has_notice", 3),
        read=quick("read", 5),
        lend=quick("lend", 1),
        expect=quick("expect", 3),
        leave=quick("leave", 3),
        add_to_link=quick("add_to_link", 3),
        arrive=quick("arrive", 2),
        due=quick("due", 1),
        kernel=kernel,
    )
