"""Random numbers: distributions, reproducibility across modes, and Philox's published test vectors."""

import numpy as np
import pytest
import scipy.stats

import tracejit as tj
from tracejit.frontend.arrays.random import Stream

DRAWS = {
    "uniform": lambda: tj.random.uniform(shape=(40, 50)),
    "uniform64": lambda: tj.random.uniform(-1, 3, (40, 50), tj.float64),
    "normal": lambda: tj.random.normal(shape=(40, 50)),
    "normal64": lambda: tj.random.normal(1.0, 2.0, (40, 50), tj.float64),
    "integers": lambda: tj.random.integers(-3, 12, (40, 50)),
    "bernoulli": lambda: tj.random.bernoulli(0.3, (40, 50)),
}
DISTRIBUTIONS = {
    "uniform": scipy.stats.uniform(),
    "uniform64": scipy.stats.uniform(-1, 4),
    "normal": scipy.stats.norm(),
    "normal64": scipy.stats.norm(1, 2),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_continuous_distributions(name, evaluator):
    tj.random.seed(11)
    values = np.concatenate([DRAWS[name]().numpy().ravel() for _ in range(10)])
    assert np.isfinite(values).all()
    assert scipy.stats.kstest(values, DISTRIBUTIONS[name].cdf).pvalue > 1e-3


def test_integers_are_even_and_within_bounds(evaluator):
    tj.random.seed(12)
    values = np.concatenate([DRAWS["integers"]().numpy().ravel() for _ in range(10)])
    counts = np.bincount(values + 3, minlength=15)
    assert len(counts) == 15
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    bounds = [(0, 1, "int64"), (-(2**63), 2**63, "int64"), (0, 2**64, "uint64"), (250, 256, "uint8")]
    for low, high, dtype in (*bounds, (5, 5 + 2**40, "int64"), (0, 2**63 + 3, "uint64")):
        drawn = tj.random.integers(low, high, 1000, dtype).numpy()
        assert drawn.dtype == dtype
        assert all(low <= int(v) < high for v in drawn)
        assert high - low < 10 or len(set(drawn.tolist())) > 990


def test_wide_integers_are_the_upper_half_of_an_exact_product(evaluator):
    for width in (3, 2**32 - 1, 2**32, 2**40 + 17, 2**63 + 12345):
        tj.random.seed(5)
        drawn = tj.random.integers(0, width, 50, tj.uint64).tolist()
        tj.random.seed(5)
        bits = tj.random.integers(0, 2**64, 50, tj.uint64).tolist()
        assert drawn == [(b * width) >> 64 for b in bits]


def test_bounds_of_integers_may_be_arrays(evaluator):
    low, high = tj.asarray([[0], [-5]]), np.array([1, 7, 2**40])
    drawn = tj.random.integers(low, high, (2, 3)).numpy()
    assert ((drawn >= low.numpy()) & (drawn < high)).all()
    assert tj.random.integers(tj.asarray([1, 1])).tolist() == [0, 0]
    for width in (3, 2**40 + 17, 2**63 - 1):
        tj.random.seed(6)
        one = tj.random.integers(-5, width - 5, 50).tolist()
        tj.random.seed(6)
        assert tj.random.integers(-5, tj.asarray(width - 5), 50).tolist() == one
    tj.random.seed(6)
    values = tj.random.integers(tj.full(2000, 3), 8, dtype=tj.uint8).numpy()
    assert values.dtype == np.uint8
    assert scipy.stats.chisquare(np.bincount(values)[3:]).pvalue > 1e-3


def test_bernoulli(evaluator):
    tj.random.seed(13)
    values = tj.random.bernoulli(0.3, 20000).numpy()
    assert values.dtype == bool
    assert abs(values.mean() - 0.3) < 0.02
    per_row = tj.random.bernoulli(tj.asarray([[0.0], [1.0]]), (2, 50)).numpy()
    assert not per_row[0].any()
    assert per_row[1].all()


def test_bits_are_philox():
    """Random123's known answer for philox4x32-10: counter 0, key 0."""
    tj.random.seed(0)
    bits = tj.random.integers(0, 2**64, 1, tj.uint64).item()
    assert bits == 0x6627E8D5 | 0xE169C58D << 32


@pytest.mark.parametrize("name", DRAWS)
def test_every_mode_gives_the_same_numbers(name, run, request):
    tj.random.seed(42)
    first, second = DRAWS[name]().numpy(), DRAWS[name]().numpy()
    assert not np.array_equal(first, second)
    tj.random.seed(42)
    draw = tj.jit(DRAWS[name]) if run.mode == "jit" else DRAWS[name]
    assert np.array_equal(draw().numpy(), first)
    assert np.array_equal(draw().numpy(), second)
    third = DRAWS[name]().numpy()
    tj.random.seed(42)
    for _ in range(2):
        DRAWS[name]()  # draws that nobody looks at advance the stream too
    assert np.array_equal(DRAWS[name]().numpy(), third)


def test_two_draws_in_one_trace_differ():
    tj.random.seed(1)
    draw = tj.jit(lambda: (tj.random.uniform(shape=5), tj.random.uniform(shape=5)))
    a, b = draw()
    assert not np.array_equal(a.numpy(), b.numpy())


def test_unseeded_streams_differ():
    assert Stream().key != Stream().key
    tj.random.seed(None)
    first = tj.random.uniform(shape=4).numpy()
    tj.random.seed(None)
    assert not np.array_equal(first, tj.random.uniform(shape=4).numpy())


def test_parameters_may_be_arrays(evaluator):
    tj.random.seed(2)
    x = tj.random.normal(tj.asarray([[0.0], [100.0]]), tj.asarray([1.0, 2.0, 3.0]), (2, 3))
    assert x.dtype == np.float32
    assert (x.numpy()[1] > 50).all()
    assert tj.random.uniform(shape=()).shape == ()
    assert tj.random.uniform(shape=(0, 3)).shape == (0, 3)


def test_errors():
    for call in (
        lambda: tj.random.uniform(shape=2, dtype=tj.int32),
        lambda: tj.random.integers(3, 3),
        lambda: tj.random.integers(0, 257, dtype=tj.uint8),
        lambda: tj.random.integers(0, 2, dtype=tj.float32),
        lambda: tj.random.integers(0, tj.asarray([2, 0])),
        lambda: tj.random.integers(tj.asarray([-1]), 2, dtype=tj.uint8),
        lambda: tj.random.integers(0, np.array([300]), dtype=tj.uint8),
        lambda: tj.random.normal(scale=-1),
        lambda: tj.random.normal(0, -0.5, 3),
        lambda: tj.random.seed("x"),
    ):
        with pytest.raises(tj.errors.ArgumentError, match=r"random\.(?s:.*)test_random"):
            call()
