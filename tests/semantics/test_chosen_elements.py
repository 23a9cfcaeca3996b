"""``max(x, y)`` and ``min(x, y)`` of array elements: eager code, in which Python chooses, is the oracle."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tracejit as tj


def knapsack(best, weights, values):
    for item in range(6):
        for room in range(30, 2, -1):
            best[room] = max(best[room], best[room - 3] + values[item])
    return best


def longest_common(table, same):
    for i in range(1, 12):
        for j in range(1, 12):
            table[i, j] = max(table[i - 1, j], max(table[i, j - 1], table[i - 1, j - 1] + same[i, j]))
    return table


def clipped(x, y):
    for i in range(1, 20):
        x[i] = min(max(x[i] - y[i], 0.0), 1)
    return x


def of_three(x, y):
    return max(x[0], y[1], x[2]) * 2 + min(y[0], x[1], y[2]) - (max(x[3], y[3]) > min(x[4], y[4]))


def expect_equal(body, *arrays, looks=0):
    """A recorded call and a replay have the bits of eager code, after so many looks."""
    traced = tj.jit(body)
    expected = body(*map(tj.asarray, arrays))
    for _ in range(2):
        result = traced(*map(tj.asarray, arrays))
        np.testing.assert_array_equal(result.numpy(), expected.numpy(), strict=True)
    if looks is not None:
        assert traced.cache_info().replays == 1, traced.explain()
        assert sum(len(path.segments) for path in traced._entries[0].paths) == looks, traced.explain()


def array(*shape, dtype="float64"):
    x = np.random.default_rng(sum(shape)).normal(size=shape) * 3
    return np.abs(x).astype(dtype) if np.dtype(dtype).kind == "u" else x.astype(dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint8"])
def test_dynamic_programming_does_not_look(dtype):
    expect_equal(knapsack, np.zeros(31, dtype), array(6, dtype=dtype), array(6, dtype=dtype))
    expect_equal(longest_common, np.zeros((12, 12), dtype), array(12, 12, dtype=dtype))


def test_python_numbers_in_stores():
    expect_equal(clipped, array(20), array(21))
    expect_equal(clipped, array(20, dtype="float32"), array(21, dtype="float32"))


def test_three_operands_in_an_expression():
    expect_equal(of_three, array(5), array(6))


def test_nan_zeros_and_infinities_are_chosen_as_by_python():
    special = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, 1.0])

    def body(out, x, y):
        for i in range(6):
            for j in range(6):
                out[0, i, j] = max(x[i], y[j])
                out[1, i, j] = min(x[i], y[j])
        return out

    expect_equal(body, np.zeros((2, 6, 6)), special, special)
    result = tj.jit(body)(tj.zeros((2, 6, 6), "float64"), tj.asarray(special), tj.asarray(special))
    expected = body(np.zeros((2, 6, 6)), special, special)
    np.testing.assert_array_equal(np.signbit(result.numpy()), np.signbit(expected))


# -- results that are kept: Python returns an operand, through which later writes can be seen ----------------


def in_a_variable(x, y):
    kept = max(x[0], y[0])
    x[0] = 100.0
    y[0] = 100.0
    return kept + x[1]


def in_a_list(x, y):
    kept = [max(x[0], y[0])]
    x[0] = y[0] = 100.0
    return kept[0] + x[1]


def by_append(x, y):
    kept = []
    kept.append(max(x[0], y[0]))
    x[0] = y[0] = 100.0
    return kept[0] + x[1]


def in_a_dict(x, y):
    kept = {}
    kept["a"] = max(x[0], y[0])
    x[0] = y[0] = 100.0
    return kept["a"] + x[1]


def from_a_function(x, y):
    def larger(a, b):
        return max(a, b)

    kept = larger(x[0], y[0])
    x[0] = y[0] = 100.0
    return kept + x[1]


def by_a_conditional(x, y):
    kept = max(x[0], y[0]) if len(x.shape) == 1 else x[1]
    x[0] = y[0] = 100.0
    return kept + x[1]


def within_another(x, y):
    kept = max(x[0], max(y[0], x[2]))
    x[0] = y[0] = x[2] = 100.0
    return kept + x[1]


def with_a_key(x, y):
    kept = max(x[0], y[0], key=lambda v: -v)
    x[0] = y[0] = 100.0
    return kept + x[1]


def of_a_view(x, y):
    kept = max(x[0:1], y[0:1])
    x[0] = y[0] = 100.0
    return kept + x[1]


def by_walrus(x, y):
    z = (kept := max(x[0], y[0])) * 2
    x[0] = y[0] = 100.0
    return kept + z


def attribute(x, y):
    kept = max(x[0], y[0]).reshape(1)
    x[0] = y[0] = 100.0
    return kept + x[1]


def other_dtypes(x, y):
    x[1] = max(x[0], y[0].astype("float32"))
    return x + (max(x[2], 0.3) + y[3].astype("float32"))


@pytest.mark.parametrize(
    "body",
    [
        *(in_a_variable, in_a_list, by_append, in_a_dict, from_a_function, by_a_conditional, within_another),
        *(with_a_key, of_a_view, by_walrus, attribute, other_dtypes),
    ],
)
def test_results_that_may_be_kept_are_looked_at(body):
    for seed in range(3):
        x, y = np.random.default_rng(seed).normal(size=(2, 5))
        expect_equal(body, x, y, looks=None)


@tj.jit
def larger_and_smaller(x, y):
    return max(x[0], y[0]) * 3 + min(x[1], y[1]) * 5


def test_gradients_flow_to_the_chosen_operand():
    gradient = tj.jit(tj.grad(larger_and_smaller, (0, 1)))
    for one, other, expected in ([1, 2], [4, 1], ([0, 0], [3, 5])), ([5, 0], [4, 1], ([3, 5], [0, 0])):
        found = gradient(tj.asarray(one, "float32"), tj.asarray(other, "float32"))
        assert tuple(g.tolist() for g in found) == expected


def random_expression(choose, depth):
    if depth == 0:
        return f"{choose.choice('xy')}[{choose.randrange(5)}]"
    parts = [random_expression(choose, depth - 1) for _ in range(3)]
    return choose.choice(
        ["max({}, {})", "min({}, {})", "max({}, {}, {})", "({} + {})", "({} * {})", "min({}, {} - {})"]
    ).format(*parts)


@pytest.mark.parametrize("seed", range(8))
def test_random_expressions(seed):
    choose = random.Random(seed)
    lines = [f"    x[{k}] = {random_expression(choose, 3)}" for k in range(5)]
    lines += [f"    y[{k}] = {random_expression(choose, 2)} - 1" for k in range(5)]
    names = {}
    exec("\n".join(["def body(x, y):", *lines, "    return x + y"]), names)
    expect_equal(names["body"], array(5), array(5, dtype="float64")[::-1].copy())
