"""Generators of one's own: as arguments, attributes and names, eagerly, traced and replayed."""

import copy
import pickle
import threading

import numpy as np
import pytest

import tracejit as tj

Generator = tj.random.Generator


def draw(rng):
    return rng.normal(shape=5), rng.integers(0, 100, 3), rng.permutation(4)


def numbers(function, *args, calls=4):
    return [[x.numpy() for x in function(*args)] for _ in range(calls)]


def same(one, two):
    for a, b in zip(one, two, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_a_generator_gives_the_numbers_of_its_seed():
    tj.random.seed(8)
    expected = numbers(lambda: draw(tj.random))
    same(expected, numbers(draw, Generator(8)))
    assert not np.array_equal(expected[0][0], expected[1][0])
    assert Generator(8).state.tolist() == [8, 0]
    assert Generator().state[0] != Generator().state[0]


def test_every_distribution_is_a_method():
    for name in tj.random.DISTRIBUTIONS:
        assert callable(getattr(Generator, name))
    rng = Generator(1)
    tj.random.seed(1)
    assert rng.gamma(2.0, shape=3).tolist() == tj.random.gamma(2.0, shape=3).tolist()
    x = tj.arange(20)
    rng.shuffle(x)
    assert x.tolist() != list(range(20))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_as_an_argument(workers):
    step = tj.jit(draw)
    before = tj.engine.workers.count
    tj.engine.set_workers(workers)
    try:
        expected = numbers(draw, Generator(3))
        same(expected, numbers(step, Generator(3)))
        same(expected, numbers(step, Generator(3)))
        assert step.cache_info().traces == 1
        assert step.cache_info().replays == 7
    finally:
        tj.engine.set_workers(before)


def test_in_containers_and_by_name():
    held = {"rngs": [Generator(1), Generator(2)]}
    step = tj.jit(lambda held: tuple(rng.uniform(shape=3) for rng in held["rngs"]))
    found = numbers(step, held)
    one, two = Generator(1), Generator(2)
    same(found, numbers(lambda: (one.uniform(shape=3), two.uniform(shape=3))))
    rng, other = Generator(4), Generator(4)
    same(numbers(tj.jit(lambda: draw(rng))), numbers(draw, other))


class Noisy(tj.nn.Module):
    def __init__(self, seed):
        self.rng = Generator(seed)
        self.layer = tj.nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x) + self.rng.normal(0.0, 0.1, x.shape)


def test_as_an_attribute_of_a_module():
    tj.random.seed(0)
    net = Noisy(6)
    start = {name: x.copy() for name, x in net.state_dict().items()}
    assert "rng.state" in start
    assert "rng.state" not in net.parameters()
    x = tj.ones((2, 3))

    def body(net, x):
        loss, grads = tj.value_and_grad(lambda net: (net(x) ** 2).mean())(net)
        tj.optim.sgd(net, grads, 0.1)
        return loss

    step = tj.jit(body)
    losses = [float(step(net, x)) for _ in range(4)]
    assert step.cache_info().traces == 1
    assert net.rng.state.tolist() == [6, 24]
    net.load_state_dict(start)
    assert [float(step(net, x)) for _ in range(4)] == losses
    net.load_state_dict(start)
    np.testing.assert_allclose([float(body(net, x)) for _ in range(4)], losses, rtol=1e-6)


def test_states_are_saved_and_restored():
    rng = Generator(5)
    step = tj.jit(draw)
    numbers(step, rng, calls=2)
    saved = rng.state.copy()
    expected = numbers(step, rng)
    rng.state[...] = saved
    same(expected, numbers(step, rng))
    rng.state = saved.copy()
    same(expected, numbers(draw, rng))
    for again in (copy.deepcopy, lambda rng: pickle.loads(pickle.dumps(rng))):
        rng.state[...] = saved
        twin = again(rng)
        same(expected, numbers(step, rng))
        same(expected, numbers(step, twin))
    assert tj.tree.leaves(rng) == [rng.state]
    assert "state=" in repr(rng)


def test_spawned_generators():
    def body(rng):
        one, two = rng.spawn(2)
        return one.uniform(shape=3), two.uniform(shape=3), rng.uniform(shape=3)

    expected = numbers(body, Generator(7))
    same(expected, numbers(tj.jit(body), Generator(7)))
    assert len({x.tobytes() for call in expected for x in call}) == 12
    assert Generator(7).spawn(0) == []


def test_threads_that_share_a_generator_get_other_numbers():
    rng = Generator(9)
    found = []

    def work():
        for _ in range(20):
            found.append(rng.integers(0, 2**62, 10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drawn = np.concatenate([x.numpy() for x in found])
    assert len(set(drawn.tolist())) == 800
    assert rng.state.tolist() == [9, 800]


def test_checkpoints_draw_the_same_numbers_again():
    def total(x, rng):
        return tj.checkpoint(lambda x: tj.tanh(x * rng.normal(shape=4)).sum())(x)

    def gradient(x, rng):
        return tj.grad(lambda x: total(x, rng))(x)

    x = tj.asarray([1.0, 2.0, 3.0, 4.0])
    noise = Generator(1).normal(shape=4).numpy()
    for found in (gradient(x, Generator(1)), tj.jit(gradient)(x, Generator(1))):
        np.testing.assert_allclose(found.numpy(), noise / np.cosh(x.numpy() * noise) ** 2, rtol=1e-5)


def test_piecewise_and_failing_bodies():
    def body(rng, limit):
        y = rng.normal(shape=3)
        if float(y[0]) > limit:
            raise ValueError("too large")
        return (y + rng.uniform(shape=3),)

    step, one, two = tj.jit(body), Generator(5), Generator(5)
    same(numbers(body, one, 1e9), numbers(step, two, 1e9))
    assert one.state.tolist() == two.state.tolist() == [5, 24]

    @tj.jit
    def failing(rng):
        rng.normal(shape=3)
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        failing(two)
    assert two.state.tolist() == [5, 24]


def test_dropout_with_a_generator():
    layer = tj.nn.Dropout(0.5, generator=Generator(2))
    expected = tj.nn.dropout(tj.ones(30), 0.5, generator=Generator(2)).tolist()
    assert layer(tj.ones(30)).tolist() == expected
    assert layer.state_dict()["generator.state"].tolist() == [2, 30]
    assert layer(tj.ones(30)).tolist() != expected


def test_errors():
    rng = Generator(1)
    for call, says in (
        (lambda: Generator("x"), "expected an integer, got str 'x'"),
        (lambda: Generator(1, device="tpu"), "there is no device tpu"),
        (lambda: rng.spawn(-1), "expected a count of at least 0"),
        (lambda: rng.normal(device="cpu"), "draws on its own device"),
        (lambda: rng.normal(scale=-1), "expected a scale of at least 0"),
    ):
        with pytest.raises(tj.TracejitError, match=rf"random\..*{says}(?s:.*)test_random_generator"):
            call()
    for state, says in (
        ([1, 2], "state must be an array, got list"),
        (tj.zeros(2), "state must be uint64, not float32"),
        (tj.zeros(3, dtype=tj.uint64), r"state must have shape \(2,\)"),
    ):
        rng.state = state
        with pytest.raises(tj.TracejitError, match=rf"{says}(?s:.*)test_random_generator"):
            rng.uniform()


def test_small_draws_are_computed_at_once_and_large_ones_recorded():
    small, large = Generator(3), Generator(3)
    first = small.uniform(shape=4)
    assert first._storage.pending is None
    many = large.uniform(shape=100_000)
    assert many._storage.pending is not None
    assert many[:4].tolist() == first.tolist()
    x = tj.ones(2)
    twin = Generator(3)
    with_gradient = tj.grad(lambda x: (x * twin.uniform(shape=2)).sum())(x)
    assert with_gradient.tolist() == first[:2].tolist()
    assert twin.uniform(shape=2).tolist() == first[2:].tolist()
