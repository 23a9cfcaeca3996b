"""Loops and branches as functions, with the signatures and semantics of JAX's: `scan`, `fori_loop`,
`while_loop`, `cond`, `switch`.

A traced function does not need them: Python's `for`, `while` and `if` are recorded, equal iterations of a
loop become one native task (`passes.rolling`), and a look at a value ends a segment of the recording, so each
outcome has its own path (`recording.segments`). These functions are ordinary Python loops and branches that
call the body in each iteration. A body may therefore do anything that traced code may do, including writing
arrays in place, and all of these functions are differentiable, `while_loop` included.
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
from tracejit.frontend.recording.ranges.ranges import MIN_TRIP_COUNT, may_roll, record_all
from tracejit.frontend.recording.ranges.ranges import range as loop_range

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

T = TypeVar("T")
X = TypeVar("X")
Y = TypeVar("Y")
Z = TypeVar("Z")
Operands = TypeVarTuple("Operands")

# Numbers become arrays, so a loop whose initial value is a number returns an array: the first overloads. The
# last overloads are for trees of numbers, and take the type from the body's result.


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
    """Loop over the leading axis of `xs` with ``carry, y = f(carry, x)``, and return ``(carry, ys)``.

    init: the initial carry, a tree of arrays and numbers; every carry has its structure, shapes and dtypes.
    xs:   a tree of arrays with equal leading extents, or None, with which `f` is called `length` times.

    `ys` is a tree like `y`, with the results of all iterations stacked along a new first axis. With
    ``reverse=True`` the loop starts at the last element; each y has the index of its x.
    Raises ShapeError, DTypeError or ArgumentError for a carry with another structure, shape or dtype, for xs
    of different lengths, if neither `xs` nor `length` determines the number of iterations, and if that number
    is zero, as the ys are then unknown. Like `jax.lax.scan`. In a traced function this is a loop over
    `tj.range`: only a few iterations are recorded, and `length` may be a run-time number if there are neither
    xs nor ys.

    >>> import tracejit as tj
    >>> tj.scan(lambda total, x: (total + x, total + x), tj.zeros(()), tj.asarray([1.0, 2.0, 3.0]))
    (NDArray(6., dtype=float32), NDArray([1., 3., 6.], dtype=float32))
    """
    check_callable("scan", f)
    count = _iterations(xs, length)
    carry = trees.map(asarray, init)
    if count > MIN_TRIP_COUNT and may_roll(sys._getframe()):
        return _rolled(f, carry, xs, count, reverse)
    count = operator.index(count)
    ys: list[Any] = [None] * count
    for i in reversed(range(count)) if reverse else range(count):
        carry, ys[i] = _iterate(f, carry, trees.map(lambda x, i=i: x[i], xs))
    return carry, _stacked(ys)


def _iterate(f: Callable[[Any, Any], tuple[Any, Any]], carry: Any, x: Any) -> tuple[Any, Any]:
    """Run one iteration, and return the new carry and the y."""
    result = f(carry, x)
    if not isinstance(result, tuple) or len(result) != 2:
        raise _error(f"scan: the function must return (carry, y), got {_brief(result)}")
    return _checked_carry("scan", carry, result[0]), result[1]


def _rolled(f: Any, carry: Any, xs: Any, count: Any, reverse: bool) -> tuple[Any, Any]:
    """Run a scan of which a few iterations are recorded; each stores its y in a row of the ys. The first
    iteration precedes the loop, because it determines the shapes and dtypes of the ys.
    """
    first = count - 1 if reverse else 0
    carry, y = _iterate(f, carry, trees.map(lambda x: x[first], xs))
    if trees.leaves(y):
        count = operator.index(count)  # a look: the number is an extent of the ys
    ys = trees.map(lambda leaf: _rows(count, first, asarray(leaf)), y)
    del y
    for i in loop_range(count - 2, -1, -1) if reverse else loop_range(1, count):
        carry, y = _iterate(f, carry, trees.map(lambda x, i=i: x[i], xs))
        _store(ys, y, i)
        del y
    return carry, ys


def _rows(count: int, first: int, row: Any) -> Any:
    """Allocate an array of `count` rows like `row`, and store `row` at index `first`."""
    rows = empty((count, *row.shape), dtype=row.dtype, device=row.device)
    rows[first] = row
    return rows


def _store(ys: Any, y: Any, i: Any) -> None:
    """Store the leaves of a y in row `i` of the ys. If their structure or types differ, all iterations are
    recorded instead.
    """
    if trees.flatten(y)[1] != trees.flatten(ys)[1]:
        record_all("the ys of a scan have different structures")
    for rows, leaf in zip(trees.leaves(ys), trees.leaves(y), strict=True):
        row = asarray(leaf)
        if (row.shape, row.dtype, row.device) != (rows.shape[1:], rows.dtype, rows.device):
            record_all("the ys of a scan have different types")
        rows[i] = row


def _iterations(xs: Any, length: Any) -> Any:
    """Return the number of iterations of a `scan`, which may be a run-time number if there are no xs."""
    extents: dict[int, str] = {}
    for path, leaf in trees.leaves_with_paths(xs, "xs"):
        if not isinstance(leaf, ArrayCore) or not leaf.ndim:
            raise _error(f"scan: {path} must be an array with a first axis, got {_brief(leaf)}")
        extents.setdefault(leaf.shape[0], path)
    if type(length) is NumberProxy and type(unproxied(length)) is int and not extents:
        return _check_positive(length)
    if length is not None:
        extents.setdefault(integer("scan: length", length), "length")
    if not extents:
        raise _error("scan: pass xs, or the number of iterations (length=)")
    if len(extents) > 1:
        sources = ", ".join(f"{path} {extent}" for extent, path in extents.items())
        raise _error(f"scan: the numbers of iterations differ: {sources}", ShapeError)
    (count,) = extents
    return _check_positive(count)


def _check_positive(count: Any) -> Any:
    if count < 1:
        raise _error(f"scan: {count} iterations; at least one is needed, which determines what the ys are")
    return count


def _stacked(ys: list[Any]) -> Any:
    """Stack a list of trees: return one tree of arrays with an additional first axis."""
    if all(y is None for y in ys):
        return None
    first = trees.flatten(ys[0])[1]
    for i, y in enumerate(ys):
        if trees.flatten(y)[1] != first:
            raise _error(
                f"scan: the y of iteration {i} is {_brief(y)}, that of iteration 0 is {_brief(ys[0])}"
            )
    return trees.map(lambda *leaves: stack(leaves), *ys)


@overload
def fori_loop(
    lower: int, upper: int, body: Callable[[int, NDArray], Any], init: NDArray | complex
) -> NDArray: ...


@overload
def fori_loop(lower: int, upper: int, body: Callable[[int, T], T], init: T) -> T: ...


@overload
def fori_loop(lower: int, upper: int, body: Callable[[int, Any], T], init: Any) -> T: ...


def fori_loop(lower: int, upper: int, body: Callable[[int, Any], Any], init: Any) -> Any:
    """Loop with ``value = body(i, value)`` for i in ``range(lower, upper)``, and return the last value.

    init: the initial value, a tree of arrays and numbers; every value has its structure, shapes and dtypes.
    Raises ShapeError, DTypeError or ArgumentError for a value with another structure, shape or dtype,
    ArgumentError for bounds that are not integers. Like `jax.lax.fori_loop`. In a traced function this is a
    loop over `tj.range`.

    >>> import tracejit as tj
    >>> tj.fori_loop(0, 3, lambda i, x: x * 2 + i, tj.ones(2))
    NDArray([12., 12.], dtype=float32)
    """
    check_callable("fori_loop", body)
    value = trees.map(asarray, init)
    for i in loop_range(_bound("lower", lower), _bound("upper", upper)):
        value = _checked_carry("fori_loop", value, body(i, value))
    return value


def _bound(name: str, number: Any) -> Any:
    """Return a bound of `fori_loop` as an integer, or unchanged if it is a run-time number."""
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
    """Loop with ``value = body(value)`` while ``cond(value)`` is true, and return the last value.

    cond: returns a bool, or an array of one element, which is read in every iteration.
    init: the initial value, a tree of arrays and numbers; every value has its structure, shapes and dtypes.
    Raises ShapeError, DTypeError or ArgumentError for a value with another structure, shape or dtype. Like
    `jax.lax.while_loop`, but also differentiable in reverse mode: a gradient stores the intermediate results
    of every iteration.

    >>> import tracejit as tj
    >>> tj.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, tj.ones(2))
    NDArray([64., 64.], dtype=float32)
    """
    check_callable("while_loop", cond)
    check_callable("while_loop", body)
    value = trees.map(asarray, init)
    while _truth("while_loop: the condition", cond(value)):
        value = _checked_carry("while_loop", value, body(value))
    return value


LOOPS.add(while_loop.__code__)


def cond(
    pred: Any,
    true_fun: Callable[[*Operands], Y],
    false_fun: Callable[[*Operands], Z],
    *operands: *Operands,
) -> Y | Z:
    """Return ``true_fun(*operands)`` if `pred` is true, else ``false_fun(*operands)``.

    pred: a bool, or an array of one element, which is read. The other function is not called.
    Raises ArgumentError if `pred` is neither, ShapeError for an array with more or fewer elements. Like
    `jax.lax.cond`.

    >>> import tracejit as tj
    >>> x = tj.asarray([3.0, 4.0])
    >>> tj.cond(tj.linalg.norm(x) > 1, lambda x: x / tj.linalg.norm(x), lambda x: x, x)
    NDArray([0.6, 0.8], dtype=float32)
    """
    check_callable("cond", true_fun)
    check_callable("cond", false_fun)
    return true_fun(*operands) if _truth("cond: pred", pred) else false_fun(*operands)


def switch(index: Any, branches: Sequence[Callable[[*Operands], Y]], *operands: *Operands) -> Y:
    """Return the result of one of `branches`; an index out of range selects the nearest one.

    index: an integer, or an array of one integer, which is read. The other functions are not called.
    Raises ArgumentError if `index` is not an integer or `branches` is empty, ShapeError for an array with
    more or fewer elements. Like `jax.lax.switch`.

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
    position = integer("switch: index", index)
    return branches[min(max(position, 0), len(branches) - 1)](*operands)


def _truth(name: str, value: Any) -> bool:
    """Return the truth value of a bool or of an array of one element."""
    if isinstance(value, ArrayCore):
        _check_one(name, value)
        return bool(value.item())
    if trees.children_of(value) is not None or isinstance(value, str) or callable(value):
        raise _error(f"{name} must be a bool or an array of one element, got {_brief(value)}")
    return bool(value)


def _check_one(name: str, array: ArrayCore) -> None:
    if array.size != 1:
        raise _error(f"{name} must have one element, got an array of shape {array.shape}", ShapeError)


def _checked_carry(name: str, before: Any, after: Any) -> Any:
    """Return the new carry as arrays, after checking that its structure, shapes and dtypes are unchanged."""
    if trees.flatten(before)[1] != trees.flatten(after)[1]:
        what = f"{name}: the carry is {_brief(before)}, and then {_brief(after)}; its structure must stay"
        raise _error(what)
    arrays = trees.map(asarray, after)
    for (path, old), new in zip(trees.leaves_with_paths(before, "carry"), trees.leaves(arrays), strict=True):
        if old.shape != new.shape:
            raise _error(f"{name}: {path} has the shape {old.shape}, and then {new.shape}", ShapeError)
        if old.dtype != new.dtype:
            what = f"{name}: {path} is {old.dtype}, and then {new.dtype}; begin with that, or convert it"
            raise _error(what, DTypeError)
    return arrays


def _brief(value: Any) -> str:
    """Describe a value in a few words."""
    if isinstance(value, ArrayCore):
        return f"{value.dtype}{list(value.shape)}"
    children = trees.children_of(value)
    if children is None or value is None:
        return type(value).__name__
    return f"{children[0].__name__}({', '.join(map(_brief, children[2]))})"


def _error(message: str, kind: type[TracejitError] = ArgumentError) -> TracejitError:
    return locate(kind(message), user_location())
