"""Training on a GPU: the same losses and weights as on the CPU, and the same random numbers."""

import numpy as np
import pytest

import tracejit as tj

OPTIMIZERS = {
    "sgd": (lambda w: None, lambda w, g, state: tj.optim.sgd(w, g, 0.1)),
    "momentum": (tj.optim.zeros_like, lambda w, g, state: tj.optim.momentum(w, g, state, 0.1)),
    "adam": (tj.optim.adam_state, lambda w, g, state: tj.optim.adam(w, g, state, 0.01)),
}
"""By name: what makes the state, and an update."""


def digits(rng, count=24):
    """Images of six classes, with some noise."""
    y = rng.integers(0, 6, count)
    x = np.eye(20, dtype=np.float32)[y] + rng.normal(size=(count, 20)).astype(np.float32) / 4
    return x, y


def trained(device, start, update):
    """The losses of some steps, and the weights after them."""
    rng = np.random.default_rng(0)
    x, y = (tj.asarray(a, device=device) for a in digits(rng))
    with tj.device(device):
        weights = {
            "w1": tj.asarray(rng.normal(size=(20, 16)).astype(np.float32) / 5),
            "b1": tj.zeros(16),
            "w2": tj.asarray(rng.normal(size=(16, 6)).astype(np.float32) / 4),
            "b2": tj.zeros(6),
        }
        state = start(weights)

    @tj.jit
    def step(weights, state, x, y):
        def loss_of(weights):
            hidden = tj.tanh(x @ weights["w1"] + weights["b1"])
            return tj.nn.cross_entropy(hidden @ weights["w2"] + weights["b2"], y)

        loss, gradients = tj.value_and_grad(loss_of)(weights)
        update(weights, gradients, state)
        return loss

    losses = [float(step(weights, state, x, y)) for _ in range(6)]
    assert step.cache_info().traces <= 2
    return losses, {name: w.numpy() for name, w in weights.items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_network_learns_as_on_the_cpu(name, gpu):
    losses, weights = trained(gpu, *OPTIMIZERS[name])
    wanted, those = trained(tj.cpu(0), *OPTIMIZERS[name])
    np.testing.assert_allclose(losses, wanted, rtol=2e-5)
    assert losses[-1] < losses[0]
    for key, w in weights.items():
        np.testing.assert_allclose(w, those[key], rtol=2e-4, atol=2e-5)


def test_random_numbers_are_those_of_the_cpu(gpu):
    def drawn(device):
        tj.random.seed(5)
        with tj.device(device):

            @tj.jit
            def step():
                return (
                    tj.random.normal(shape=(3, 5)),
                    tj.random.uniform(shape=4),
                    tj.random.integers(0, 10, shape=6),
                )

            found = [a.numpy() for _ in range(2) for a in step()]
            return [*found, tj.random.normal(shape=7).numpy()]

    for there, here in zip(drawn(gpu), drawn(tj.cpu(0)), strict=True):
        assert there.dtype == here.dtype
        np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-7)
