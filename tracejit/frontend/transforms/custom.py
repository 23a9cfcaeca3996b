"""Functions with a custom gradient.

The function receives copies of its arrays, and returns copies of its results that stop cotangents. Between
the copies, the recording is that of any function, with derivatives of any order. A step on the tape
transfers cotangents from the results to the arguments, bypassing the body:

    x  ->  copy  ->  ... body ...  ->  stop_gradient  ->  y
           dx    <-   backward    <-                      dy       the step
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence, Set
from typing import Any

from tracejit.errors import ArgumentError, ShapeError, TracejitError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.dispatch import read_all, wrap
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.grad.tape import recording_operators, region
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.location import check_callable, user_location
from tracejit.frontend.recording.recording import Recording, thread
from tracejit.frontend.transforms.leaves import is_differentiable, matched, types_of
from tracejit.ir.graph import Builder, Value
from tracejit.ir.op import Op
from tracejit.ir.types import ArrayType, is_inexact
from tracejit.ops import copy, full, stop_gradient
from tracejit.passes.copier import CopiedStep, Copier, read_from_outside
from tracejit.passes.gradient import Items, ReverseStep, gradient


def custom_gradient(function: Callable[..., tuple[Any, Callable[..., Any]]]) -> Callable[..., Any]:
    """Return a function with a custom gradient, from a `function` that returns ``(value, backward)``.

    ``backward(cotangent)`` receives a tree like the value (with zeros for leaves on which nothing depends)
    and returns the cotangent of the argument: a tree like the argument, with None where there is no
    cotangent. For several positional arguments it returns a tuple with one tree each. Shapes and dtypes are
    those of the arguments. Arrays that `function` accesses in other ways, as keyword arguments or by name,
    have the gradient of its body. The arrays passed as positional arguments are read-only. `backward` is
    called only if a gradient is being taken. It is array code, so higher derivatives are those of `backward`.
    Source: `custom_gradient` of TensorFlow.
    Raises ArgumentError if `function` does not return such a pair, or `backward` returns another structure;
    ShapeError for cotangents of other shapes or dtypes.

    >>> import tracejit as tj
    >>> @tj.custom_gradient
    ... def clipped(x):
    ...     return x, lambda dy: tj.clip(dy, -1.0, 1.0)
    >>> tj.grad(lambda x: (5 * clipped(x)).sum())(tj.ones(2))
    NDArray([1., 1.], dtype=float32)
    """
    check_callable("custom_gradient", function)
    with_gradient = with_rule(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if thread.trace is not None:
            thread.trace.rules.append(user_location())
        return with_gradient(*args, **kwargs)

    return wrapper


def with_rule(function: Callable[..., tuple[Any, Callable[..., Any]]]) -> Callable[..., Any]:
    """Like `custom_gradient`, for a rule equivalent to those of the operators: it is not reported to the
    trace.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not thread.tapes:
            return _pair(function, function(*args, **kwargs))[0]
        return _with_rule(function, args, kwargs)

    return wrapper


def _pair(function: Any, result: Any) -> tuple[Any, Callable[..., Any]]:
    if not isinstance(result, tuple) or len(result) != 2 or not callable(result[1]):
        raise _error(
            ArgumentError,
            function,
            "must return (value, backward), backward a function of cotangents",
        )
    return result


def _error(kind: type[TracejitError], function: Any, message: str) -> TracejitError:
    """Return an error about `function`, located at its first line."""
    code = getattr(function, "__code__", None)
    line = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else user_location()
    name = getattr(function, "__name__", type(function).__name__)
    return locate(kind(f"custom_gradient: {name} {message}"), line)


def _with_rule(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `function`, and mark its nodes on the open tapes with its rule."""
    recording = eager.current()
    leaves, structure = trees.flatten(args)
    copies, _, starts = _through(recording, copy, leaves)
    inside = [NDArray(x._storage, x._view.read_only()) if is_differentiable(x) else x for x in copies]
    with region(recording) as body:
        value, backward = _pair(function, function(*trees.unflatten(structure, inside), **kwargs))
        results, result_structure = trees.flatten(value)
        outside, ends, outputs = _through(recording, stop_gradient, results)
        rule = _Rule(function, backward, (result_structure, types_of(results)), (structure, types_of(leaves)))
        body.arrange = lambda items: [*items, _CustomStep(rule, items, starts, ends, outputs)]
    recording.end_operation()
    return trees.unflatten(result_structure, outside)


def _through(recording: Recording, op: Op, leaves: list[Any]) -> tuple[list[Any], list[Value], list[Value]]:
    """Apply `op` to the differentiable arrays among the leaves. Return the leaves with these arrays replaced,
    and the values of the arrays before and after.
    """
    arrays = [leaf for leaf in leaves if is_differentiable(leaf)]
    with recording_operators():
        before = read_all(recording, lambda: [recording.read(x._storage, x._view) for x in arrays])
        after = [recording.emit(op, value) for value in before]
        results = iter([wrap(recording, value) for value in after])
    return [next(results) if is_differentiable(leaf) else leaf for leaf in leaves], before, after


class _Rule:
    """The user's `backward`, applied to leaves.

    result_types, types: the types of the results' and the arguments' leaves; None for leaves without
    cotangents.
    """

    def __init__(
        self,
        function: Any,
        backward: Callable[..., Any],
        of_results: tuple[trees.Structure, list[ArrayType | None]],
        of_arguments: tuple[trees.Structure, list[ArrayType | None]],
    ):
        self.function, self.backward = function, backward
        self.result_structure, self.result_types = of_results
        self.structure, self.types = of_arguments

    def __call__(self, recording: Recording, cotangents: Sequence[Value | None]) -> list[Value | None]:
        """Return the cotangents of the arguments' differentiable leaves, from those of the results'."""
        with recording_operators():
            dense = [wrap(recording, self._dense(recording, ct, i)) for i, ct in enumerate(cotangents)]
        seeds = iter(dense)
        leaves = [None if kind is None else next(seeds) for kind in self.result_types]
        result = self.backward(trees.unflatten(self.result_structure, leaves))
        single = len(self.structure.children) == 1
        gradients = matched(self.structure, (result,) if single else result)
        if gradients is None:
            raise _error(
                ArgumentError,
                self.function,
                "has a backward that must return a tree like the arguments, one for each of several; got "
                f"{result!r} for {self.structure}",
            )
        typed = list(zip(gradients, self.types, strict=True))
        for leaf, kind in typed:
            self._check(leaf, kind)
        arrays = [leaf for leaf, kind in typed if kind is not None and leaf is not None]
        with recording_operators():
            read = iter(read_all(recording, lambda: [recording.read(x._storage, x._view) for x in arrays]))
        return [None if leaf is None else next(read) for leaf, kind in typed if kind is not None]

    def _dense(self, recording: Recording, cotangent: Value | None, position: int) -> Value:
        """Return a cotangent, or zeros if it is None."""
        if cotangent is not None:
            return recording.known(cotangent)
        kind = [kind for kind in self.result_types if kind is not None][position]
        zero = recording.constant(0.0, kind.dtype)
        return recording.emit(full, zero, shape=kind.shape, device=kind.device)

    def _check(self, leaf: Any, kind: ArrayType | None) -> None:
        if leaf is None or kind is None:
            return
        if not isinstance(leaf, NDArray):
            kind_name = type(leaf).__name__
            raise _error(
                ArgumentError,
                self.function,
                f"has a backward that must return arrays or None, got {kind_name}",
            )
        if leaf.shape != kind.shape or leaf.dtype != kind.dtype:
            returned = ArrayType(leaf.shape, leaf.dtype, kind.device)
            raise _error(
                ShapeError, self.function, f"has a backward that returns {returned} for an argument {kind}"
            )


class _CustomStep(CopiedStep):
    """A step that applies the rule to the cotangents of `outputs`, which are copies of `ends`, to obtain
    those of `starts`. Cotangents of the other values that the body reads are obtained from its nodes.
    """

    calls_python = True

    def __init__(
        self,
        rule: Any,
        items: Items,
        starts: Sequence[Value],
        ends: Sequence[Value],
        outputs: Sequence[Value],
    ):
        outside = [v for v in read_from_outside(items) if v not in starts]
        self.captured = [v for v in outside if is_inexact(v.type.dtype) and not v.type.on_host]
        super().__init__((*starts, *self.captured), outputs)
        self.rule, self.items, self.starts, self.ends = rule, items, starts, ends

    def copy_for(self, copier: Copier) -> ReverseStep:
        """Return the step for copies of the values. The rule keeps the arrays of the original body."""
        values = [[copier.copy_of(v) for v in group] for group in (self.starts, self.ends, self.outputs)]
        return _CustomStep(self.rule, copier.copied(self.items), *values)

    def pull_back(
        self, builder: Builder, cotangents: Sequence[Value | None], active: Set[Value]
    ) -> Sequence[Value | None]:
        """Pull back to the arguments with the rule, and to other arrays through the nodes of the body."""
        by_rule = self.rule(builder, cotangents)
        active_captured = [v for v in self.captured if v in active]
        if not active_captured:
            return [*by_rule, *[None] * len(self.captured)]
        known = [(e, ct) for e, ct in zip(self.ends, cotangents, strict=True) if ct is not None]
        ends, seeds = [e for e, _ in known], [ct for _, ct in known]
        by_nodes = gradient(builder, self.items, ends, seeds, active_captured, guard=recording_operators)
        totals = dict(zip(active_captured, by_nodes, strict=True))
        return [*by_rule, *[totals.get(v) for v in self.captured]]
