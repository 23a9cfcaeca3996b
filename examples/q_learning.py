"""Deep Q-learning with a replay buffer: many carts each learn to balance a pole (Mnih et al. 2015).

The environment is array code, too: it simulates sixteen carts, and a cart whose pole has fallen starts
again. One traced step chooses actions, advances the environment, writes the transitions into the replay
buffer in place, samples earlier transitions from it, and learns. All of its state is stored in attributes of
one object.

    python examples/q_learning.py
"""

from __future__ import annotations

import math

import tracejit as tj

CARTS, STEPS, BATCH, SIZE = 16, 1000, 128, 8192
RATE, DISCOUNT, FOLLOW = 1e-3, 0.98, 0.02
GRAVITY, POLE, MASS_CART, MASS_POLE, FORCE, TICK = 9.8, 0.5, 1.0, 0.1, 10.0, 0.02


class Network(tj.nn.Module):
    """Map states (batch, 4) to the values of both actions (batch, 2)."""

    def __init__(self):
        self.layers = [tj.nn.Linear(4, 64), tj.nn.Linear(64, 64), tj.nn.Linear(64, 2)]

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = tj.nn.relu(layer(x))
        return self.layers[-1](x)


def moved(state, action):
    """The carts after one tick (Barto, Sutton and Anderson 1983), and which of them have failed."""
    _, speed, angle, turn = tj.unstack(state, axis=1)
    force = tj.where(action == 1, FORCE, -FORCE)
    total = MASS_CART + MASS_POLE
    pushed = (force + MASS_POLE * POLE * turn**2 * tj.sin(angle)) / total
    turning = (GRAVITY * tj.sin(angle) - tj.cos(angle) * pushed) / (
        POLE * (4 / 3 - MASS_POLE * tj.cos(angle) ** 2 / total)
    )
    pushing = pushed - MASS_POLE * POLE * turning * tj.cos(angle) / total
    changes = tj.stack([speed, pushing, turn, turning], axis=1)
    new = state + TICK * changes
    failed = (abs(new[:, 0]) > 2.4) | (abs(new[:, 2]) > math.radians(12))
    return new, failed


class Learner:
    """The carts, the replay buffer, two networks and the optimizer's state."""

    def __init__(self, seed):
        tj.random.seed(seed)
        self.rng = tj.random.Generator(seed)
        self.network, self.target = Network(), Network()
        self.target.load_state_dict(self.network.state_dict())
        self.optimizer = tj.optim.adam_state(self.network)
        self.carts = self.rng.uniform(-0.05, 0.05, (CARTS, 4))
        self.ages = tj.zeros(CARTS)
        self.buffer = {
            "state": tj.zeros((SIZE, 4)),
            "action": tj.zeros(SIZE, dtype=tj.int64),
            "failed": tj.zeros(SIZE, dtype=tj.bool),
            "next": tj.zeros((SIZE, 4)),
        }
        self.stored = tj.zeros((), dtype=tj.int64)

    def act(self, exploration):
        """Move all carts and store the transitions; return the sum of the ages of those that failed, and
        their number.
        """
        best = tj.argmax(self.network(self.carts), axis=1)
        explores = self.rng.bernoulli(exploration, (CARTS,))
        action = tj.where(explores, self.rng.integers(0, 2, CARTS), best)
        new, failed = moved(self.carts, action)

        places = (self.stored + tj.arange(CARTS)) % SIZE
        happened = {"state": self.carts, "action": action, "failed": failed, "next": new}
        for name, values in happened.items():
            self.buffer[name][places] = values
        self.stored += CARTS

        self.ages += 1
        ended = tj.where(failed, self.ages, 0.0).sum(), failed.sum()
        again = self.rng.uniform(-0.05, 0.05, (CARTS, 4))
        self.carts = tj.where(failed[:, None], again, new)
        self.ages = tj.where(failed, 0.0, self.ages)
        return ended

    def learn(self):
        """One step of Adam on transitions sampled from the buffer."""
        chosen = self.rng.integers(0, tj.minimum(self.stored, SIZE), BATCH)
        past = {name: values[chosen] for name, values in self.buffer.items()}
        ahead = self.target(past["next"]).max(axis=1)
        wanted = tj.where(past["failed"], -1.0, DISCOUNT * ahead)

        def loss_of(network):
            values = tj.take_along_axis(network(past["state"]), past["action"][:, None], axis=1)[:, 0]
            return tj.nn.huber_loss(values, wanted)

        loss, gradients = tj.value_and_grad(loss_of)(self.network)
        tj.optim.adam(self.network, gradients, self.optimizer, RATE)
        for name, follower in self.target.parameters().items():
            follower += FOLLOW * (self.network.parameters()[name] - follower)
        return loss


@tj.jit
def step(learner, exploration):
    """Act and learn; return the sum of ages and the number of the carts that failed, and the loss."""
    return *learner.act(exploration), learner.learn()


def main():
    """Learn; return the mean time until a pole falls, for each tenth of the run."""
    learner = Learner(seed=3)
    lengths = []
    for part in range(10):
        total, number = tj.zeros(()), tj.zeros((), dtype=tj.int64)
        for i in range(STEPS // 10):
            progress = part / 10 + i / STEPS
            ages, failures, loss = step(learner, max(0.02, 0.5 - progress))
            total += ages
            number += failures
        lengths.append(float(total) / max(int(number), 1))
        print(f"{(part + 1) * STEPS // 10:5} steps: {lengths[-1]:6.1f} ticks, loss {float(loss):.4f}")
    print("the step:", step.cache_info())
    return lengths


if __name__ == "__main__":
    main()
