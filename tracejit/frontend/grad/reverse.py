"""Gradients of functions on arrays: a transformation of the recorded graph, not a mode of the arrays.

`value_and_grad(f)` calls f while a tape retains the recorded nodes, then appends the backward nodes to the
same recording. It therefore works in eager code, inside `tj.jit`, around jitted functions, and nested (for
second derivatives).

>>> import tracejit as tj
>>> tj.grad(lambda x: (x * x * x).sum())(tj.asarray([1.0, 2.0]))
NDArray([ 3., 12.], dtype=float32)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, TypeVarTuple, overload

from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.dispatch import read_all, wrap
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.grad.tape import Tape, recorded, recording_operators
from tracejit.frontend.recording.location import check_callable, user_location
from tracejit.frontend.recording.recording import Recording, lock, taping, thread
from tracejit.ir.graph import Node, Value
from tracejit.ir.types import is_floating, is_inexact
from tracejit.ir.view import View
from tracejit.ops import full
from tracejit.passes.gradient import ReverseStep, gradient

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
Ts = TypeVarTuple("Ts")


class _Start:
    """The initial content of a differentiated leaf's storage: `value` is its elements from offset
    `low` on.
    """

    def __init__(self, value: Value, low: int):
        self.value, self.low = value, low


@overload
def vjp(
    function: Callable[[*Ts], R], *args: *Ts, has_aux: Literal[False] = False
) -> tuple[R, Callable[[R], tuple[*Ts]]]: ...


@overload
def vjp(
    function: Callable[[*Ts], tuple[R, A]], *args: *Ts, has_aux: Literal[True]
) -> tuple[R, Callable[[R], tuple[*Ts]], A]: ...


def vjp(  # type: ignore[misc]  # mypy compares `*args: *Ts` with `*args: Any`
    function: Callable[..., Any], *args: Any, has_aux: bool = False
) -> Any:
    """Return ``(value, pull_back)``: the result of ``function(*args)``, and a function from its cotangents to
    those of the arguments.

    `pull_back` accepts a tree like the value and returns a tuple with one tree for each argument (None for
    leaves that are not floating arrays). With `has_aux`, `function` returns (value, aux), and the result is
    ``(value, pull_back, aux)``. Source: reverse-mode differentiation as in TensorFlow's graph gradients.
    Raises ArgumentError for cotangents of another structure or results that are not arrays, ShapeError for
    cotangents of other shapes or dtypes.

    >>> import tracejit as tj
    >>> value, pull_back = tj.vjp(lambda x: x * x, tj.asarray([1.0, 3.0]))
    >>> pull_back(tj.asarray([1.0, 10.0]))
    (NDArray([ 2., 60.], dtype=float32),)
    """
    value, pull_back, aux = pull_back_of(function, args, has_aux=has_aux)
    return (value, pull_back, aux) if has_aux else (value, pull_back)


def pull_back_of(
    function: Callable[..., Any], args: tuple[Any, ...], *, has_aux: bool, launch: bool = True
) -> tuple[Any, Callable[[Any], tuple[Any, ...]], Any]:
    """Return the results of `vjp`, and `aux`. Without `launch`, eager code does not launch the recording, so
    that it computes only the results that are used.
    """
    leaves, structure = trees.flatten(args)
    with taping(), recorded() as tape:
        wrt = _starts(tape.recording, leaves)
        result = function(*args)
        value, aux = result if has_aux else (result, None)
        outputs, out_structure = trees.flatten(value)
        with lock:
            ends = _contents(tape.recording, outputs)
            nodes = tape.nodes()
            if thread.trace is None and launch:
                tape.recording.launch()  # retains the values that the pull-back may need
        tape.recording.end_operation()

    def pull_back(cotangents: Any) -> Any:
        leaf_cotangents, given_structure = trees.flatten(cotangents)
        if given_structure != out_structure:
            raise locate(
                ArgumentError(
                    f"vjp: cotangents of structure {given_structure} for a value of {out_structure}"
                ),
                user_location(),
            )
        with taping(), recorded() as tape:
            here = tape.recording
            with recording_operators():
                seeds = _contents(here, leaf_cotangents)
            for seed, end in zip(seeds, ends, strict=True):
                if seed.type != end.type:
                    raise locate(
                        ShapeError(f"vjp: a cotangent of {seed.type} for a value of {end.type}"),
                        user_location(),
                    )
            results = _backward(here, nodes, ends, seeds, wrt, leaves)
        here.end_operation()
        return trees.unflatten(structure, results)

    return value, pull_back, aux


@overload
def value_and_grad(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[T, P], R], argnums: Literal[0] = 0, *, has_aux: Literal[False] = False
) -> Callable[Concatenate[T, P], tuple[R, T]]: ...


@overload
def value_and_grad(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[T, P], tuple[R, A]], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> Callable[Concatenate[T, P], tuple[tuple[R, A], T]]: ...


@overload
def value_and_grad(
    function: Callable[P, R], argnums: int | Sequence[int], *, has_aux: bool = False
) -> Callable[P, tuple[R, Any]]: ...


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Any:
    """Return a function that computes ``(value, gradients)`` of `function` with respect to the arguments at
    `argnums`.

    `function` must return a scalar array (with `has_aux`, a pair of a scalar array and any object). Gradients
    have the structure of the argument: arrays with the shapes and dtypes of its leaves, and None for leaves
    that are not floating arrays. The derivative is with respect to the array, regardless of how the function
    accesses it: two leaves that share their memory have the same total gradient.
    When called, the function raises ShapeError for a result that is not a floating scalar, DTypeError if no
    argument is floating, ArgumentError for a missing argument.

    >>> import tracejit as tj
    >>> tj.value_and_grad(lambda params: (params["w"] ** 2).sum())({"w": tj.asarray([1.0, 2.0])})
    (NDArray(5., dtype=float32), {'w': NDArray([2., 4.], dtype=float32)})
    """
    check_callable("grad", function)
    single = isinstance(argnums, int)
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        primals = arguments_at("grad", function, positions, args)
        leaves, structure = trees.flatten(primals)
        with taping(), recorded() as tape:
            wrt = _starts(tape.recording, leaves)
            if not any(wrt):
                raise locate(
                    DTypeError("grad: no floating array among the arguments to differentiate"),
                    user_location(),
                )
            result = function(*args, **kwargs)
            loss, aux = result if has_aux else (result, None)
            grads = _gradients(tape, loss, wrt, leaves)
            tape.recording.end_operation()
        tree = trees.unflatten(structure, grads)
        tree = tree[0] if single else tree
        return ((loss, aux), tree) if has_aux else (loss, tree)

    return wrapper


@overload
def grad(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[T, P], Any], argnums: Literal[0] = 0, *, has_aux: Literal[False] = False
) -> Callable[Concatenate[T, P], T]: ...


@overload
def grad(
    function: Callable[Concatenate[T, P], tuple[Any, A]], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> Callable[Concatenate[T, P], tuple[T, A]]: ...


@overload
def grad(
    function: Callable[P, Any], argnums: int | Sequence[int], *, has_aux: bool = False
) -> Callable[P, Any]: ...


def grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Any:
    """Return a function that computes the gradients of `function`, or (gradients, aux) with `has_aux`; see
    `value_and_grad`, also for the errors.

    >>> import tracejit as tj
    >>> tj.grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(tj.asarray([2.0]), tj.asarray([3.0]))
    (NDArray([3.], dtype=float32), NDArray([2.], dtype=float32))
    """
    with_value = value_and_grad(function, argnums, has_aux=has_aux)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        value, gradients = with_value(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return wrapper


def arguments_at(
    what: str, function: Any, positions: tuple[int, ...], args: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return the arguments at these positions. Raise ArgumentError if one is missing."""
    name = getattr(function, "__name__", "function")
    for position in positions:
        if not -len(args) <= position < len(args):
            raise locate(
                ArgumentError(
                    f"{what}: argnums {position}, but {name} was called with {len(args)} positional arguments"
                ),
                user_location(),
            )
    return tuple(args[p] for p in positions)


def _starts(recording: Recording, leaves: list[Any]) -> list[_Start | None]:
    with recording_operators():
        return [_start(recording, leaf) for leaf in leaves]


def _start(recording: Recording, leaf: Any) -> _Start | None:
    """Return the present content of a leaf's storage, or None if the leaf has no derivatives."""
    if not isinstance(leaf, NDArray) or not is_inexact(leaf.dtype):
        return None
    storage = leaf._storage
    if storage.pending is not None and storage.recording is recording:
        return _Start(storage.pending, 0)
    window = recording.window(storage, leaf._view, write=False)
    window.tracked = True
    return _Start(window.value, window.lo)


def _contents(recording: Recording, arrays: list[Any]) -> list[Value]:
    for array in arrays:
        if not isinstance(array, NDArray):
            kind = type(array).__name__
            raise locate(ArgumentError(f"grad: expected an array as result, got {kind}"), user_location())
    return read_all(recording, lambda: [recording.read(a._storage, a._view) for a in arrays])


def _gradients(tape: Tape, loss: Any, wrt: list[_Start | None], leaves: list[Any]) -> list[Any]:
    """Return the gradients of a loss with respect to leaves."""
    recording = tape.recording
    with recording_operators():
        end = _loss(recording, loss)
        one = recording.constant(1.0, end.type.dtype)
        seed = recording.emit(full, one, shape=(), device=end.type.device)
    return _backward(recording, tape.nodes(), [end], [seed], wrt, leaves)


def _loss(recording: Recording, loss: Any) -> Value:
    (value,) = _contents(recording, [loss])
    if value.type.shape != () or not is_floating(value.type.dtype):
        raise locate(
            ShapeError(
                f"grad: the function must return a floating scalar (shape ()), got {value.type}; reduce it, "
                "e.g. with .mean() or .sum()"
            ),
            user_location(),
        )
    return value


def _backward(recording: Recording, nodes: list[Node | ReverseStep], ends: list[Value], seeds: list[Value],
              wrt: list[_Start | None], leaves: list[Any]) -> list[Any]:  # fmt: skip
    values = list(dict.fromkeys(s.value for s in wrt if s is not None))
    cotangents = gradient(recording, nodes, ends, seeds, values, guard=recording_operators)
    cotangent_of = dict(zip(values, cotangents, strict=True))
    with recording_operators():
        gradients = [  # wrapped before any is copied, as a copy may end the recording and thus its values
            None if start is None else _storage_gradient(recording, leaf, start, cotangent_of[start.value])
            for leaf, start in zip(leaves, wrt, strict=True)
        ]
    return [
        None if start is None else _viewed(gradient_array, leaf, start)
        for gradient_array, leaf, start in zip(gradients, leaves, wrt, strict=True)
    ]


def _storage_gradient(recording: Recording, leaf: NDArray, start: _Start, cotangent: Value | None) -> Any:
    """Return the cotangent of the storage content in `start` as an array; zeros if nothing depends on it."""
    if cotangent is None:
        zero = recording.constant(0.0, leaf.dtype)
        cotangent = recording.emit(full, zero, shape=start.value.type.shape, device=leaf.device)
    return wrap(recording, recording.known(cotangent))


def _viewed(gradient_array: Any, leaf: NDArray, start: _Start) -> NDArray:
    """Return the elements of a storage's gradient that the leaf views."""
    view = View(leaf._view.offset - start.low, leaf.shape, leaf._view.strides)
    if view.shape == gradient_array.shape and view.is_identity(gradient_array.shape):
        return gradient_array
    return NDArray(gradient_array._storage, view).copy()
