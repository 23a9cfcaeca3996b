"""Waves in a basin with a shoal: a simulation, and an inverse problem solved by its gradient.

The model is the linear shallow water equations on a staggered grid with walls (Arakawa's C grid). The
simulation updates three arrays in place through slices; it conserves water and energy. The inverse problem:
compute the position where a stone fell from the records of four gauges, by the gradient of the error through
all time steps.

    python examples/waves.py
"""

from __future__ import annotations

import numpy as np

import tracejit as tj

CELLS, GRAVITY, TICK = 48, 9.81, 0.05
GAUGES = np.array([[6, 20], [20, 42], [30, 8], [40, 36]])
RECORDED, FITTED = 40, 40  # ticks that gauges record, steps of the search


def basin():
    """Depths at the faces between cells: a shoal in one corner."""
    x, y = np.meshgrid(np.arange(CELLS), np.arange(CELLS), indexing="ij")
    depth = 2.0 - 1.2 * np.exp(-((x - 34) ** 2 + (y - 14) ** 2) / 60)
    return (depth[1:] + depth[:-1]) / 2, (depth[:, 1:] + depth[:, :-1]) / 2


DEPTH_X, DEPTH_Y = (tj.asarray(depth, dtype=tj.float64) for depth in basin())


@tj.jit
def tick(height, speed_x, speed_y):
    """Advance the water in place: heights of cells, velocities at the faces between them. Walls are faces
    with zero velocity.
    """
    speed_x -= GRAVITY * TICK * (height[1:] - height[:-1])
    speed_y -= GRAVITY * TICK * (height[:, 1:] - height[:, :-1])
    flow_x, flow_y = TICK * DEPTH_X * speed_x, TICK * DEPTH_Y * speed_y
    height[:-1] -= flow_x
    height[1:] += flow_x
    height[:, :-1] -= flow_y
    height[:, 1:] += flow_y


def energy(height, speed_x, speed_y):
    """The energy of the waves, up to the density of water."""
    moving = (DEPTH_X * speed_x**2).sum() + (DEPTH_Y * speed_y**2).sum()
    return float(moving + GRAVITY * (height**2).sum()) / 2


def dropped(place, size=0.5):
    """The water after a stone has fallen at `place` (2,): heights, and zero velocities."""
    x = tj.arange(CELLS, dtype=tj.float64)
    apart = (x[:, None] - place[0]) ** 2 + (x - place[1]) ** 2
    still = tj.zeros((CELLS - 1, CELLS), dtype=tj.float64)
    return size * tj.exp(-apart / 18), still, still.T.copy()


def recorded(place):
    """The records of the gauges after a stone has fallen: (RECORDED, gauges)."""
    water = dropped(place)
    seen = []
    for _ in range(RECORDED):
        tick(*water)
        seen.append(water[0][GAUGES[:, 0], GAUGES[:, 1]])
    return tj.stack(seen)


@tj.jit
def search_step(place, state, records, step):
    """Move the position, in place, to reduce the error of the records; return the error."""
    error, gradient = tj.value_and_grad(lambda place: ((recorded(place) - records) ** 2).sum())(place)
    tj.optim.adam(place, gradient, state, tj.optim.cosine(step, FITTED, 0.7))
    return error


def shown(height):
    """Heights as text."""
    shades = np.array(list(" .:-=+*#%@"))
    rows = np.clip((height.numpy()[::3, ::1] * 12 + 5), 0, 9).astype(int)
    return "\n".join("".join(row) for row in shades[rows])


def main():
    """Simulate and search; return drifts of water and energy, the true position and the computed one."""
    true = np.array([18.0, 29.0])
    water = dropped(tj.asarray(true))
    before = float(water[0].sum()), energy(*water)
    energies = []
    for i in range(600):
        tick(*water)
        if i % 60 == 59:
            energies.append(energy(*water))
    print(shown(water[0]))
    lost = float(water[0].sum()) / before[0] - 1
    drift = max(abs(e / before[1] - 1) for e in energies)
    print(f"600 ticks: {lost:+.1e} of the water gained, the energy is off by at most {drift:.1%}")

    records = recorded(tj.asarray(true))
    place = tj.asarray([24.0, 24.0], dtype=tj.float64)
    state = tj.optim.adam_state(place)
    for step in range(FITTED):
        error = search_step(place, state, records, step)
        if step % 10 == 0:
            print(f"step {step:2} error {float(error):.4f} at ({float(place[0]):.1f}, {float(place[1]):.1f})")
    found = place.numpy().copy()
    print(f"the stone fell at {true}, found at {found.round(2)}")
    print("a tick:", tick.cache_info())
    print("a step of the search:", search_step.cache_info())
    return lost, drift, true, found


if __name__ == "__main__":
    main()
