"""Random numbers in rounds of `tj.range` are those of Python's `range`, recorded and eager; the stream stands
where it would stand.
"""

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import some


def walks(rounds):
    def f(x, w, n):
        tj.random.uniform(shape=1)
        for _ in rounds(n):
            x = x * 0.5 + tj.random.normal(shape=3) - tj.random.uniform(shape=3)
        return x, tj.random.integers(0, 100, shape=2)

    return f


def draws_in_nested_loops(rounds):
    def f(x, w, n):
        for i in rounds(n):
            for _ in rounds(5):
                x = x * 0.5 + tj.random.uniform(shape=3)
            for _ in rounds(n + 1):
                w = w * 0.5 + tj.random.uniform(shape=3)
            x = x + tj.random.uniform(shape=3) * i
        return x + tj.random.uniform(shape=3), w

    return f


def draws_in_loops_in_a_row(rounds):
    def f(x, w, n):
        for _ in rounds(n):
            x = x * 0.5 + tj.random.uniform(shape=3)
        w = w + tj.random.uniform(shape=3)
        for _ in rounds(2 * n):
            w = tj.nn.dropout(w, 0.25) + tj.random.uniform(dtype=tj.float64)
        return x, w, tj.random.uniform(shape=3)

    return f


def keeps_the_last_numbers(rounds):
    def f(x, w, n):
        noise = x
        for i in rounds(n):
            noise = tj.random.exponential(shape=3)
            x[1:] = tj.random.uniform(shape=2) * i
            tj.random.normal(shape=0)
        return noise, x

    return f


def samples(rounds):
    """Metropolis: proposals are taken or not."""

    def f(x, w, n):
        taken = tj.zeros((), dtype=tj.int64)
        for _ in rounds(n):
            proposal = x + w * tj.random.normal(shape=3)
            accept = tj.log(tj.random.uniform(shape=3)) < abs(x) - abs(proposal)
            x, taken = tj.where(accept, proposal, x), taken + accept[0]
        return x, taken

    return f


def draws_from_a_generator(rounds):
    def f(x, w, n):
        rng = tj.random.Generator(5)
        for _ in rounds(n):
            x = x * 0.5 + rng.uniform(shape=3) + tj.random.poisson(3.0, shape=3)
        return x, rng.state, rng.uniform(shape=2)

    return f


def draws_for_examples(rounds):
    def f(x, w, n):
        y = tj.outer(x, w)
        for _ in rounds(n):
            y = tj.vmap(lambda row: row * 0.5 + tj.random.uniform(shape=3))(y)
        return y

    return f


def looks_between_loops(rounds):
    def f(x, w, n):
        for _ in rounds(n):
            x = x * 0.5 + tj.random.uniform(shape=3)
        if float(x[0]) > 0:
            x = x + tj.random.uniform(shape=3)
        for _ in rounds(n):
            x = x * 0.5 + tj.random.uniform(shape=3)
        return x, w + tj.random.uniform(shape=3)

    return f


def draws_in_rounds_of_a_while(rounds):
    def f(x, w, n):
        while float(abs(x[0])) < 9:
            for _ in rounds(n + 1):
                x = x + tj.random.uniform(shape=3)
        return x, w + tj.random.uniform(shape=3)

    return f


PROGRAMS = [
    walks,
    draws_in_nested_loops,
    draws_in_loops_in_a_row,
    keeps_the_last_numbers,
    samples,
    draws_from_a_generator,
    draws_for_examples,
    looks_between_loops,
    draws_in_rounds_of_a_while,
]


def calls(function, n):
    """Two calls from one seed, and where the stream stands then."""
    tj.random.seed(3)
    arrays = [tj.asarray([0.5, -1.0, 2.0]), tj.asarray([1.0, 2.0, 3.0])]
    found = [tj.tree.leaves(function(*(a.copy() for a in arrays), n)) for _ in range(2)]
    return [np.asarray(x) for x in (*found[0], *found[1])], tj.random.stream().counter


@pytest.mark.parametrize("make", some(PROGRAMS, 5))
def test_numbers_are_those_of_range(make):
    traced = tj.jit(make(tj.range), strict=True)
    for n in (9, 12, *(1, 0) * (make is walks)):
        found, counter = calls(traced, n)
        expected, known = calls(make(range), n)
        assert counter == known
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"{n} rounds")
    assert "loop [" in traced.explain()
    assert "not rolled" not in traced.explain()


@pytest.mark.parametrize("make", [walks, draws_in_loops_in_a_row, samples])
def test_other_counts_replay(make):
    traced = tj.jit(make(tj.range))
    for n in (9, 50, 4, 1000):
        calls(traced, n)
    assert traced.cache_info().traces == 1
    graphs = [traced.graph(tj.ones(3), tj.ones(3), n) for n in (9, 1000)]
    assert len(graphs[0].nodes) == len(graphs[1].nodes)


def drops_out(rounds, block):
    def f(x, n):
        for _ in rounds(n):
            for _ in rounds(4):
                x = block(x)
            x = tj.nn.dropout(x, 0.25)
        return x.sum()

    return f


@pytest.mark.parametrize("around", [lambda f: f, tj.checkpoint])
def test_gradients_have_the_numbers_of_the_forward_rounds(around):
    """The derivative of all iterations is the product of their masks, that is, the result for ones."""
    block = around(lambda x: tj.nn.dropout(x * 1, 0.125))
    traced = tj.jit(tj.value_and_grad(drops_out(tj.range, block)))
    for n in (6, 5):
        tj.random.seed(1)
        value, gradient = traced(tj.ones(4096), n)
        counter = tj.random.stream().counter
        assert 0 < (gradient != 0).sum() < 4000
        np.testing.assert_allclose(float(gradient.sum()), float(value), rtol=1e-6)
        tj.random.seed(1)
        np.testing.assert_allclose(float(drops_out(range, block)(tj.ones(4096), n)), float(value), rtol=1e-6)
        assert tj.random.stream().counter == counter
    assert traced.cache_info().traces == 2
    assert "not rolled" not in traced.explain()


def test_an_error_in_the_body_gives_numbers_back():
    @tj.jit
    def f(x, n):
        for _ in tj.range(n):
            x = x + tj.random.normal(shape=3)
        return x.reshape(2, 2)

    counter = tj.random.stream().counter
    with pytest.raises(tj.errors.ShapeError):
        f(tj.ones(3), 9)
    assert tj.random.stream().counter == counter
