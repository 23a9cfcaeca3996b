"""Initial weights: their moments, bounds and dtypes; the inverse of erf against SciPy."""

import numpy as np
import pytest
import scipy.special
import scipy.stats

import tracejit as tj

init = tj.nn.init
SHAPE = (40, 30, 3, 5)  # fans of 450 and 600
VARIANCES = {
    "xavier_uniform": (init.xavier_uniform, 2 / 1050),
    "xavier_normal": (lambda *a, **o: init.xavier_normal(*a, gain=2.0, **o), 4 * 2 / 1050),
    "kaiming_uniform": (init.kaiming_uniform, 2 / 450),
    "kaiming_normal": (lambda *a, **o: init.kaiming_normal(*a, mode="fan_out", **o), 2 / 600),
    "leaky": (lambda *a, **o: init.he_normal(*a, nonlinearity="leaky_relu", slope=1.0, **o), 1 / 450),
    "lecun_uniform": (init.lecun_uniform, 1 / 450),
    "lecun_normal": (init.lecun_normal, 1 / 450),
    "uniform": (lambda *a, **o: init.uniform(*a, low=-3.0, high=3.0, **o), 3.0),
    "normal": (lambda *a, **o: init.normal(*a, std=3.0, **o), 9.0),
    "truncated_normal": (init.truncated_normal, scipy.stats.truncnorm(-2, 2).var()),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", VARIANCES)
def test_variances(name, dtype, evaluator):
    tj.random.seed(1)
    function, variance = VARIANCES[name]
    weight = function(SHAPE, dtype=dtype).numpy()
    assert weight.shape == SHAPE
    assert weight.dtype == dtype
    assert abs(weight.mean()) < 5 * (variance / weight.size) ** 0.5
    np.testing.assert_allclose(weight.var(), variance, rtol=0.03)
    if name.endswith("uniform"):
        assert np.abs(weight).max() <= np.sqrt(3 * variance) * (1 + 1e-6)


def test_default_dtype_and_constants(evaluator):
    assert init.kaiming_uniform(SHAPE).dtype == np.float32
    np.testing.assert_array_equal(init.constant((2, 3), 0.5).numpy(), np.full((2, 3), np.float32(0.5)))
    assert init.constant(2, 3).dtype == np.float32
    assert (init.ones(3).numpy() == 1).all()
    assert (init.zeros(3, tj.float64).numpy() == 0).all()


def test_truncated_normal_is_distributed_so(run):
    tj.random.seed(2)
    draw = tj.jit(init.truncated_normal) if run.mode == "jit" else init.truncated_normal
    found = draw(20000, 1.0, 2.0, -0.5, 3.0).numpy()
    assert scipy.stats.kstest(found, scipy.stats.truncnorm(-0.5, 3, 1, 2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (6, 2, 3), (5, 2, 2, 2)])
def test_orthogonal(shape, evaluator):
    weight = init.orthogonal(shape, gain=2.0, dtype=tj.float64).numpy()
    assert weight.shape == shape
    flat = weight.reshape(shape[0], -1)
    small = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-12)


def test_the_seed_decides(evaluator):
    found = []
    for _ in range(2):
        tj.random.seed(3)
        found.append([init.xavier_normal((3, 4)).numpy(), init.orthogonal((3, 4)).numpy()])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: init.xavier_normal(3), tj.errors.ShapeError, r"expected \(outputs, inputs"),
        (lambda: init.kaiming_normal((3, 3), mode="fan"), tj.errors.ArgumentError, "mode is"),
        (lambda: init.gain("gelu"), tj.errors.ArgumentError, "nonlinearity is"),
        (lambda: init.truncated_normal(3, low=2.0), tj.errors.ArgumentError, "low < high"),
    ],
)
def test_errors_name_the_line(call, error, message):
    with pytest.raises(error, match=rf"{message}(?s:.*)test_nn_init.py"):
        call()
