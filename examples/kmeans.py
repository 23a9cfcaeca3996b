"""k-means with masks: data sets of different sizes, with missing coordinates, share one recording.

Several data sets are clustered in turn. Each is padded to the same number of points, and some coordinates of
each point may be missing; masks mark the valid values (compare Chi, Chi and Baraniuk, k-POD, 2016). The
initial centres are chosen by k-means++ (Arthur and Vassilvitskii 2007).

    python examples/kmeans.py
"""

from __future__ import annotations

import numpy as np

import tracejit as tj

POINTS, GROUPS, SIZES = 1000, 6, (1000, 700, 850)
MISSING, RESTARTS, TOLERANCE = 0.1, 3, 1e-4


def data(count, rng):
    """`count` points around GROUPS centres, padded to POINTS, and masks of the valid values."""
    centres = rng.uniform(-10, 10, (GROUPS, 3))
    group = rng.integers(0, GROUPS, count)
    points = np.zeros((POINTS, 3), np.float32)
    points[:count] = centres[group] + rng.normal(0, 0.7, (count, 3))
    there = rng.random((POINTS, 3)) > MISSING
    there[count:] = False
    points[~there] = np.nan
    return points, there, group


def distances(points, there, centres):
    """Mean squared differences over the known coordinates, (POINTS, centres)."""
    difference = tj.where(there[:, None], points[:, None] - centres, 0.0)
    return (difference**2).sum(axis=2) / tj.maximum(there.sum(axis=1, dtype=tj.float32), 1)[:, None]


@tj.jit
def first_centres(points, there, rng):
    """GROUPS of the points, each drawn with a probability that grows with its distance from the
    centres chosen before."""
    whole = there.all(axis=1)
    weight = whole.astype(tj.float32)
    centres = []
    for _ in range(GROUPS):
        chosen = rng.categorical(tj.log(weight))
        centres.append(points[chosen])
        nearest = distances(points, there, tj.stack(centres)).min(axis=1)
        weight = tj.where(whole, nearest, 0.0)
    return tj.stack(centres)


@tj.jit
def improve(points, there, centres):
    """Move each centre, in place, to the mean of the known coordinates of its points; return the largest
    movement, the groups of all points, and the mean distance.
    """
    apart = distances(points, there, centres)
    group = tj.argmin(apart, axis=1)
    known = tj.where(there, points, 0.0)
    sums = tj.scatter_add(tj.zeros(centres.shape), group, known)
    counts = tj.scatter_add(tj.zeros(centres.shape), group, there.astype(tj.float32))
    means = tj.where(counts > 0, sums / tj.maximum(counts, 1.0), centres)  # a group may be empty
    moved = tj.linalg.norm(means - centres, axis=1).max()
    centres[...] = means
    counted = there.any(axis=1)
    spread = (apart.min(axis=1) * counted).sum() / counted.sum()
    return moved, group, spread


def cluster(points, there, rng):
    """The best of several restarts: groups of the points, mean distance, and the total number of steps."""
    best = None
    steps = 0
    for _ in range(RESTARTS):
        centres = first_centres(points, there, rng)
        moved = np.inf
        while moved > TOLERANCE:
            moved, group, spread = improve(points, there, centres)
            steps += 1
        if best is None or spread < best[1]:
            best = group, spread
    return best[0].numpy(), float(best[1]), steps


def agreement(found, truth):
    """The share of points in the most common true group of their group."""
    table = np.zeros((GROUPS, GROUPS), int)
    np.add.at(table, (found, truth), 1)
    return table.max(axis=1).sum() / len(truth)


def main():
    """Cluster; return the agreement of the groups with the truth."""
    generator = np.random.default_rng(1)
    rng = tj.random.Generator(2)
    shares = []
    for count in SIZES:
        points, there, truth = data(count, generator)
        found, spread, steps = cluster(tj.asarray(points), tj.asarray(there), rng)
        shares.append(agreement(found[:count], truth))
        print(f"{count} points: {steps} steps, mean distance {spread:.3f}, agreement {shares[-1]:.1%}")
    print("a step:", improve.cache_info())
    return shares


if __name__ == "__main__":
    main()
