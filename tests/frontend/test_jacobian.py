"""`tj.jacobian` and `tj.hessian` against derivatives written out, and against one pull-back for each row."""

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.test_forward_mode import FUNCTIONS
from tracejit.errors import ArgumentError, DTypeError
from tracejit.frontend.arrays import trees

MODES = (None, "reverse", "forward")


def rows(function, x):
    """The Jacobian, one pull-back after the other."""
    value, pull_back = tj.vjp(function, x)
    found = []
    for place in np.ndindex(value.shape):
        cotangent = np.zeros(value.shape, value.dtype)
        cotangent[place] = 1
        found.append(pull_back(tj.asarray(cotangent))[0].numpy())
    return np.reshape(found, (*value.shape, *x.shape))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_modes_give_one_row_for_each_result(name, evaluator):
    function = FUNCTIONS[name]
    x = tj.asarray(np.random.default_rng(3).uniform(-1.5, 1.5, (3, 4)))
    expected = rows(function, x)
    for mode in ("reverse", "forward"):
        found = tj.jacobian(function, mode=mode)(x)
        assert found.dtype == x.dtype
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_trees(mode, run):
    rng = np.random.default_rng(0)
    params = {
        "w": tj.asarray(rng.normal(size=(2, 3))),
        "n": tj.arange(2),
        "b": tj.asarray(rng.normal(size=2)),
    }
    x = tj.asarray(rng.normal(size=3))

    def function(params, x, y):
        out = params["w"] @ x + params["b"]
        return {"out": out * y, "sum": (out.sum(),)}

    found = run(tj.jacobian(function, argnums=(0, 1), mode=mode), params, x, 2.0)
    w, y = params["w"].numpy(), x.numpy()
    of_params, of_x = found["out"]
    assert of_params["n"] is None
    np.testing.assert_allclose(of_params["w"], 2 * np.einsum("ij,k->ijk", np.eye(2), y), rtol=1e-12)
    np.testing.assert_allclose(of_params["b"], 2 * np.eye(2))
    np.testing.assert_allclose(of_x, 2 * w)
    of_params, of_x = found["sum"][0]
    np.testing.assert_allclose(of_params["w"], np.stack([y, y]))
    np.testing.assert_allclose(of_x, w.sum(0))


def test_few_arguments_go_forward(evaluator):
    """By default there are as few passes as possible. The function is called once."""
    x = tj.asarray([2.0])
    found, aux = tj.jacobian(lambda x: (x * tj.arange(3), "kept"), has_aux=True)(x)
    np.testing.assert_array_equal(found.numpy(), [[0], [1], [2]])
    assert aux == "kept"


def test_hessian(run):
    rng = np.random.default_rng(1)
    x, m = tj.asarray(rng.normal(size=4)), rng.normal(size=(4, 4))

    def function(x):
        return (x * (tj.asarray(m) @ x)).sum() + (x**3).sum()

    expected = m + m.T + np.diag(6 * x.numpy())
    np.testing.assert_allclose(run(tj.hessian(function), x), expected, rtol=1e-12)


def test_hessian_of_trees(evaluator):
    params = {"a": tj.asarray([1.0, 2.0], dtype="float64"), "b": tj.asarray(3.0, dtype="float64")}
    found = tj.hessian(lambda p: (p["a"] ** 2).sum() * p["b"] ** 2)(params)
    found = trees.map(lambda x: x.numpy(), found)
    np.testing.assert_allclose(found["a"]["a"], 18 * np.eye(2))
    np.testing.assert_allclose(found["a"]["b"], [12, 24])
    np.testing.assert_allclose(found["b"]["a"], [12, 24])
    np.testing.assert_allclose(found["b"]["b"], 10)


def test_hessian_vector_products_are_products_with_the_hessian(evaluator):
    x, v = (tj.asarray(np.random.default_rng(i).normal(size=5)) for i in (2, 3))

    def function(x):
        return (tj.sin(x) * tj.cumulative_sum(x)).sum()

    product = tj.jvp(tj.grad(function), (x,), (v,))[1]
    np.testing.assert_allclose(product.numpy(), tj.hessian(function)(x).numpy() @ v.numpy(), rtol=1e-9)


@pytest.mark.parametrize("mode", MODES)
def test_jacobian_in_a_batch(mode, evaluator):
    x = tj.asarray(np.random.default_rng(4).normal(size=(3, 2)))
    found = tj.vmap(tj.jacobian(lambda x: tj.sin(x) * x.sum(), mode=mode))(x)
    expected = [rows(lambda x: tj.sin(x) * x.sum(), x[i]) for i in range(3)]
    np.testing.assert_allclose(found.numpy(), np.stack(expected), rtol=1e-9)


def test_empty_results_and_arguments(evaluator):
    assert tj.jacobian(lambda x: x[:0])(tj.ones(3)).shape == (0, 3)
    assert tj.jacobian(lambda x, y: y * 2, argnums=(0, 1))(tj.ones(0), tj.ones(2))[0].shape == (2, 0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: tj.jacobian(tj.sin, mode="both"), ArgumentError, "mode"),
        (lambda x: tj.jacobian(tj.sin, argnums=1)(x), ArgumentError, "argnums 1"),
        (lambda x: tj.jacobian(tj.sin)(x.astype("complex64")), DTypeError, "complex64"),
        (lambda x: tj.jacobian(lambda n: n)(5), DTypeError, "no floating"),
        (lambda x: tj.jacobian(tj.argmax)(x), DTypeError, "int64"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message) as raised:
        call(tj.ones(3))
    assert "test_jacobian.py" in str(raised.value)
