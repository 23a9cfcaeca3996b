"""Loops and branches as functions, for programs that have them so: `scan`, `fori_loop`, `while_loop`, `cond`,
`switch` with the signatures and the meaning of JAX's.

A traced function needs none of them: Python's `for`, `while` and `if` are recorded, equal rounds of a loop
become one native task (`passes.rolling`), and a look at a value ends a segment of the recording, so each
outcome has a path of its own (`recording.segments`). These functions are such Python: a body is called round
after round. So a body may do what any traced code may, write arrays in place included, and gradients go
through all of them, `while_loop` too.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, overload

from tracejit.errors import ArgumentError, DTypeError, ShapeError, TracejitError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray, empty
from tracejit.frontend.arrays.functions.movement import stack
from tracejit.frontend.recording.location import check_callable, user_location
from tracejit.frontend.recording.look_loops.frames import LOOPS
from tracejit.frontend.recording.number import NumberProxy, unproxied
from tracejit.frontend.recording.ranges.ranges import LEAST, may_roll, record_all
from tracejit.frontend.recording.ranges.ranges import range as rounds_of

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

T = TypeVar("T")
X = TypeVar("X")
Y = TypeVar("Y")
Z = TypeVar("Z")
Operands = TypeVarTuple("Operands")

# Numbers become arrays, so a loop that begins with one has an array as its result: the first overloads. The
# last ones are for trees of numbers, and say what the body returns.


@overload
def scan(
    f: Callable[[NDArray, X], tuple[Any, Y]],
    init: NDArray | complex,
    xs: X,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[NDArray, Y]: ...


@overload
def scan(
    f: Callable[[T, X], tuple[T, Y]], init: T, xs: X, length: int | None = None, reverse: bool = False
) -> tuple[T, Y]: ...


@overload
def scan(
    f: Callable[[Any, Any], tuple[T, Y]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[T, Y]: ...


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """``(carry, ys)`` of a loop over the leading axis of `xs`: ``carry, y = f(carry, x)`` for each element.

    init: a tree of arrays and numbers, the first carry; every carry has its structure, shapes and dtypes.
    xs:   a tree of arrays whose first extents are equal, or None, with which `f` is called `length` times.

    The ys are the tree of what `f` returns second, stacked along a new first axis. With ``reverse=True`` the
    loop begins with the last element; the ys lie beside their xs.
    Raises ShapeError, DTypeError or ArgumentError for a carry of another form, for xs of different lengths,
    where neither `xs` nor `length` says how long the loop is, and for a loop without a round: nothing says
    what its ys are. As `jax.lax.scan`. In a traced function it is a loop over `tj.range`: a few rounds are
    recorded, and `length` may be a run-time number where there are neither xs nor ys.

    >>> import tracejit as tj
    >>> tj.scan(lambda total, x: (total + x, total + x), tj.zeros(()), tj.asarray([1.0, 2.0, 3.0]))
    (NDArray(6., dtype=float32), NDArray([1., 3., 6.], dtype=float32))
    """
    check_callable("scan", f)
    rounds = _rounds(xs, length)
    carry = trees.map(asarray, init)
    if rounds > LEAST and may_roll(sys._getframe()):
        return _rolled(f, carry, xs, rounds, reverse)
    rounds = operator.index(rounds)
    found: list[Any] = [None] * rounds
    for i in reversed(range(rounds)) if reverse else range(rounds):
        carry, found[i] = _round(f, carry, trees.map(lambda x, i=i: x[i], xs))
    return carry, _stacked(found)


def _round(f: Callable[[Any, Any], tuple[Any, Any]], carry: Any, x: Any) -> tuple[Any, Any]:
    """The carry after a round, and its y."""
    result = f(carry, x)
    if not isinstance(result, tuple) or len(result) != 2:
        raise _error(f"scan: the function must return (carry, y), got {_named(result)}")
    return _like("scan", carry, result[0]), result[1]


def _rolled(f: Any, carry: Any, xs: Any, rounds: Any, reverse: bool) -> tuple[Any, Any]:
    """A scan of which a few rounds are recorded: each stores its y in its row. The first stands in front of
    the loop, as it says what the ys are.
    """
    first = rounds - 1 if reverse else 0
    carry, y = _round(f, carry, trees.map(lambda x: x[first], xs))
    if trees.leaves(y):
        rounds = operator.index(rounds)  # a look: it is a part of a shape
    ys = trees.map(lambda leaf: _rows(rounds, first, asarray(leaf)), y)
    del y
    for i in rounds_of(rounds - 2, -1, -1) if reverse else rounds_of(1, rounds):
        carry, y = _round(f, carry, trees.map(lambda x, i=i: x[i], xs))
        _store(ys, y, i)
        del y
    return carry, ys


def _rows(rounds: int, first: int, row: Any) -> Any:
    """An array of so many rows like this one, which it holds in its place."""
    made = empty((rounds, *row.shape), dtype=row.dtype, device=row.device)
    made[first] = row
    return made


def _store(ys: Any, y: Any, i: Any) -> None:
    """Store the leaves of a y in row `i`; the rounds are all recorded where they are no such rows."""
    if trees.flatten(y)[1] != trees.flatten(ys)[1]:
        record_all("the ys of a scan have different structures")
    for rows, leaf in zip(trees.leaves(ys), trees.leaves(y), strict=True):
        row = asarray(leaf)
        if (row.shape, row.dtype, row.device) != (rows.shape[1:], rows.dtype, rows.device):
            record_all("the ys of a scan have different types")
        rows[i] = row


def _rounds(xs: Any, length: Any) -> Any:
    """The number of rounds of a `scan`; without arrays to loop over it may be a run-time number."""
    extents: dict[int, str] = {}
    for path, leaf in trees.leaves_with_paths(xs, "xs"):
        if not isinstance(leaf, ArrayCore) or not leaf.ndim:
            raise _error(f"scan: {path} must be an array with a first axis, got {_named(leaf)}")
        extents.setdefault(leaf.shape[0], path)
    if type(length) is NumberProxy and type(unproxied(length)) is int and not extents:
        return _at_least_one(length)
    if length is not None:
        extents.setdefault(integer("scan: length", length), "length")
    if not extents:
        raise _error("scan: give xs, or how many rounds there are (length=)")
    if len(extents) > 1:
        said = ", ".join(f"{path} {extent}" for extent, path in extents.items())
        raise _error(f"scan: the numbers of rounds differ: {said}", ShapeError)
    (rounds,) = extents
    return _at_least_one(rounds)


def _at_least_one(rounds: Any) -> Any:
    if rounds < 1:
        raise _error(f"scan: {rounds} rounds, so nothing says what the ys are; there must be one at least")
    return rounds


def _stacked(found: list[Any]) -> Any:
    """Trees of results as one tree of arrays with an axis more."""
    if all(y is None for y in found):
        return None
    first = trees.flatten(found[0])[1]
    for i, y in enumerate(found):
        if trees.flatten(y)[1] != first:
            raise _error(f"scan: the y of round {i} is {_named(y)}, that of round 0 is {_named(found[0])}")
    return trees.map(lambda *leaves: stack(leaves), *found)


@overload
def fori_loop(
    lower: int, upper: int, body: Callable[[int, NDArray], Any], init: NDArray | complex
) -> NDArray: ...


@overload
def fori_loop(lower: int, upper: int, body: Callable[[int, T], T], init: T) -> T: ...


@overload
def fori_loop(lower: int, upper: int, body: Callable[[int, Any], T], init: Any) -> T: ...


def fori_loop(lower: int, upper: int, body: Callable[[int, Any], Any], init: Any) -> Any:
    """The last value of a loop: ``value = body(i, value)`` for i in ``range(lower, upper)``, `init` at first.

    init: a tree of arrays and numbers; every value has its structure, shapes and dtypes.
    Raises ShapeError, DTypeError or ArgumentError for a value of another form, ArgumentError for bounds that
    are no integers. As `jax.lax.fori_loop`. In a traced function it is a loop over `tj.range`.

    >>> import tracejit as tj
    >>> tj.fori_loop(0, 3, lambda i, x: x * 2 + i, tj.ones(2))
    NDArray([12., 12.], dtype=float32)
    """
    check_callable("fori_loop", body)
    value = trees.map(asarray, init)
    for i in rounds_of(_bound("lower", lower), _bound("upper", upper)):
        value = _like("fori_loop", value, body(i, value))
    return value


def _bound(name: str, number: Any) -> Any:
    """A bound of `fori_loop`: an integer, or one that stays a run-time number."""
    return number if type(number) is NumberProxy else integer(f"fori_loop: {name}", number)


@overload
def while_loop(
    cond: Callable[[NDArray], Any], body: Callable[[NDArray], Any], init: NDArray | complex
) -> NDArray: ...


@overload
def while_loop(cond: Callable[[T], Any], body: Callable[[T], T], init: T) -> T: ...


@overload
def while_loop(cond: Callable[[Any], Any], body: Callable[[Any], T], init: Any) -> T: ...


def while_loop(cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """The first value for which `cond` is false: ``value = body(value)`` while it is true, `init` at first.

    cond: gives a bool, or an array of one element, which is looked at in each round.
    init: a tree of arrays and numbers; every value has its structure, shapes and dtypes.
    Raises ShapeError, DTypeError or ArgumentError for a value of another form. As `jax.lax.while_loop`; a
    gradient goes through it, too, and keeps what each round needs.

    >>> import tracejit as tj
    >>> tj.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, tj.ones(2))
    NDArray([64., 64.], dtype=float32)
    """
    check_callable("while_loop", cond)
    check_callable("while_loop", body)
    value = trees.map(asarray, init)
    while _holds("while_loop: the condition", cond(value)):
        value = _like("while_loop", value, body(value))
    return value


LOOPS.add(while_loop.__code__)


def cond(
    pred: Any,
    true_fun: Callable[[*Operands], Y],
    false_fun: Callable[[*Operands], Z],
    *operands: *Operands,
) -> Y | Z:
    """``true_fun(*operands)`` if `pred` is true, else ``false_fun(*operands)``.

    pred: a bool, or an array of one element, which is looked at. The other function is not called.
    Raises ArgumentError for what is neither. As `jax.lax.cond`.

    >>> import tracejit as tj
    >>> x = tj.asarray([3.0, 4.0])
    >>> tj.cond(tj.linalg.norm(x) > 1, lambda x: x / tj.linalg.norm(x), lambda x: x, x)
    NDArray([0.6, 0.8], dtype=float32)
    """
    check_callable("cond", true_fun)
    check_callable("cond", false_fun)
    return true_fun(*operands) if _holds("cond: pred", pred) else false_fun(*operands)


def switch(index: Any, branches: Sequence[Callable[[*Operands], Y]], *operands: *Operands) -> Y:
    """The result of the branch at `index` for the operands; an index out of range stands for the nearest one.

    index: an integer, or an array of one, which is looked at. The other functions are not called.
    Raises ArgumentError for what is no integer, and where there is no branch. As `jax.lax.switch`.

    >>> import tracejit as tj
    >>> tj.switch(5, [tj.sin, tj.cos, tj.square], tj.asarray(3.0))
    NDArray(9., dtype=float32)
    """
    for branch in branches:
        check_callable("switch", branch)
    if not branches:
        raise _error("switch: there is no branch")
    if isinstance(index, ArrayCore):
        _check_one("switch: index", index)
        index = index.item()
    place = integer("switch: index", index)
    return branches[min(max(place, 0), len(branches) - 1)](*operands)


def _holds(name: str, value: Any) -> bool:
    """The truth of a bool or of an array of one element."""
    if isinstance(value, ArrayCore):
        _check_one(name, value)
        return bool(value.item())
    if trees.children_of(value) is not None or isinstance(value, str) or callable(value):
        raise _error(f"{name} must be a bool or an array of one element, got {_named(value)}")
    return bool(value)


def _check_one(name: str, array: ArrayCore) -> None:
    if array.size != 1:
        raise _error(f"{name} must have one element, got an array of shape {array.shape}", ShapeError)


def _like(name: str, before: Any, after: Any) -> Any:
    """The new carry, checked to have the structure, shapes and dtypes of the one before."""
    if trees.flatten(before)[1] != trees.flatten(after)[1]:
        what = f"{name}: the carry is {_named(before)}, and then {_named(after)}; its structure must stay"
        raise _error(what)
    carried = trees.map(asarray, after)
    for (path, old), new in zip(trees.leaves_with_paths(before, "carry"), trees.leaves(carried), strict=True):
        if old.shape != new.shape:
            raise _error(f"{name}: {path} has the shape {old.shape}, and then {new.shape}", ShapeError)
        if old.dtype != new.dtype:
            what = f"{name}: {path} is {old.dtype}, and then {new.dtype}; begin with that, or convert it"
            raise _error(what, DTypeError)
    return carried


def _named(value: Any) -> str:
    """A short description of a value."""
    if isinstance(value, ArrayCore):
        return f"{value.dtype}{list(value.shape)}"
    children = trees.children_of(value)
    if children is None or value is None:
        return type(value).__name__
    return f"{children[0].__name__}({', '.join(map(_named, children[2]))})"


def _error(message: str, kind: type[TracejitError] = ArgumentError) -> TracejitError:
    return locate(kind(message), user_location())
