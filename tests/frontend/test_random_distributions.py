"""Distributions of `tj.random` against SciPy's, with fixed seeds; their gradients, modes and errors."""

import numpy as np
import pytest
import scipy.stats

import tracejit as tj
from tracejit.frontend.arrays.random.normal_distribution import normal_cdf, normal_quantile

random = tj.random
COUNT = 10_000
CONTINUOUS = {
    "exponential": (lambda **o: random.exponential(2.0, COUNT, **o), scipy.stats.expon(scale=2)),
    "laplace": (lambda **o: random.laplace(1.0, 2.0, COUNT, **o), scipy.stats.laplace(1, 2)),
    "logistic": (lambda **o: random.logistic(1.0, 2.0, COUNT, **o), scipy.stats.logistic(1, 2)),
    "gumbel": (lambda **o: random.gumbel(1.0, 2.0, COUNT, **o), scipy.stats.gumbel_r(1, 2)),
    "cauchy": (lambda **o: random.cauchy(1.0, 2.0, COUNT, **o), scipy.stats.cauchy(1, 2)),
    "lognormal": (
        lambda **o: random.lognormal(0.1, 0.5, COUNT, **o),
        scipy.stats.lognorm(0.5, scale=np.exp(0.1)),
    ),
    "weibull": (lambda **o: random.weibull(1.5, COUNT, **o), scipy.stats.weibull_min(1.5)),
    "pareto": (lambda **o: random.pareto(3.0, COUNT, **o), scipy.stats.lomax(3)),
    "rayleigh": (lambda **o: random.rayleigh(2.0, COUNT, **o), scipy.stats.rayleigh(scale=2)),
    "triangular": (
        lambda **o: random.triangular(-1.0, 0.0, 3.0, COUNT, **o),
        scipy.stats.triang(0.25, -1, 4),
    ),
    "power": (lambda **o: random.power(2.5, COUNT, **o), scipy.stats.powerlaw(2.5)),
    "wald": (lambda **o: random.wald(3.0, 2.0, COUNT, **o), scipy.stats.invgauss(1.5, scale=2)),
    "standard_normal": (lambda **o: random.standard_normal(COUNT, **o), scipy.stats.norm()),
    "random": (lambda **o: random.random(COUNT, **o), scipy.stats.uniform()),
    "truncated": (lambda **o: random.truncated_normal(-1, 2.5, COUNT, **o), scipy.stats.truncnorm(-1, 2.5)),
    "tail": (
        lambda **o: random.truncated_normal(tj.asarray(4.0), np.inf, COUNT, **o),
        scipy.stats.truncnorm(4, np.inf),
    ),
    "gamma small": (lambda **o: random.gamma(0.1, 2.0, COUNT, **o), scipy.stats.gamma(0.1, scale=2)),
    "gamma one": (lambda **o: random.gamma(1.0, shape=COUNT, **o), scipy.stats.gamma(1)),
    "gamma large": (lambda **o: random.gamma(300.0, shape=COUNT, **o), scipy.stats.gamma(300)),
    "gammas": (lambda **o: random.gamma(tj.full(COUNT, 0.7), **o), scipy.stats.gamma(0.7)),
    "beta": (lambda **o: random.beta(0.5, 2.0, COUNT, **o), scipy.stats.beta(0.5, 2)),
    "chisquare": (lambda **o: random.chisquare(3, COUNT, **o), scipy.stats.chi2(3)),
    "standard_t": (lambda **o: random.standard_t(3, COUNT, **o), scipy.stats.t(3)),
    "f": (lambda **o: random.f(3, 7, COUNT, **o), scipy.stats.f(3, 7)),
    "dirichlet": (
        lambda **o: random.dirichlet(tj.asarray([0.5, 1.0, 2.0]), COUNT, **o)[:, 1],
        scipy.stats.beta(1, 2.5),
    ),
}
DISCRETE = {
    "poisson small": (lambda: random.poisson(3.5, COUNT), scipy.stats.poisson(3.5)),
    "poisson edge": (lambda: random.poisson(9.99, COUNT), scipy.stats.poisson(9.99)),
    "poisson ten": (lambda: random.poisson(10.0, COUNT), scipy.stats.poisson(10)),
    "poisson large": (lambda: random.poisson(1e7, COUNT), scipy.stats.poisson(1e7)),
    "poissons": (lambda: random.poisson(tj.asarray([[2.0], [25.0]]), (2, COUNT))[1], scipy.stats.poisson(25)),
    "binomial small": (lambda: random.binomial(12, 0.3, COUNT), scipy.stats.binom(12, 0.3)),
    "binomial flipped": (lambda: random.binomial(200, 0.99, COUNT), scipy.stats.binom(200, 0.99)),
    "binomial large": (lambda: random.binomial(60, 0.4, COUNT), scipy.stats.binom(60, 0.4)),
    "binomials": (
        lambda: random.binomial(tj.asarray([[3], [100]]), tj.asarray([[0.5], [0.7]]), (2, COUNT))[1],
        scipy.stats.binom(100, 0.7),
    ),
    "geometric": (lambda: random.geometric(0.2, COUNT), scipy.stats.geom(0.2)),
    "negative_binomial": (lambda: random.negative_binomial(3, 0.3, COUNT), scipy.stats.nbinom(3, 0.3)),
    "multinomial": (
        lambda: random.multinomial(20, tj.asarray([0.2, 0.3, 0.4, 0.1]), COUNT)[:, 2],
        scipy.stats.binom(20, 0.4),
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_continuous(name, dtype, evaluator):
    draw, distribution = CONTINUOUS[name]
    random.seed(21)
    values = draw(dtype=dtype).numpy()
    assert values.dtype == dtype
    assert np.isfinite(values).all()
    assert scipy.stats.kstest(values.astype(float), distribution.cdf).pvalue > 1e-3


def expected_counts(distribution, edges, count):
    """How many of `count` numbers are expected up to each edge, and beyond the last one."""
    return np.diff([0, *distribution.cdf(edges), 1]) * count


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name, evaluator):
    draw, distribution = DISCRETE[name]
    random.seed(22)
    values = draw().numpy()
    assert values.dtype == np.int64
    low, high = (int(distribution.ppf(p)) for p in (0.005, 0.995))
    edges = np.unique(np.linspace(low, high, 25).astype(int))
    counts = np.diff([0, *(np.searchsorted(np.sort(values), edges, side="right")), len(values)])
    expected = expected_counts(distribution, edges, len(values))
    keep = expected > 3
    assert (
        scipy.stats.chisquare(counts[keep], expected[keep] * counts[keep].sum() / expected[keep].sum()).pvalue
        > 1e-3
    )
    assert abs(values.mean() - distribution.mean()) < 5 * distribution.std() / np.sqrt(len(values))


def test_normal_quantiles(evaluator):
    p = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 999), 10.0 ** -np.arange(1, 300, 7)])
    np.testing.assert_allclose(
        normal_quantile(tj.asarray(p)).numpy(), scipy.stats.norm.ppf(p), rtol=2e-14, atol=1e-15
    )
    x = np.linspace(-6, 6, 50)
    np.testing.assert_allclose(normal_cdf(tj.asarray(x)).numpy(), scipy.stats.norm.cdf(x), atol=3e-16)
    assert normal_cdf(-6.0) == pytest.approx(scipy.stats.norm.cdf(-6), rel=1e-14)


def test_edges_of_counts(evaluator):
    assert random.binomial(0, 0.5, 5).tolist() == [0] * 5
    assert random.binomial(tj.asarray([7, 70, 7, 70]), tj.asarray([0.0, 0.0, 1.0, 1.0])).tolist() == [
        0,
        0,
        7,
        70,
    ]
    assert random.poisson(0.0, 3).tolist() == [0, 0, 0]
    assert random.geometric(1.0, 3).tolist() == [1, 1, 1]
    assert (random.geometric(1e-30, 3, tj.int32) == 2**31 - 1).all()
    assert random.multinomial(6, tj.asarray([0.0, 1.0, 0.0]), 2).tolist() == [[0, 6, 0]] * 2
    assert random.bernoulli(tj.asarray([0.0, 1.0])).tolist() == [False, True]
    assert set(random.rademacher(50, "int8").tolist()) == {-1, 1}


def test_vectors(evaluator):
    random.seed(23)
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 1.0]])
    for method in ("cholesky", "eigh", "svd"):
        x = random.multivariate_normal(mean, cov, COUNT, method=method).numpy()
        np.testing.assert_allclose(x.mean(axis=0), mean, atol=0.06)
        np.testing.assert_allclose(np.cov(x.T), cov, atol=0.1)
    flat = random.multivariate_normal(mean, np.ones((2, 2)), 50, tj.float64, "eigh").numpy()
    np.testing.assert_allclose(flat[:, 0] - 1, flat[:, 1] + 2, atol=1e-6)
    assert random.multivariate_normal(tj.zeros((4, 1, 2)), tj.eye(2), (4, 3)).shape == (4, 3, 2)


def test_classes_and_choices(evaluator):
    random.seed(24)
    chances = np.array([0.1, 0.2, 0.7])
    logits = tj.log(tj.asarray(chances))
    for drawn in (
        random.categorical(logits, shape=COUNT),
        random.categorical(logits.reshape((3, 1)), axis=0, shape=COUNT),
        random.choice(3, COUNT, p=chances),
    ):
        assert scipy.stats.chisquare(np.bincount(drawn.numpy()), chances * COUNT).pvalue > 1e-3
    assert random.categorical(tj.zeros((4, 5))).shape == (4,)
    x = tj.arange(12).reshape((3, 4))
    assert random.choice(x, (2, 5), axis=1).shape == (3, 2, 5)
    assert sorted(random.choice(x, 3, replace=False)[:, 0].tolist()) == [0, 4, 8]
    firsts = [random.choice(3, 2, replace=False, p=chances).numpy() for _ in range(300)]
    assert all(len(set(pair.tolist())) == 2 for pair in firsts)
    assert abs(np.mean([pair[0] == 2 for pair in firsts]) - 0.7) < 0.1


def test_orders(evaluator):
    random.seed(25)
    orders = np.array([random.permutation(4).numpy() for _ in range(600)])
    assert scipy.stats.chisquare(np.unique(orders, axis=0, return_counts=True)[1]).pvalue > 1e-3
    assert len(np.unique(orders, axis=0)) == 24
    x = tj.arange(12).reshape((3, 4))
    moved = random.permutation(x, axis=1).numpy()
    assert sorted(map(tuple, moved.T)) == sorted(map(tuple, x.numpy().T))
    part = x[:, 1:]
    random.shuffle(part)
    assert sorted(x[:, 1].tolist()) == [1, 5, 9]
    assert x[:, 0].tolist() == [0, 4, 8]
    assert random.permutation(0).shape == (0,)


# -- modes ---------------------------------------------------------------------------------------------------


def of_each_kind():
    return (
        *(random.gumbel(shape=6), random.gamma(0.5, shape=6), random.poisson(tj.asarray([1.0, 20.0]))),
        *(random.categorical(tj.zeros(5), shape=6), random.permutation(6)),
        *(random.choice(2, 6, p=np.array([0.5, 0.5])), random.multivariate_normal(tj.zeros(2), tj.eye(2))),
    )


def test_eager_traced_and_replayed_numbers_are_the_same():
    step = tj.jit(of_each_kind)
    random.seed(31)
    eager = [[x.numpy() for x in of_each_kind()] for _ in range(3)]
    random.seed(31)
    traced = [[x.numpy() for x in step()] for _ in range(3)]
    assert step.cache_info().traces == 1
    assert step.cache_info().replays == 2
    for one, two in zip(eager, traced, strict=True):
        for x, y in zip(one, two, strict=True):
            np.testing.assert_array_equal(x, y)
    assert not np.array_equal(eager[0][0], eager[1][0])


def test_parameters_are_run_time_inputs():
    step = tj.jit(lambda scale: random.exponential(scale, 4))
    random.seed(32)
    one = step(1.0).numpy()
    random.seed(32)
    np.testing.assert_allclose(step(3.0).numpy(), 3 * one, rtol=1e-6)
    assert step.cache_info().traces == 1
    with pytest.raises(
        tj.errors.ArgumentError, match=r"random\.exponential: expected a scale(?s:.*)test_random"
    ):
        step(-1.0)


def test_shuffle_replays():
    step = tj.jit(random.shuffle)
    x = tj.arange(50)
    random.seed(33)
    for _ in range(3):
        step(x)
    y = tj.arange(50)
    random.seed(33)
    for _ in range(3):
        random.shuffle(y)
    assert x.tolist() == y.tolist() != list(range(50))


# -- gradients -----------------------------------------------------------------------------------------------

PARAMETERS = {
    "uniform": (1.0, 2.0), "normal": (1.0, 2.0), "lognormal": (0.1, 0.2), "exponential": (2.0,),
    "laplace": (1.0, 2.0), "logistic": (1.0, 2.0), "gumbel": (1.0, 2.0), "cauchy": (1.0, 2.0),
    "weibull": (2.0,), "pareto": (3.0,), "rayleigh": (2.0,), "truncated_normal": (-1.0, 1.5),
    "triangular": (-1.0, 0.5, 2.0), "power": (2.0,),
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_gradients_with_respect_to_parameters(name, evaluator):
    def total(parameters):
        random.seed(41)
        values = [parameters[i] for i in range(len(PARAMETERS[name]))]
        return getattr(random, name)(*values, shape=9, dtype=tj.float64).sum()

    at = np.array(PARAMETERS[name])
    found = tj.grad(total)(tj.asarray(at)).numpy()
    for i, step in enumerate(np.eye(len(at)) * 1e-6):
        ends = [float(total(tj.asarray(at + sign * step))) for sign in (1, -1)]
        np.testing.assert_allclose(found[i], (ends[0] - ends[1]) / 2e-6, rtol=1e-5)


def test_gradients_of_vectors_and_of_scales(evaluator):
    def total(cov):
        random.seed(42)
        return (random.multivariate_normal(tj.zeros(2, dtype=tj.float64), cov, 5, tj.float64) ** 2).sum()

    cov = np.array([[2.0, 0.3], [0.3, 1.0]])
    found = tj.grad(total)(tj.asarray(cov)).numpy()
    step = np.array([[1e-6, 0], [0, 0]])
    ends = [float(total(tj.asarray(cov + sign * step))) for sign in (1, -1)]
    np.testing.assert_allclose(found[0, 0], (ends[0] - ends[1]) / 2e-6, rtol=1e-5)
    random.seed(43)
    scale_gradient = tj.grad(lambda s: random.gamma(2.0, s, 5).sum())(tj.asarray(2.0))
    random.seed(43)
    np.testing.assert_allclose(float(scale_gradient), float(random.gamma(2.0, 1.0, 5).sum()), rtol=1e-5)


def test_what_decides_about_rejection_has_no_gradient():
    def total(a):
        return random.gamma(a, 2.0, 5).sum()

    with pytest.raises(tj.errors.ArgumentError, match=r"random\.gamma: the result has no(?s:.*)test_random"):
        tj.grad(total)(tj.asarray(2.0))
    assert float(tj.grad(lambda a: total(tj.stop_gradient(a)) * a)(tj.asarray(2.0))) > 0


# -- errors --------------------------------------------------------------------------------------------------

WRONG = {
    "a negative scale": (lambda: random.exponential(-1), "expected a scale of at least 0, got -1"),
    "in an array": (lambda: random.gumbel(0, tj.asarray([1.0, -2.0])), "got -2"),
    "in a NumPy array": (lambda: random.laplace(0, np.array([-2.0])), "got -2"),
    "nan": (lambda: random.poisson(np.nan), "expected lam of at least 0, got nan"),
    "a probability": (lambda: random.bernoulli(1.5), "expected p between 0 and 1, got 1.5"),
    "a sum": (lambda: random.choice(3, 2, p=tj.asarray([0.1, 0.1, 0.1])), "expected a sum of p of 1"),
    "pvals": (lambda: random.multinomial(3, tj.asarray([1.5, -0.5])), "expected pvals of at least 0"),
    "a parameter of zero": (lambda: random.gamma(0.0), "expected a above 0"),
    "alpha": (lambda: random.dirichlet(2.0), "an array of parameters"),
    "bounds": (lambda: random.truncated_normal(1, 1), "expected upper - lower above 0"),
    "too many": (lambda: random.choice(3, 5, replace=False), "cannot choose 5 of 3"),
    "none": (lambda: random.choice(0, 5), "cannot choose from 0"),
    "a length": (lambda: random.choice(3, p=tj.asarray([0.5, 0.5])), r"p has shape \(2,\) for 3"),
    "what is shuffled": (lambda: random.shuffle(np.zeros(3)), "expected an NDArray"),
    "a mode": (lambda: random.triangular(0.0, 2.0, 1.0), "expected right - mode of at least 0"),
    "a method": (
        lambda: random.multivariate_normal(tj.zeros(1), tj.eye(1), method="x"),
        "unknown method 'x'",
    ),
    "a covariance": (lambda: random.multivariate_normal(tj.zeros(2), tj.eye(3)), "expected a mean"),
    "a dtype": (lambda: random.gumbel(dtype=tj.int32), "a floating one"),
    "an integer dtype": (lambda: random.poisson(dtype=tj.float32), "must be an integer"),
    "a shape as a parameter": (lambda: random.normal((2, 3)), "pass a shape as"),
    "a shape that is too small": (lambda: random.normal(tj.zeros((2, 3)), shape=3), "do not fit into shape"),
}


@pytest.mark.parametrize("what", WRONG)
def test_errors_name_the_line(what):
    call, says = WRONG[what]
    with pytest.raises(tj.TracejitError, match=rf"random\..*{says}(?s:.*)test_random_distributions"):
        call()


def test_numpys_name_for_the_shape():
    assert random.gamma(2.0, size=(2, 3)).shape == random.Generator(1).normal(size=(2, 3)).shape == (2, 3)
    with pytest.raises(
        tj.errors.ArgumentError, match=r"random\.normal: give shape or size(?s:.*)test_random"
    ):
        random.normal(shape=2, size=2)
    with pytest.raises(TypeError, match="sizes"):
        random.normal(sizes=2)


def test_shapes_come_from_parameters():
    random.seed(5)
    x = random.normal(tj.zeros(1000), 1.0)
    assert x.shape == (1000,)
    assert x.numpy().std() > 0.5
    assert random.uniform(tj.zeros((2, 1)), tj.ones(3)).shape == (2, 3)
