"""`vmap`: vectorise a function of one example over a batch of examples.

Arguments become arrays that represent one example (`batch`). The function runs on these arrays, its recording
is replayed for all examples (`examples`), and the results receive their new axis. Finally, the contents of
written mapped arrays are stored, and items that the function has assigned in containers of its arguments are
assigned in the caller's containers.

>>> import tracejit as tj
>>> x, w = tj.asarray([[1.0, 2.0], [3.0, 4.0]]), tj.asarray([1.0, 10.0])
>>> tj.vmap(lambda x, w: (x * w).sum(), in_axes=(0, None))(x, w)
NDArray([21., 43.], dtype=float32)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import dispatch, trees
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.grad.tape import recording_operators
from tracejit.frontend.python.content import Attributes
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.location import check_callable, user_location
from tracejit.frontend.recording.number import concrete, is_number
from tracejit.frontend.transforms import aliases
from tracejit.frontend.transforms.batch import Batch
from tracejit.frontend.transforms.examples import Replay, recorded_items
from tracejit.frontend.transforms.mapped_axes import (
    array_axes,
    axes_below,
    is_array,
    normal_axis,
    parts_of,
    with_axes,
)
from tracejit.ir.graph import Value
from tracejit.ops.structural import CALLBACKS


def vmap(
    function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, *, axis_size: int | None = None
) -> Callable[..., Any]:
    """Return `function`, which is written for one example, as a function of a batch of examples.

    in_axes: the axis of each argument that enumerates the examples: an int, None for an argument common to
    all examples (a number, say), or a tuple of these, one for each positional argument. For an argument that
    is a container, a container of ints and None may be passed. Arrays among keyword arguments are mapped
    along their first axis, and other keyword arguments are common to all examples. Of an object that is a
    pytree node, such as a module, exactly the arrays are mapped; `tj.nn.stack` combines several modules into
    one. out_axes: the position of the examples' axis in the results, in the same form; None for a result that
    is common to all examples. axis_size: the number of examples, needed only if no argument is mapped.

    The function runs once, on arrays with the shape of one example, and its operations are performed for all
    examples together: ``x @ w`` with a common `w` is one product. It cannot look at mapped values:
    ``if x > 0`` and ``float(x)`` raise (see `tj.where`). Writes in place to a mapped array, and assignments
    of items and attributes in a mapped dict, list or dataclass, take effect for each example. An array that
    is not mapped is written once, and values that differ between the examples cannot be written to it. Each
    example draws its own random numbers: those that a loop over the examples would draw. Callbacks
    (`tj.callback`) are called for each example, in order. If the function raises, no mapped array changes.
    Source: `vmap` of JAX (Bradbury et al., 2018).
    Raises ArgumentError if the axes do not match the arguments or results, if arrays have different numbers
    of examples, if no argument is mapped, and for operations that are impossible for all examples
    simultaneously; AxisError for axes that are out of range.

    >>> import tracejit as tj
    >>> per_example = tj.vmap(tj.grad(lambda w, x: (w * x).sum() ** 2), in_axes=(None, 0))
    >>> per_example(tj.asarray([1.0, 1.0]), tj.asarray([[1.0, 2.0], [3.0, 4.0]]))
    NDArray([[ 6., 12.],
             [42., 56.]], dtype=float32)
    """

    check_callable("vmap", function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        axes = list(in_axes) if isinstance(in_axes, list | tuple) else [in_axes] * len(args)
        if len(axes) != len(args):
            raise locate(
                ArgumentError(
                    f"vmap: in_axes {in_axes!r} for {len(args)} positional arguments; pass an int, or one "
                    "for each"
                ),
                user_location(),
            )
        call = _Call(function, axes, args, kwargs, axis_size)
        return call.run(function, out_axes)

    return wrapper


class _Container:
    """A container among the arguments: `copy` contains one example of the arrays in `original`.

    keys, children: the content of the copy before the call; axes: the axes of the children.
    """

    def __init__(self, original: Any, copy: Any, keys: Sequence[Any], children: list[Any], axes: list[Any]):
        self.original, self.copy = original, copy
        self.keys, self.children, self.axes = keys, children, axes

    def check_numbers(self) -> None:
        """Let a trace guard the numbers of an object: the copy contains their values, not run-time
        numbers.
        """
        if hasattr(type(self.original), "__tree__"):
            trees.map(concrete, list(Attributes(self.original).namespace().values()))


class _Call:
    """One call of the vectorised function: its batch, and its arguments for one example."""

    def __init__(
        self,
        function: Callable[..., Any],
        axes: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        axis_size: int | None,
    ):
        self.name = getattr(function, "__name__", type(function).__name__)
        size = self._size(axes, args, kwargs, axis_size)
        self.batch = Batch(eager.current(), size)
        self.containers: dict[tuple[int, str], _Container] = {}  # by identity and axes
        self.args = [
            self._example(x, a, f"args[{i}]") for i, (x, a) in enumerate(zip(args, axes, strict=True))
        ]
        self.kwargs = {
            name: self._example(x, array_axes(x, 0), f"kwargs[{name!r}]") for name, x in kwargs.items()
        }

    # -- arguments -------------------------------------------------------------------------------------------

    def _size(self, axes: list[Any], args: Any, kwargs: Any, axis_size: int | None) -> int:
        """Return the number of examples."""
        sizes_by_path = {} if axis_size is None else {"axis_size": integer("vmap: axis_size", axis_size)}
        if axis_size is not None and sizes_by_path["axis_size"] < 0:
            raise locate(ArgumentError(f"vmap: axis_size {axis_size} is negative"), user_location())
        for position, (x, below) in enumerate(zip(args, axes, strict=True)):
            self._note_sizes(sizes_by_path, with_axes("in_axes", below, x, f"args[{position}]"))
        for name, x in kwargs.items():
            self._note_sizes(sizes_by_path, with_axes("in_axes", array_axes(x, 0), x, f"kwargs[{name!r}]"))
        sizes = set(sizes_by_path.values())
        if len(sizes) == 1:
            return sizes.pop()
        if sizes:
            each = ", ".join(f"{path}: {size}" for path, size in sizes_by_path.items())
            message = f"vmap: {self.name} is mapped over arrays with different numbers of examples: {each}"
        else:
            message = f"vmap: no argument of {self.name} is mapped; map one with in_axes, or pass axis_size"
        raise locate(ArgumentError(message), user_location())

    def _note_sizes(self, sizes_by_path: dict[str, int], leaves: Any) -> None:
        for path, leaf, axis in leaves:
            if axis is None:
                continue
            if not is_array(leaf):
                raise locate(
                    ArgumentError(
                        f"vmap: {path} is a {type(leaf).__name__}, which has no axis; map an array "
                        "(tj.asarray), or pass None among in_axes"
                    ),
                    user_location(),
                )
            sizes_by_path[path] = leaf.shape[normal_axis("in_axes", axis, leaf.ndim, path)]

    def _example(self, tree: Any, axes: Any, path: str) -> Any:
        """Return one example of an argument. Containers without mapped arrays are passed unchanged."""
        if axes is None:
            return tree
        container = parts_of(tree)
        if container is None:
            return self._array(tree, axes, path)
        key = id(tree), repr(axes)
        if key in self.containers:
            return self.containers[key].copy
        kind, keys, children = container
        below = axes_below("in_axes", axes, tree, path)
        built = [
            self._example(child, axis, path + trees.step(kind, key))
            for key, child, axis in zip(keys, children, below, strict=True)
        ]
        if all(new is old for new, old in zip(built, children, strict=True)):
            return tree
        copy = trees.rebuilt(tree, kind, keys, built)
        self.containers[key] = _Container(tree, copy, keys, built, below)
        return copy

    def _array(self, leaf: Any, axis: int, path: str) -> NDArray:
        array = dispatch.as_operand("vmap", leaf)
        assert isinstance(array, NDArray)
        axis = normal_axis("in_axes", axis, array.ndim, path)
        order = (axis, *(a for a in range(array.ndim) if a != axis))
        seen = NDArray(array._storage, array._view.permute(order))
        return self.batch.example(seen, is_numpy=array is not leaf)

    # -- the function, and its results -----------------------------------------------------------------------

    def run(self, function: Callable[..., Any], out_axes: Any) -> Any:
        """Call the function, and return its results for all examples."""
        batch, outer = self.batch, self.batch.outer

        def call() -> tuple[_Results, list[_Assignment]]:
            result = function(*self.args, **self.kwargs)
            for container in self.containers.values():
                container.check_numbers()
            leaves = list(with_axes("out_axes", out_axes, result, "result"))
            results = _Results(trees.flatten(result)[1], [self._result(*row) for row in leaves])
            return results, [
                assignment
                for container in self.containers.values()
                for assignment in self._changes(container)
            ]

        with batch.opened(outer):
            items, (results, assignments) = recorded_items(batch, call)
        with recording_operators():
            replay = Replay(batch, outer)
            replay.run(items)
            aliases.check(batch)
            value = results.tree(replay)
            contents = [assignment.tree(replay) for assignment in assignments]
            new = [
                (target, dispatch.wrap(outer, replay.result(content, axis)))
                for target, content, axis in self._written()
            ]
            calls = [
                (number, [dispatch.wrap(outer, v) for v in operands]) for number, operands in replay.calls
            ]
        outer.end_operation()
        for target, array in new:
            dispatch.write(target, array, "vmap")
        for assignment, content in zip(assignments, contents, strict=True):
            assignment.apply(content)
        for number, operands in calls:
            CALLBACKS[number](*(x.numpy() for x in operands))
        for number, _ in calls:
            CALLBACKS.pop(number, None)
        return value

    def _written(self) -> Iterator[tuple[NDArray, Value, int | None]]:
        """Yield the arrays that the function has written, each with its new content and the content's mapped
        axis.
        """
        for target, value in self.batch.written_examples():
            yield target, value, 0
        for window in self.batch.written():
            yield aliases.window_array(window), window.value, None

    def _result(self, path: str, leaf: Any, axis: int | None) -> _Result:
        """Return a leaf of the result. Arrays, and numbers with an out axis, become values of the batch."""
        if isinstance(leaf, np.ndarray | np.generic) or (
            axis is not None and (is_number(leaf) or isinstance(leaf, bool))
        ):
            leaf = dispatch.as_array("vmap", leaf)
        if not isinstance(leaf, NDArray):
            if axis is None:
                return _Result(leaf, None, None)
            raise locate(
                ArgumentError(
                    f"vmap: {path} of {self.name} is a {type(leaf).__name__}, not an array; pass None for it "
                    "among out_axes"
                ),
                user_location(),
            )
        value = self._read(leaf)
        if axis is not None:
            axis = normal_axis("out_axes", axis, leaf.ndim + 1, path)
        elif value in self.batch.mapped:
            raise locate(
                ArgumentError(
                    f"vmap: {path} of {self.name} differs between the examples, but out_axes say None: that "
                    "it is the same for all"
                ),
                user_location(),
            )
        return _Result(leaf, value, axis)

    def _read(self, array: NDArray) -> Value:
        with recording_operators():
            return self.batch.read(array._storage, array._view)

    def _changes(self, argument: _Container) -> list[_Assignment]:
        """Return the items that the function has assigned in, or removed from, a container of its
        arguments.
        """
        container = parts_of(argument.copy)
        assert container is not None
        kind, keys, children = container
        before = dict(zip(argument.keys, zip(argument.children, argument.axes, strict=True), strict=True))
        if set(keys) != set(argument.keys) and not issubclass(kind, dict) and not hasattr(kind, "__tree__"):
            raise locate(
                ArgumentError(
                    f"vmap: {self.name} changes the length of a {kind.__name__} among its arguments; return "
                    "what is new instead"
                ),
                user_location(),
            )
        removed = [
            _Assignment(argument.original, kind, key, None) for key in argument.keys if key not in set(keys)
        ]
        assigned = []
        for key, child in zip(keys, children, strict=True):
            old, axis = before.get(key, (None, 0))
            if child is not old or key not in before:
                leaves, structure = trees.flatten(child)
                rows = [self._content(leaf, axis if isinstance(axis, int) else None) for leaf in leaves]
                assigned.append(_Assignment(argument.original, kind, key, _Results(structure, rows)))
        return removed + assigned

    def _content(self, leaf: Any, axis: int | None) -> _Result:
        """Return a leaf of an assigned item. An array has the mapped axis of the replaced item."""
        if not isinstance(leaf, NDArray):
            return _Result(leaf, None, None)
        value = self._read(leaf)
        if axis is None and value in self.batch.mapped:
            axis = 0
        return _Result(leaf, value, axis if axis is None else axis % (leaf.ndim + 1))


class _Result:
    """A leaf of a result: a value of the batch with its mapped axis, or a leaf common to all examples."""

    def __init__(self, leaf: Any, value: Value | None, axis: int | None):
        self.leaf, self.value, self.axis = leaf, value, axis

    def of_all(self, replay: Replay) -> Any:
        """Return the leaf for all examples."""
        if self.value is None:
            return self.leaf
        return dispatch.wrap(replay.outer, replay.result(self.value, self.axis))


class _Results:
    """A tree of results."""

    def __init__(self, structure: trees.Structure, leaves: list[_Result]):
        self.structure, self.leaves = structure, leaves

    def tree(self, replay: Replay) -> Any:
        """Return the tree for all examples."""
        return trees.unflatten(self.structure, [leaf.of_all(replay) for leaf in self.leaves])


class _Assignment:
    """An item that the function has assigned in a container of its arguments, or removed (`results`
    is None).
    """

    def __init__(self, container: Any, kind: type, key: Any, results: _Results | None):
        self.container, self.kind, self.key, self.results = container, kind, key, results

    def tree(self, replay: Replay) -> Any:
        """Return the content for all examples."""
        return None if self.results is None else self.results.tree(replay)

    def apply(self, content: Any) -> None:
        """Apply the assignment or removal to the caller's container."""
        if self.results is None:
            self._remove()
        elif issubclass(self.kind, dict | list):
            self.container[self.key] = content
        else:
            setattr(self.container, self.key, content)

    def _remove(self) -> None:
        if issubclass(self.kind, dict):
            del self.container[self.key]
        else:
            delattr(self.container, self.key)


__all__ = ["vmap"]
