"""The entry points of the native code between ranks (`kernels.ranks`), loaded from the kernel store."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from tracejit.codegen.objects.loader import Kernel, Recipe, load
from tracejit.engine.native import builtin, function

MODULE = "tracejit.kernels.ranks.entry_points"
RECIPE = Recipe("ranks", ("ranks",), lambda: f"from {MODULE} import RANKS\n", entries=(MODULE, "RANKS"))


class ExchangeCalls(NamedTuple):
    """The native entry points, with the kernel that contains them, which keeps their code loaded."""

    begin: Callable[..., int]
    cancel: Callable[[int, int], None]
    advance: Callable[[int, int, int], int]
    take_over: Callable[[int, int], int]
    post_notice: Callable[[int, int, int, int], int]
    next_notice: Callable[[int, int, int], int]
    has_notice: Callable[[int, int, int], int]
    read: Callable[[int, int, int, int, int], int]
    lend_block: Callable[[int], int]
    expect_reader: Callable[[int, int, int], None]
    mark_location_read: Callable[[int, int, int], None]
    add_to_link: Callable[[int, int, int], None]
    arrive: Callable[[int, int], int]
    due: Callable[[int], int]
    kernel: Kernel


@functools.cache
def calls() -> ExchangeCalls:
    """Return the entry points; the first call loads them."""
    ((kernel, _),) = load([RECIPE])

    def short(name: str, arity: int) -> Callable[..., Any]:
        return function(kernel.addresses, f"ranks_{name}", arity, holds_gil=True)

    def long(name: str, arity: int) -> Callable[..., Any]:
        return function(kernel.addresses, f"ranks_{name}", arity, holds_gil=False)

    return ExchangeCalls(
        begin=builtin(kernel.addresses, "begin", "ranks"),
        cancel=short("cancel", 2),
        advance=long("advance", 3),
        take_over=short("take_over", 2),
        post_notice=short("tell", 4),
        next_notice=short("next_notice", 3),
        has_notice=short("has_notice", 3),
        read=short("read", 5),
        lend_block=short("lend", 1),
        expect_reader=short("expect", 3),
        mark_location_read=short("leave", 3),
        add_to_link=short("add_to_link", 3),
        arrive=short("arrive", 2),
        due=short("due", 1),
        kernel=kernel,
    )
