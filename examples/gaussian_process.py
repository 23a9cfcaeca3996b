"""Gaussian process regression: maximise the marginal likelihood, and draw functions from the posterior.

The data are hourly measurements of a tide with gaps, simulated so that the truth is known. The covariance is
the sum of a smooth and a periodic kernel. Its six parameters, represented by their logarithms, follow the
gradient of the log marginal likelihood through a Cholesky factorization (Rasmussen and Williams 2006,
algorithm 2.1).

    python examples/gaussian_process.py
"""

from __future__ import annotations

import math

import numpy as np

import tracejit as tj

STEPS, RATE = 120, 0.05
START = {"size": 1.0, "length": 5.0, "wave": 1.0, "period": 12.0, "shape": 1.0, "noise": 0.3}


def covariance(logs, x, y):
    """Covariances of the function at times x (n,) and y (m,): (n, m)."""
    size, length, wave, period, shape = (
        tj.exp(logs[n]) for n in ("size", "length", "wave", "period", "shape")
    )
    distance = x[:, None] - y
    smooth = size**2 * tj.exp(-((distance / length) ** 2) / 2)
    periodic = wave**2 * tj.exp(-2 * (tj.sin(math.pi * distance / period) / shape) ** 2)
    return smooth + periodic


def factor(logs, x):
    """The Cholesky factor of the covariance of measurements at x."""
    return tj.linalg.cholesky(
        covariance(logs, x, x) + tj.exp(2 * logs["noise"]) * tj.eye(x.shape[0], dtype=x.dtype)
    )


@tj.jit
def fit_step(logs, state, x, y):
    """One step of Adam; return the negative log marginal likelihood."""

    def loss_of(logs):
        root = factor(logs, x)
        weights = tj.linalg.solve_triangular(root, y, lower=True)
        return (weights @ weights) / 2 + tj.log(tj.diagonal(root)).sum() + len(x) * math.log(2 * math.pi) / 2

    loss, gradients = tj.value_and_grad(loss_of)(logs)
    tj.optim.adam(logs, gradients, state, RATE)
    return loss


@tj.jit
def posterior(logs, x, y, new):
    """Mean (m,) and covariance (m, m) of the function at new times, given measurements."""
    root = factor(logs, x)
    across = tj.linalg.solve_triangular(root, covariance(logs, x, new), lower=True)
    mean = across.T @ tj.linalg.solve_triangular(root, y, lower=True)
    return mean, covariance(logs, new, new) - across.T @ across


def measurements(seed=0):
    """Times with gaps, measurements, and the truth as a function."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.choice(np.arange(96.0), 60, replace=False))

    def truth(t):
        return 1.5 * np.sin(2 * np.pi * t / 12.4) + 0.5 * np.sin(4 * np.pi * t / 12.4 + 1) + t / 60

    return times, truth(times) + rng.normal(scale=0.2, size=len(times)), truth


def main():
    """Fit and predict; return the fitted parameters, and the error of the mean in standard deviations."""
    times, heights, truth = measurements()
    x, y = tj.asarray(times), tj.asarray(heights)
    logs = {name: tj.asarray(math.log(value), dtype=tj.float64) for name, value in START.items()}
    state = tj.optim.adam_state(logs)
    for step in range(STEPS):
        loss = fit_step(logs, state, x, y)
        if step % 30 == 0:
            print(f"step {step:3} negative log likelihood {float(loss):.2f}")
    fitted = {name: math.exp(float(value)) for name, value in logs.items()}
    print("fitted:", ", ".join(f"{name} {value:.2f}" for name, value in fitted.items()))

    new = np.arange(96, 120, 0.5)
    mean, spread = posterior(logs, x, y, new)
    deviation = tj.sqrt(tj.diagonal(spread)).numpy()
    off = mean.numpy() - truth(new)
    errors = off / deviation
    print(f"a day ahead: off by {abs(off).max():.2f} at most, {abs(errors).max():.1f} deviations")
    jitter = 1e-9 * tj.eye(len(new), dtype=tj.float64)
    draws = tj.random.Generator(1).multivariate_normal(mean, spread + jitter, 200, tj.float64)
    inside = (abs(draws - mean) < 2 * deviation).numpy().mean()
    print(f"{inside:.1%} of functions drawn from the posterior are within two deviations")
    print("the step:", fit_step.cache_info())
    return fitted, errors, inside


if __name__ == "__main__":
    main()
