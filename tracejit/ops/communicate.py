"""Communication operators between ranks: processes that run the same program, each on its own data.

exchange(*xs; combine, priority)   each operand combined over all ranks, in place
all_gather(x; size, priority)      the operands of all ranks, stacked in order of rank
reduce_scatter(x; combine, size, priority) this rank's shard of the operand combined over all ranks
broadcast(*xs; root, priority)     the operands of rank `root`, in place
send(x; rank, priority)            sends the operand to another rank
receive(x; rank, priority)         the array that another rank sent, written into the memory of x
agree(; digest, within, text)      fails if any rank has failed, or runs different communication operators

The attribute `groups` of the first four, a partition of all ranks, restricts the operator to each group.

The operators are ORDERED, that is, never removed, merged or recomputed. Each has a *token*: nodes of one
token keep their order, also across launches. The collectives have no token: ranks match their messages by
number, so they run in any order. This module moves no bytes; a `Transport` does (`tracejit.distributed`).

Elements are combined in a balanced tree over the ranks, ``(x0 + x1) + (x2 + x3)``. Results are therefore
bitwise independent of arrival times, and equal those of a sum over as many devices of one process.
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
"""The ufuncs that combine two elements, by the value of the attribute `combine`."""

STRIP = 1 << 16
"""Number of elements combined at a time, such that intermediate results of the tree stay in the cache."""

Done = Callable[[BaseException | None], object]


class HasOtherWork(Protocol):
    """A predicate by which a transport asks whether its thread has other work."""

    def __call__(self, seconds: float = 0.0) -> bool:
        """Whether there is other work; waits for it for at most `seconds`."""


class Transport(Protocol):
    """The interface of transports, which move bytes between ranks; `rank`: the number of this process."""

    rank: int

    def plan(self, node: Node) -> Any:
        """Return a record that lets machine code run the tasks of an operator, or None if Python runs them.

        The memory at the record's `address` is unchanged for as long as the returned object is referenced.
        """

    def resume(self, node: Node, begun: Any, results: Sequence[np.ndarray], tag: int, done: Done) -> None:
        """Continue an operation that machine code has begun; other arguments are those of `post`."""

    def post(
        self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray], tag: int, done: Done
    ) -> None:
        """Begin an operation; `done` is called when it has ended, with an error or None.

        All ranks pass the same `tag` for the same operation. The memory of operands and results stays valid,
        and is not written by the caller, until `done` is called.
        """

    def agree(self, node: Node, failure: BaseException | None, done: Done) -> None:
        """Begin the operation `agree`; `failure` is the error of this rank's launch, or None."""

    def progress(self, has_other_work: HasOtherWork) -> None:
        """Move bytes until all operations have ended or `has_other_work` reports other work."""

    def run(self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        """Run an operation to completion on the calling thread, independently of posted operations."""


_transports: list[Transport] = []


def set_transport(transport: Transport) -> None:
    """Install `transport` for the communication operators."""
    _transports[:] = [transport]


def transport() -> Transport:
    """The installed transport; raises EngineError if there is none."""
    if not _transports:
        raise EngineError("operators between ranks need tj.distributed.init() first")
    return _transports[0]


# ------------------------------------------------------------------------------------- reference evaluation


def combined(arrays: Sequence[np.ndarray], combine: str, out: np.ndarray) -> None:
    """Combine arrays elementwise in a balanced tree and store the result in `out`, which may be one of them.

    There are at least two arrays, each of one dimension.

    >>> out = np.empty(2)
    >>> combined([np.ones(2), np.ones(2), np.ones(2)], "sum", out)
    >>> out
    array([3., 3.])
    """
    function = COMBINE[combine]
    if len(arrays) == 2:
        function(*arrays, out=out)
        return
    scratch = np.empty((len(arrays) // 2, min(out.size, STRIP)), out.dtype)
    for start in range(0, out.size, STRIP):
        strips = [array[start : start + STRIP] for array in arrays]
        rows = [row[: strips[0].size] for row in scratch]
        while len(strips) > 2:
            pairs = [
                function(a, b, out=row) for a, b, row in zip(strips[::2], strips[1::2], rows, strict=False)
            ]
            strips = [*pairs, strips[-1]] if len(strips) % 2 else pairs
        function(*strips, out=out[start : start + STRIP])


def _evaluator(name: str) -> Callable[..., Any]:
    """Return the blocking evaluator of an operator: all ranks evaluate their graphs in the same order."""

    def evaluate(*arrays: np.ndarray, **attrs: Any) -> Any:
        op = _OPERATORS[name]
        types = [ArrayType(a.shape, a.dtype) for a in arrays]
        outputs = op.infer(*types, **attrs)
        is_tuple = isinstance(outputs, tuple)
        results = [np.empty(t.shape, t.dtype) for t in (outputs if is_tuple else (outputs,))]
        if op in IN_PLACE:
            for result, array in zip(results, arrays, strict=True):
                result[...] = array
        transport().run(Node(op, (), (), attrs), arrays, results)
        return tuple(results) if is_tuple else results[0]

    return evaluate


def digests(nodes: Iterable[Node]) -> tuple[int, tuple[tuple[Groups, int], ...]]:
    """Return 32-bit digests of communication nodes: of their operators, attributes, shapes and dtypes.

    All ranks compare the first digest. The others, one for each partition into groups, are compared within
    each group only, because arrays and extents may differ between groups.
    """
    texts: list[str] = []
    texts_by_groups: dict[Groups, list[str]] = {}
    for node in nodes:
        attrs = sorted((name, value) for name, value in node.attrs.items() if name not in ("size", "root"))
        operands = f"{', '.join(str(v.type) for v in node.inputs)}, root {node.attrs.get('root')}"
        groups: Groups | None = node.attrs.get("groups")
        texts.append(f"{node.op.name}{attrs}{operands if groups is None else ''}")
        if groups is not None:
            texts_by_groups.setdefault(groups, []).append(operands)
    return _digest(texts), tuple(
        (groups, _digest(texts_by_groups[groups])) for groups in sorted(texts_by_groups)
    )


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
            raise DTypeError(
                f"{name}: {x.dtype} has no order, so no {combine!r}; combine real(x) and imag(x)"
            )


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
    """Sum the cotangents over all ranks: every rank's result depends on every rank's operand."""
    _check_sum("all_reduce", node)
    return list(exchange(*_dense(node.outputs, cotangents), **node.attrs))


def _gather_gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
    """Sum the cotangents, which each rank has for all operands, over all ranks; keep this rank's shard."""
    (x,), (ct,) = node.inputs, _dense(node.outputs, cotangents)
    shard = reduce_scatter(ct, combine="sum", **node.attrs)
    return [shard.reshape(x.shape)]


def _scatter_gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
    """Gather the cotangents of all ranks: each has that of its shard of every rank's operand."""
    _check_sum("reduce_scatter", node)
    (x,), (ct,) = node.inputs, _dense(node.outputs, cotangents)
    attrs = {name: value for name, value in node.attrs.items() if name != "combine"}
    return [all_gather(ct, **attrs).reshape(x.shape)]


def _broadcast_gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
    """Sum the cotangents at the root, whose operands are the result on all ranks; zero on all other ranks."""
    attrs = {name: value for name, value in node.attrs.items() if name != "root"}
    sums = exchange(*_dense(node.outputs, cotangents), combine="sum", **attrs)
    members = members_of(node, transport().rank)
    root = node.attrs["root"] if members is None else members[node.attrs["root"]]
    is_root = transport().rank == root
    return list(sums) if is_root else [full_like(x, 0.0) for x in node.inputs]


def _dense(outputs: Sequence[Sym], cotangents: Sequence[Sym | None]) -> list[Sym]:
    """The cotangents, with zeros in place of None."""
    pairs = zip(outputs, cotangents, strict=True)
    return [full_like(y, 0.0) if ct is None else ct for y, ct in pairs]


def _check_sum(name: str, node: SymNode) -> None:
    combine = node.attrs["combine"]
    if combine != "sum":
        raise ArgumentError(f"the gradient of {name} by {combine!r} is not known; use 'sum'")


def _no_gradient(name: str) -> Callable[..., Any]:
    def refuse(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
        raise ArgumentError(
            f"{name} has no gradient yet; differentiate the computations before and after it separately"
        )

    return refuse


# ----------------------------------------------------------------------------------------------- declarations


def _between_ranks(
    name: str, infer: Callable[..., Any], doc: str, gradient: Callable[..., Any] | None = None
) -> Operator:
    op = Operator(
        name,
        infer,
        _evaluator(name),
        gradient or _no_gradient(name),
        traits=frozenset({Trait.ORDERED}),
        doc=doc,
        batch=refusing(f"{name} would happen once for all examples; call it outside of vmap"),
    )
    register(op)
    return op


exchange = _between_ranks(
    "exchange", _infer_exchange, "Combines each operand over all ranks, in place.", _exchange_gradient
)
all_gather = _between_ranks(
    "all_gather", _infer_gather, "The operands of all ranks, stacked in order of rank.", _gather_gradient
)
reduce_scatter = _between_ranks(
    "reduce_scatter",
    _infer_scatter,
    "This rank's shard of the operand combined over all ranks.",
    _scatter_gradient,
)
broadcast = _between_ranks(
    "broadcast", _infer_broadcast, "The operands of one rank, in place.", _broadcast_gradient
)
send = _between_ranks("send", _infer_send, "Sends the operand to another rank.")
receive = _between_ranks(
    "receive", _infer_receive, "The array that another rank sent, in the memory of the operand."
)

agree = Operator(
    "agree",
    _infer_agree,
    lambda **attrs: (),
    traits=frozenset({Trait.ORDERED, Trait.CAN_FAIL}),
    doc="Fails if any rank has failed so far, or runs different communication operators.",
    batch=refusing("agree is added after vmap"),
)
register(agree)

_OPERATORS: Mapping[str, Operator] = {
    op.name: op for op in (exchange, all_gather, reduce_scatter, broadcast, send, receive)
}

COLLECTIVE = frozenset({exchange, all_gather, reduce_scatter, broadcast})
"""Operators in which all ranks take part."""

IN_PLACE = frozenset({exchange, broadcast, receive})
"""Operators that write each result into the memory of the operand at the same position."""

BETWEEN_RANKS = frozenset({*_OPERATORS.values(), agree})
"""All communication operators."""


def members_of(node: Node | SymNode, rank: int) -> tuple[int, ...] | None:
    """The ranks of the group in which `rank` takes part in the operator; None: all ranks."""
    groups: Groups | None = node.attrs.get("groups")
    return None if groups is None else next(members for members in groups if rank in members)


def token(node: Node) -> str | None:
    """The token of an ORDERED node, whose nodes keep their order; None: the node is not ordered."""
    token_name: str | None = node.attrs.get("token", "callbacks")
    return token_name
