"""A two-layer network with backpropagation written by hand, after Minerva's `mnist_mlp` (784-256-10 there).

The step is array code without automatic gradients. It runs undecorated, where its operations are recorded
lazily and launched together, and under `@tj.jit`. Three of its results need only the hidden layer's
activations, the output error and the weights: `s2` (the backpropagated error), `gw2` and `gb2`. No path in
the schedule connects them, so two workers execute them simultaneously, and the profile shows it.

    python examples/handwritten_backprop.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

import tracejit as tj

HIDDEN, RATE, EPOCHS, BATCH = 256, 0.1, 8, 128


def step(w1, b1, w2, b2, x, target):
    """One step of gradient descent, in place; return the number of errors in the batch."""
    a1 = tj.nn.sigmoid(x @ w1 + b1)
    a2 = tj.nn.softmax(a1 @ w2 + b2, axis=1)
    errors = (tj.argmax(a2, axis=1) != tj.argmax(target, axis=1)).sum()

    s3 = (a2 - target) / x.shape[0]
    s2 = (s3 @ w2.T) * a1 * (1 - a1)
    gw2 = a1.T @ s3
    gb2 = s3.sum(axis=0)
    gw1 = x.T @ s2
    gb1 = s2.sum(axis=0)

    w2 -= RATE * gw2
    b2 -= RATE * gb2
    w1 -= RATE * gw1
    b1 -= RATE * gb1
    return errors


def parameters(seed: int = 0):
    """Small random weights and zero biases."""
    rng = np.random.default_rng(seed)
    w1 = tj.asarray((rng.standard_normal((64, HIDDEN)) * 0.1).astype(np.float32))
    w2 = tj.asarray((rng.standard_normal((HIDDEN, 10)) * 0.1).astype(np.float32))
    return w1, tj.zeros(HIDDEN), w2, tj.zeros(10)


def train(run, images, targets):
    """Train for a few epochs; return the error rate of the last one."""
    params = parameters()
    for _ in range(EPOCHS):
        wrong = tj.zeros((), dtype=tj.int64)
        for start in range(0, len(images) - BATCH + 1, BATCH):
            wrong += run(*params, images[start : start + BATCH], targets[start : start + BATCH])
    return float(wrong) / len(images)


def main() -> None:
    """Train lazily and decorated, then show which tasks are independent and which overlapped."""
    digits = load_digits()
    images = tj.asarray((digits.data / 16).astype(np.float32))
    targets = tj.nn.one_hot(tj.asarray(digits.target.astype(np.int64)), 10)
    jitted = tj.jit(step)

    print(f"error rate, lazy:      {train(step, images, targets):.4f}")
    print(f"error rate, decorated: {train(jitted, images, targets):.4f}")

    params = parameters()
    batch = (images[:BATCH], targets[:BATCH])
    schedule = jitted.schedule(*params, *batch)
    print(schedule)

    names = {name: schedule.task_at(__file__, line) for name, line in lines_of("s2", "gw2", "gb2").items()}
    for first, second in (("s2", "gw2"), ("s2", "gb2"), ("gw2", "gb2")):
        path = schedule.path(names[first], names[second]) or schedule.path(names[second], names[first])
        print(
            f"{first} and {second}: {'connected' if path else 'no path between them, they may run at once'}"
        )

    with tj.profile() as profile:
        for _ in range(50):
            jitted(*params, *batch)
    tasks = {schedule.tasks[number].location: name for name, number in names.items()}
    print(overlap(profile, tasks))


def lines_of(*names: str) -> dict[str, int]:
    """The line in this file on which each of these variables is assigned."""
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    return {
        n: next(i for i, text in enumerate(lines, 1) if text.strip().startswith(f"{n} = ")) for n in names
    }


def overlap(profile, tasks) -> str:
    """Count how often two tasks (user line -> name) ran at the same time, from the engine's events."""
    events = [(event, tasks[event.location]) for event in profile.events if event.location in tasks]
    pairs: dict[str, int] = {}
    for i, (event, name) in enumerate(events):
        for other, other_name in events[i + 1 : i + 8]:
            if name != other_name and other.start < event.end and event.start < other.end:
                pair = " and ".join(sorted((name, other_name)))
                pairs[pair] = pairs.get(pair, 0) + 1
    if not pairs:
        return "no two of them ran at the same time (one worker?)"
    return "ran at the same time: " + ", ".join(
        f"{pair} {count} times" for pair, count in sorted(pairs.items())
    )


if __name__ == "__main__":
    main()
