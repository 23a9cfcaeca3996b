"""Operators between ranks: processes that run the same program, each on its own data.

exchange(*xs; combine, priority)   each operand combined over all ranks, written where it lies
all_gather(x; size, priority)      the operands of all ranks, stacked in order of rank
reduce_scatter(x; combine, size, priority) the part of the combined operand that belongs to this rank
broadcast(*xs; root, priority)     the operands of rank `root`, written where they lie
send(x; rank, priority)            gives the operand to another rank
receive(x; rank, priority)         what another rank sent, written where x lies
agree(; digest, within, text)      fails if any rank has failed, or runs other operators than these

The attribute `groups` of the first four, a division of all ranks, has each part do this by itself.

They are ORDERED, that is, never removed, merged or recomputed, and each has a *token*: nodes of one token
keep their order, also between launches. Exchanges have none: ranks find each other's messages by number, so
they run in any order. Nothing here moves bytes: a `Transport` does (`tracejit.distributed`).

Elements are combined in a balanced tree over the ranks, ``(x0 + x1) + (x2 + x3)``, so results are the same
bits whatever the time of arrival, and those of a sum over as many devices of one process.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tracejit.errors import ArgumentError, DTypeError, EngineError, ShapeError
from tracejit.ir.graph import Node
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.ops.batching import refusing
from tracejit.ops.rules import check_array, check_count
from tracejit.ops.symbolic import Operator, Sym, SymNode, full_like

Groups = tuple[tuple[int, ...], ...]

COMBINE: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
"""Functions that combine two elements, by name."""

STRIP = 1 << 16
"""Elements that are combined at a time, so that what is between two levels of the tree stays in a cache."""

Done = Callable[[BaseException | None], object]


class Wanted(Protocol):
    """Says whether a thread that moves bytes has other work."""

    def __call__(self, seconds: float = 0.0) -> bool:
        """Whether there is some; waits for it at most so long."""


class Transport(Protocol):
    """The interface of transports, which move bytes between ranks; `rank`: the number of this one."""

    rank: int

    def plan(self, node: Node) -> Any:
        """A record, at its `address`, by which machine code runs the tasks of an operator; None: Python does.

        It stays as it is for as long as somebody refers to what is returned.
        """

    def resume(self, node: Node, begun: Any, results: Sequence[np.ndarray], tag: int, done: Done) -> None:
        """Go on with an operation that machine code has begun."""

    def post(
        self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray], tag: int, done: Done
    ) -> None:
        """Begin an operation; `done` is called when it has ended, with an error or None.

        Ranks pass the same number `tag` for operations that belong together. Memory of operands and results
        stays as it is until then.
        """

    def agree(self, node: Node, failure: BaseException | None, done: Done) -> None:
        """Begin the operation `agree`; `failure`: why this rank's launch has failed."""

    def progress(self, wanted: Wanted) -> None:
        """Move bytes until all operations have ended, or `wanted` says that there is other work."""

    def run(self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        """The whole operation, on the calling thread; apart from the ones that are posted."""


_transports: list[Transport] = []


def set_transport(transport: Transport) -> None:
    """Have the operators use `transport`."""
    _transports[:] = [transport]


def transport() -> Transport:
    """The transport in use."""
    if not _transports:
        raise EngineError("operators between ranks need tj.distributed.init() first")
    return _transports[0]


# --------------------------------------------------------------------------------------------------- meaning


def combined(parts: Sequence[np.ndarray], combine: str, out: np.ndarray) -> None:
    """The parts, at least two of one dimension, combined elementwise in a balanced tree, written to `out`,
    which may be one of them.

    >>> out = np.empty(2)
    >>> combined([np.ones(2), np.ones(2), np.ones(2)], "sum", out)
    >>> out
    array([3., 3.])
    """
    function = COMBINE[combine]
    if len(parts) == 2:
        function(*parts, out=out)
        return
    between = np.empty((len(parts) // 2, min(out.size, STRIP)), out.dtype)
    for start in range(0, out.size, STRIP):
        strips = [part[start : start + STRIP] for part in parts]
        rows = [row[: strips[0].size] for row in between]
        while len(strips) > 2:
            pairs = [
                function(a, b, out=row) for a, b, row in zip(strips[::2], strips[1::2], rows, strict=False)
            ]
            strips = [*pairs, strips[-1]] if len(strips) % 2 else pairs
        function(*strips, out=out[start : start + STRIP])


def _meaning(name: str) -> Callable[..., Any]:
    """The evaluator of an operator, which waits: all ranks evaluate their graphs in the same order."""

    def evaluate(*arrays: np.ndarray, **attrs: Any) -> Any:
        op = _OPERATORS[name]
        types = [ArrayType(a.shape, a.dtype) for a in arrays]
        outputs = op.infer(*types, **attrs)
        many = isinstance(outputs, tuple)
        results = [np.empty(t.shape, t.dtype) for t in (outputs if many else (outputs,))]
        if op in IN_PLACE:
            for result, array in zip(results, arrays, strict=True):
                result[...] = array
        transport().run(Node(op, (), (), attrs), arrays, results)
        return tuple(results) if many else results[0]

    return evaluate


def digests(nodes: Iterable[Node]) -> tuple[int, tuple[tuple[Groups, int], ...]]:
    """Numbers of 32 bits that tell apart what is exchanged: operators, attributes, shapes, dtypes.

    The first is compared by all ranks; the others, by division, by the ranks of each group, as arrays and
    extents may differ between groups.
    """
    texts: list[str] = []
    within: dict[Groups, list[str]] = {}
    for node in nodes:
        attrs = sorted((name, value) for name, value in node.attrs.items() if name not in ("size", "root"))
        operands = f"{', '.join(str(v.type) for v in node.inputs)}, root {node.attrs.get('root')}"
        groups: Groups | None = node.attrs.get("groups")
        texts.append(f"{node.op.name}{attrs}{operands if groups is None else ''}")
        if groups is not None:
            within.setdefault(groups, []).append(operands)
    return _digest(texts), tuple((groups, _digest(within[groups])) for groups in sorted(within))


def _digest(texts: list[str]) -> int:
    return zlib.crc32("\n".join(texts).encode())


# ----------------------------------------------------------------------------------------- typing, gradient


def _check_operands(name: str, types: Sequence[ArrayType]) -> None:
    if not types:
        raise ArgumentError(f"{name} needs at least one array")
    for x in types:
        check_array(name, x)


def _check_combine(name: str, types: Sequence[ArrayType], combine: str) -> None:
    if combine not in COMBINE:
        raise ArgumentError(f"{name}: combine is one of {', '.join(COMBINE)}, got {combine!r}")
    for x in types:
        if combine in ("max", "min") and x.dtype.kind == "c":
            raise DTypeError(f"{name}: {x.dtype} has no order, so no {combine!r}; combine the parts apart")


def _infer_exchange(
    *types: ArrayType, combine: str, priority: int, token: None = None, groups: Groups | None = None
) -> tuple[ArrayType, ...]:
    _check_operands("exchange", types)
    _check_combine("exchange", types, combine)
    return types


def _infer_broadcast(
    *types: ArrayType, root: int, priority: int, token: None = None, groups: Groups | None = None
) -> tuple[ArrayType, ...]:
    _check_operands("broadcast", types)
    return types


def _infer_gather(
    *types: ArrayType, size: int, priority: int, token: None = None, groups: Groups | None = None
) -> ArrayType:
    check_count("all_gather", types, 1)
    check_array("all_gather", types[0])
    return ArrayType((size, *types[0].shape), types[0].dtype, types[0].device)


def _infer_scatter(
    *types: ArrayType,
    combine: str,
    size: int,
    priority: int,
    token: None = None,
    groups: Groups | None = None,
) -> ArrayType:
    check_count("reduce_scatter", types, 1)
    (x,) = types
    check_array("reduce_scatter", x)
    _check_combine("reduce_scatter", types, combine)
    if x.ndim < 1 or x.shape[0] % size:
        raise ShapeError(f"reduce_scatter of {x}: the first extent must be a multiple of the {size} ranks")
    return ArrayType((x.shape[0] // size, *x.shape[1:]), x.dtype, x.device)


def _infer_send(*types: ArrayType, rank: int, priority: int, token: str) -> tuple[ArrayType, ...]:
    check_count("send", types, 1)
    check_array("send", types[0])
    return ()


def _infer_receive(*types: ArrayType, rank: int, priority: int, token: str) -> tuple[ArrayType, ...]:
    check_count("receive", types, 1)
    check_array("receive", types[0])
    return types


def _infer_agree(
    *types: ArrayType, digest: int, within: tuple[tuple[Groups, int], ...], text: str, token: str
) -> tuple[ArrayType, ...]:
    check_count("agree", types, 0)
    return ()


def _exchange_gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
    """Every rank's result depends on every rank's operand: the cotangents are summed, too."""
    _check_sum("all_reduce", node)
    return list(exchange(*_dense(node.outputs, cotangents), **node.attrs))


def _gather_gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
    """Each rank has cotangents for the operands of all: a rank's own part of their sum."""
    (x,), (ct,) = node.inputs, _dense(node.outputs, cotangents)
    part = reduce_scatter(ct, combine="sum", **node.attrs)
    return [part.reshape(x.shape)]


def _scatter_gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
    """Each rank has the cotangent of its part of everyone's operand: all parts."""
    _check_sum("reduce_scatter", node)
    (x,), (ct,) = node.inputs, _dense(node.outputs, cotangents)
    attrs = {name: value for name, value in node.attrs.items() if name != "combine"}
    return [all_gather(ct, **attrs).reshape(x.shape)]


def _broadcast_gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
    """All results are the root's operands: the sum of the cotangents there, and zero elsewhere."""
    attrs = {name: value for name, value in node.attrs.items() if name != "root"}
    sums = exchange(*_dense(node.outputs, cotangents), combine="sum", **attrs)
    members = members_of(node, transport().rank)
    root = node.attrs["root"] if members is None else members[node.attrs["root"]]
    is_root = transport().rank == root
    return list(sums) if is_root else [full_like(x, 0.0) for x in node.inputs]


def _dense(outputs: Sequence[Sym], cotangents: Sequence[Sym | None]) -> list[Sym]:
    """The cotangents, zeros where there is none."""
    pairs = zip(outputs, cotangents, strict=True)
    return [full_like(y, 0.0) if ct is None else ct for y, ct in pairs]


def _check_sum(name: str, node: SymNode) -> None:
    combine = node.attrs["combine"]
    if combine != "sum":
        raise ArgumentError(f"the gradient of {name} by {combine!r} is not known; use 'sum'")


def _no_gradient(name: str) -> Callable[..., Any]:
    def refuse(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
        raise ArgumentError(
            f"{name} has no gradient yet; differentiate what is before and after it by itself"
        )

    return refuse


# -------------------------------------------------------------------------------------------------- the table


def _between_ranks(
    name: str, infer: Callable[..., Any], doc: str, gradient: Callable[..., Any] | None = None
) -> Operator:
    op = Operator(
        name,
        infer,
        _meaning(name),
        gradient or _no_gradient(name),
        traits=frozenset({Trait.ORDERED}),
        doc=doc,
        batch=refusing(f"{name} would happen once for all examples; call it outside of vmap"),
    )
    register(op)
    return op


exchange = _between_ranks(
    "exchange", _infer_exchange, "Each operand combined over all ranks, in place.", _exchange_gradient
)
all_gather = _between_ranks(
    "all_gather", _infer_gather, "The operands of all ranks, stacked in order of rank.", _gather_gradient
)
reduce_scatter = _between_ranks(
    "reduce_scatter",
    _infer_scatter,
    "This rank's part of the operand combined over all ranks.",
    _scatter_gradient,
)
broadcast = _between_ranks(
    "broadcast", _infer_broadcast, "The operands of one rank, in place.", _broadcast_gradient
)
send = _between_ranks("send", _infer_send, "Gives the operand to another rank.")
receive = _between_ranks("receive", _infer_receive, "What another rank sent, in place of the operand.")

agree = Operator(
    "agree",
    _infer_agree,
    lambda **attrs: (),
    traits=frozenset({Trait.ORDERED, Trait.CAN_FAIL}),
    doc="Fails if any rank has failed so far, or exchanges something else.",
    batch=refusing("agree is added after vmap"),
)
register(agree)

_OPERATORS: Mapping[str, Operator] = {
    op.name: op for op in (exchange, all_gather, reduce_scatter, broadcast, send, receive)
}

COLLECTIVE = frozenset({exchange, all_gather, reduce_scatter, broadcast})
"""Operators in which all ranks take part."""

IN_PLACE = frozenset({exchange, broadcast, receive})
"""Operators that write each result where the operand with the same number lies."""

BETWEEN_RANKS = frozenset({*_OPERATORS.values(), agree})
"""All of them."""


def members_of(node: Node | SymNode, rank: int) -> tuple[int, ...] | None:
    """The ranks that take part in an operator together with `rank`; None: all."""
    groups: Groups | None = node.attrs.get("groups")
    return None if groups is None else next(members for members in groups if rank in members)


def token(node: Node) -> str | None:
    """The order in which an ORDERED node takes part; None: in no order."""
    found: str | None = node.attrs.get("token", "callbacks")
    return found
