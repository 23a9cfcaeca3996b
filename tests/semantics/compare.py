"""Running one program twice, on NumPy and traced, and comparing everything it leaves behind.

A `Program` is made for an array module: ``make(xp, array)`` gives its step function, the arguments of call
number i, and the state (arrays and containers of any kind) that is compared after every call. The same Python
text runs on NumPy, eagerly, and under `tj.jit`, where the first call is recorded and the others replay.

    def make(xp, array):
        w = array([1.0, 2.0])
        def step(x):
            w[0] += xp.sum(x)
        return Program(step, lambda i: (array([i, 1.0]),), [w])

    f = check(make, traces=1)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

import tracejit as tj


@dataclasses.dataclass
class Program:
    """A step function, the arguments of call i (the last one may be `Keywords`), and the state."""

    step: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]
    state: Any = None


class Keywords(dict):
    """Keyword arguments at the end of `Program.arguments`."""


def single(data: Any) -> np.ndarray:
    """NumPy data as float32 (integers stay)."""
    array = np.array(data)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def ours(data: Any) -> tj.NDArray:
    """The same data as an NDArray."""
    return tj.asarray(single(data))


def call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call `function`, with keyword arguments if there are some."""
    if arguments and isinstance(arguments[-1], Keywords):
        return function(*arguments[:-1], **arguments[-1])
    return function(*arguments)


def check(
    make: Callable[[Any, Any], Program], *, calls: int = 4, traces: int | None = 1, piecewise: bool = False
) -> Any:
    """Run the program on NumPy, eagerly and traced, compare after every call; return the traced function."""
    for jitted in (False, True):
        plain, traced = make(np, single), make(tj, ours)
        function = tj.jit(traced.step) if jitted else traced.step
        for i in range(calls):
            arguments, same_arguments = plain.arguments(i), traced.arguments(i)
            expected = call(plain.step, arguments)
            result = call(function, same_arguments)
            where = f"call {i}, {'traced' if jitted else 'eager'}"
            compare(result, expected, f"{where}: result")
            compare(same_arguments, arguments, f"{where}: arguments")
            compare(traced.state, plain.state, f"{where}: state")
    text = function.explain()
    assert ("runs piecewise" in text) == piecewise, text
    if traces is not None:
        assert function.cache_info().traces == traces, text
        if not piecewise:
            assert function.cache_info().replays == calls - traces, text
    return function


def compare(given: Any, expected: Any, path: str = "value") -> None:
    """Fail unless both are the same tree with (nearly) the same numbers of the same dtypes."""
    if isinstance(given, tj.NDArray):
        assert isinstance(expected, np.ndarray | np.generic), f"{path}: an array, expected {expected!r}"
        expected = np.asarray(expected)
        assert given.shape == expected.shape, f"{path}: shape {given.shape}, expected {expected.shape}"
        assert given.dtype == expected.dtype, f"{path}: dtype {given.dtype}, expected {expected.dtype}"
        compare(given.numpy(), expected, path)
    elif isinstance(given, np.ndarray):
        assert isinstance(expected, np.ndarray | np.generic), f"{path}: an array, expected {expected!r}"
        if given.dtype.kind in "biu":
            np.testing.assert_array_equal(given, expected, err_msg=path)
        else:
            np.testing.assert_allclose(given, expected, rtol=2e-5, atol=1e-6, err_msg=path)
    elif isinstance(given, dict):
        assert list(given) == list(expected), f"{path}: keys {list(given)}, expected {list(expected)}"
        for key, value in given.items():
            compare(value, expected[key], f"{path}[{key!r}]")
    elif isinstance(given, list | tuple):
        assert type(given) is type(expected), f"{path}: {type(given)}, expected {type(expected)}"
        assert len(given) == len(expected), f"{path}: {given!r}, expected {expected!r}"
        for i, (a, b) in enumerate(zip(given, expected, strict=True)):
            compare(a, b, f"{path}[{i}]")
    elif isinstance(given, int | float | str | bool | type(None)):
        assert type(given) in (type(expected), float), f"{path}: {given!r}, expected {expected!r}"
        assert given == expected or np.isclose(given, expected, rtol=2e-5), (
            f"{path}: {given!r}, not {expected!r}"
        )
    elif hasattr(given, "__dict__"):
        compare(vars(given), vars(expected), path)
    else:
        assert given == expected, f"{path}: {given!r}, expected {expected!r}"
