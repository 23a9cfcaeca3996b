"""`jvp` and `linearize` against central differences in float64, eagerly, recorded and replayed."""

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import some
from tracejit.errors import ArgumentError, DTypeError, ShapeError

INDEX = np.array([[2, 0], [2, 1]])


def assigned(x):
    y = x * 1.0
    y[1:] *= y[:-1]
    y[:, 0] = tj.sin(x[:, 1])
    return y


FUNCTIONS = {
    "sin": tj.sin,
    "pow": lambda x: (x * x + 1) ** x,
    "sum": lambda x: tj.sum(x * x, 0),
    "prod": lambda x: tj.prod(x, 1),
    "max": lambda x: tj.max(x, 1),
    "std": lambda x: tj.std(x, 0),
    "cumulative_sum": lambda x: tj.cumulative_sum(x * x, axis=1),
    "sort": lambda x: tj.sort(x, axis=1) ** 2,
    "reshape": lambda x: tj.reshape(x.T, (2, 6)) ** 2,
    "roll": lambda x: tj.roll(x, 2, 1) * x,
    "broadcast": lambda x: tj.broadcast_to(x, (2, 3, 4)) ** 2,
    "concat": lambda x: tj.concat([x, x * x], axis=1),
    "take": lambda x: tj.take(x, INDEX, axis=1) ** 2,
    "where": lambda x: tj.where(x > 0, x * x, tj.sin(x)),
    "matmul": lambda x: x @ x.T @ x,
    "assigned": assigned,
    "softmax": tj.nn.softmax,
    "cast": lambda x: tj.imag(x.astype("complex128") ** 2 * 1j) * x,
    "constant": lambda x: tj.ones(3, dtype="float64"),
    "checkpoint": tj.checkpoint(lambda x: tj.sin(tj.exp(x))),
    "gradient": tj.grad(lambda x: (tj.sin(x) ** 3).sum()),
    "conv": lambda x: tj.nn.conv2d(x[None, None], x[None, None, :2, :2], padding=1),
    "pool": lambda x: tj.nn.max_pool2d(x[None, None], 2) ** 2,
}


def slope(function, x, v, step=1e-6):
    """The derivative at x in the direction v, by central differences."""
    ends = [function(tj.asarray(x + sign * step * v)).numpy() for sign in (1, -1)]
    return (ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("name", some(FUNCTIONS, 12))
def test_the_derivative_in_a_direction(name):
    function, rng = FUNCTIONS[name], np.random.default_rng(3)
    x, v = rng.uniform(-1.5, 1.5, (2, 3, 4))
    expected = slope(function, x, v)

    def both(x, v):
        return tj.jvp(function, (x,), (v,))

    traced, arguments = tj.jit(both), (tj.asarray(x), tj.asarray(v))
    for call in (both, traced, traced):
        value, tangent = call(*arguments)
        np.testing.assert_allclose(value.numpy(), function(arguments[0]).numpy(), rtol=1e-12)
        np.testing.assert_allclose(tangent.numpy(), expected, rtol=1e-6, atol=1e-8)
    assert traced.cache_info().replays == 1
    _, push_forward = tj.linearize(function, arguments[0])
    for scale in (1.0, -2.0):
        got = push_forward(arguments[1] * scale).numpy()
        np.testing.assert_allclose(got, tangent.numpy() * scale, rtol=1e-12, atol=1e-14)


def test_nothing_of_the_reverse_mode_is_left():
    traced = tj.jit(lambda x, v: tj.jvp(lambda x: tj.sin(x) * x, (x,), (v,)))
    kernel = next(n for n in traced.schedule(tj.spec(4), tj.spec(4)).graph.nodes if n.op.name == "fused")
    assert len(kernel.attrs["body"].nodes) == 7


def test_trees_and_arguments_that_do_not_move():
    def layer(params, x, count):
        y = x @ params["w"] + params["b"]
        return {"y": y, "n": tj.asarray(3) * count}

    rng = np.random.default_rng(0)
    params = {"w": tj.asarray(rng.normal(size=(3, 2))), "b": tj.asarray(rng.normal(size=2))}
    x, count = tj.asarray(rng.normal(size=(4, 3))), tj.asarray(2)
    value, tangent = tj.jvp(
        layer, (params, x, count), ({"w": None, "b": tj.ones(2, dtype="float64")}, x, None)
    )
    assert int(value["n"]) == 6
    assert tangent["n"] is None
    np.testing.assert_allclose(tangent["y"].numpy(), x.numpy() @ params["w"].numpy() + 1)
    value, tangent, aux = tj.jvp(lambda x: (x * x, "aux"), (x,), (None,), has_aux=True)
    assert aux == "aux"
    assert not tangent.numpy().any()


def test_of_one_another():
    x, v, w = (tj.asarray(a) for a in np.random.default_rng(0).normal(size=(3, 5)))
    numbers = x.numpy(), v.numpy(), w.numpy()
    second = -np.sin(numbers[0]) * numbers[1] * numbers[2]
    _, got = tj.jvp(lambda x: tj.jvp(tj.sin, (x,), (v,))[1], (x,), (w,))
    np.testing.assert_allclose(got.numpy(), second, rtol=1e-12)
    got = tj.grad(lambda x: tj.jvp(tj.sin, (x,), (v,))[1].sum())(x)
    np.testing.assert_allclose(got.numpy(), -np.sin(numbers[0]) * numbers[1], rtol=1e-12)
    _, got = tj.jvp(tj.grad(lambda x: tj.sin(x).sum()), (x,), (v,))
    np.testing.assert_allclose(got.numpy(), -np.sin(numbers[0]) * numbers[1], rtol=1e-12)


def test_complex_numbers():
    z = tj.asarray(np.array([1 + 2j, -0.5 + 1j]))
    v = tj.asarray(np.array([1j, 2 - 1j]))
    _, tangent = tj.jvp(lambda z: z * z * tj.exp(z), (z,), (v,))
    at = z.numpy()
    np.testing.assert_allclose(tangent.numpy(), (2 * at + at * at) * np.exp(at) * v.numpy(), rtol=1e-12)
    _, tangent = tj.jvp(tj.imag, (z,), (v,))
    np.testing.assert_allclose(tangent.numpy(), v.numpy().imag)


def test_linearize_at_a_point_that_is_written_later():
    x = tj.asarray([1.0, 2.0])
    _, push_forward = tj.linearize(lambda x: x * x, x)
    x += 10
    assert push_forward(tj.ones(2)).tolist() == [2, 4]


def test_a_long_function_eagerly():
    def waves(x):
        for _ in range(60):
            x = x + tj.sin(x) * 0.1
        return x

    x, v = np.random.default_rng(0).uniform(-1, 1, (2, 3))
    _, tangent = tj.jvp(waves, (tj.asarray(x),), (tj.asarray(v),))
    np.testing.assert_allclose(tangent.numpy(), slope(waves, x, v), rtol=1e-5)


ONE = tj.ones(3)
BAD = [
    (lambda: tj.jvp(tj.sin, (ONE,), (tj.ones(2),)), ShapeError, r"float32\[2\] for an argument float32\[3\]"),
    (lambda: tj.jvp(tj.sin, (ONE,), (tj.arange(3),)), ShapeError, r"int64\[3\] for an argument float32\[3\]"),
    (lambda: tj.jvp(tj.sin, (ONE,), (ONE, ONE)), ArgumentError, "another structure"),
    (lambda: tj.jvp(tj.sin, (ONE,), (1.0,)), ArgumentError, "arrays or None, got float"),
    (lambda: tj.jvp(tj.sin, (tj.arange(3),), (None,)), DTypeError, "no floating array"),
    (lambda: tj.linearize(tj.sin, ONE)[1](tj.ones(2)), ShapeError, "linearize: a tangent"),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_errors_name_the_line(call, kind, message):
    with pytest.raises(kind, match=message) as raised:
        call()
    assert f"test_forward_mode.py:{call.__code__.co_firstlineno}" in str(raised.value)
