"""A Kalman filter: track many aircraft simultaneously, with measurements that are noisy and often missing.

The state is position and velocity in the plane; positions are measured (Kalman 1960). One traced step
predicts the state estimates of all aircraft, in place, and corrects those with a measurement, which a mask
selects. The noise parameters of the filter are fitted first, by the gradient of the log likelihood of a
subset of the data.

    python examples/kalman.py
"""

from __future__ import annotations

import math

import numpy as np

import tracejit as tj

TRACKS, TIMES, MISSING = 50, 120, 0.3
PUSH, BLUR = 0.3, 2.0  # the true standard deviations of accelerations and of measurements

MOTION = np.eye(4) + np.eye(4, k=2)  # x, y, speed in x, speed in y
SEEN = np.eye(2, 4)
SHAKEN = np.block([[np.eye(2) / 4, np.eye(2) / 2], [np.eye(2) / 2, np.eye(2)]])


def simulated(seed=0):
    """Positions (TIMES, TRACKS, 2), their measurements, and the mask of available ones (TIMES, TRACKS)."""
    rng = np.random.default_rng(seed)
    state = np.concatenate([rng.normal(0, 20, (TRACKS, 2)), rng.normal(0, 2, (TRACKS, 2))], axis=1)
    states = []
    for _ in range(TIMES):
        push = PUSH * rng.normal(size=(TRACKS, 2))
        state = state @ MOTION.T + np.concatenate([push / 2, push], axis=1)
        states.append(state)
    positions = np.array(states)[:, :, :2]
    measured = positions + BLUR * rng.normal(size=positions.shape)
    there = rng.random((TIMES, TRACKS)) > MISSING
    return positions, np.where(there[:, :, None], measured, np.nan), there


def start():
    """The initial estimate: means (TRACKS, 4) and covariances (TRACKS, 4, 4)."""
    return {
        "mean": tj.zeros((TRACKS, 4), dtype=tj.float64),
        "spread": tj.asarray(np.tile(np.diag([400.0, 400, 4, 4]), (TRACKS, 1, 1))),
    }


def filtered(belief, noise, measured, there):
    """The estimate after one tick and measurements (TRACKS, 2), and their log likelihood."""
    push, blur = tj.exp(noise["push"]), tj.exp(noise["blur"])
    mean = belief["mean"] @ MOTION.T
    spread = MOTION @ belief["spread"] @ MOTION.T + push**2 * SHAKEN
    surprise = tj.where(there[:, None], measured - mean @ SEEN.T, 0.0)
    expected = SEEN @ spread @ SEEN.T + blur**2 * np.eye(2)
    gain = tj.linalg.solve(expected, SEEN @ spread).mT * there[:, None, None]
    _, size = tj.linalg.slogdet(expected)
    distance = (surprise * tj.linalg.solve(expected, surprise[..., None])[..., 0]).sum(axis=1)
    likelihood = -tj.where(there, distance + size + 2 * math.log(2 * math.pi), 0.0).sum() / 2
    after = {
        "mean": mean + (gain @ surprise[..., None])[..., 0],
        "spread": spread - gain @ SEEN @ spread,
    }
    return after, likelihood


@tj.jit
def track(belief, noise, measured, there):
    """Update the estimate in place; return the positions, (TRACKS, 2)."""
    after, _ = filtered(belief, noise, measured, there)
    for name, value in after.items():
        belief[name][...] = value
    return after["mean"][:, :2]


@tj.jit
def fit_step(noise, state, measured, there):
    """One step of Adam on the noise parameters; return the log likelihood of several ticks per
    measurement."""

    def loss_of(noise):
        belief, total = start(), 0.0
        for now, known in zip(measured, there, strict=True):
            belief, likelihood = filtered(belief, noise, now, known)
            total += likelihood
        return -total / there.sum()

    loss, gradients = tj.value_and_grad(loss_of)(noise)
    tj.optim.adam(noise, gradients, state, 0.1)
    return -loss


def main():
    """Fit and track; return the fitted standard deviations, and the errors of measurements and of the
    filter."""
    positions, measured, there = simulated()
    noise = {name: tj.zeros((), dtype=tj.float64) for name in ("push", "blur")}
    state = tj.optim.adam_state(noise)
    first = (tj.asarray(measured[:12]), tj.asarray(there[:12]))
    for step in range(60):
        likelihood = fit_step(noise, state, *first)
        if step % 20 == 0:
            print(f"step {step:2} log likelihood of a measurement {float(likelihood):.3f}")
    fitted = {name: math.exp(float(value)) for name, value in noise.items()}
    print(", ".join(f"{name} {value:.2f}" for name, value in fitted.items()), f"(true: {PUSH}, {BLUR})")

    belief = start()
    found = [track(belief, noise, *now) for now in zip(measured, there, strict=True)]
    errors = np.array([x.numpy() for x in found])[20:] - positions[20:]
    measuring = (measured - positions)[20:][there[20:]]
    by_filter, by_measurement = (math.sqrt((x**2).mean()) for x in (errors, measuring))
    print(f"error of measurements {by_measurement:.2f}, of the filter {by_filter:.2f}, gaps included")
    print("the step:", track.cache_info())
    return fitted, by_measurement, by_filter


if __name__ == "__main__":
    main()
