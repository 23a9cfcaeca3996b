"""Message passing on a graph: which group does a node belong to, if a few nodes of each group are known?

A graph convolution (Kipf and Welling 2017) on a random graph with four groups, in which edges within a group
are more likely. Messages are gathered along edges and summed at their target nodes. The edge array is padded
to a fixed size, with a mask of the valid edges, so one recording serves graphs with any number of edges.

    python examples/graphs.py
"""

from __future__ import annotations

import numpy as np

import tracejit as tj

GROUPS, SIZE, KNOWN = 4, 60, 4
NODES, WIDTH, STEPS, RATE = GROUPS * SIZE, 32, 120, 1e-2
ROOM = 4096  # edges


def random_graph(rng, within=0.12, between=0.01):
    """Edges in both directions and self-loops as pairs of nodes, (2, ROOM), and the mask of valid edges."""
    group = np.arange(NODES) // SIZE
    chance = np.where(group[:, None] == group, within, between)
    upper = np.triu(rng.random((NODES, NODES)) < chance, 1)
    ends = np.array(np.nonzero(upper | upper.T | np.eye(NODES, dtype=bool)))
    edges = np.zeros((2, ROOM), np.int64)
    edges[:, : ends.shape[1]] = ends
    return edges, np.arange(ROOM) < ends.shape[1]


def propagate(x, edges, counts):
    """Sums over neighbours, each message divided by the square roots of the degrees of both nodes."""
    source, target = edges
    degree = tj.scatter_add(tj.zeros(NODES), target, counts.astype(tj.float32))
    weight = tj.where(counts, 1 / tj.sqrt(degree[source] * degree[target]), 0.0)
    return tj.scatter_add(tj.zeros(x.shape), target, x[source] * weight[:, None])


class GraphNet(tj.nn.Module):
    """A learned vector for each node and two message-passing layers; returns scores (nodes, groups)."""

    def __init__(self):
        self.nodes = tj.nn.init.normal((NODES, WIDTH), std=0.3)
        self.first, self.second = tj.nn.Linear(WIDTH, WIDTH), tj.nn.Linear(WIDTH, GROUPS)
        self.drop = tj.nn.Dropout(0.5)

    def forward(self, edges, counts):
        x = propagate(self.first(self.drop(self.nodes)), edges, counts)
        return propagate(self.second(self.drop(tj.nn.relu(x))), edges, counts)


@tj.jit
def train_step(net, state, edges, counts, known, labels):
    """One step of AdamW on the known nodes; return the loss."""

    def loss_of(net):
        return tj.nn.cross_entropy(net(edges, counts)[known], labels)

    loss, gradients = tj.value_and_grad(loss_of)(net)
    tj.optim.adamw(net, gradients, state, RATE, weight_decay=0.05)
    return loss


def learned(edges, counts):
    """Train on one graph; return the share of unknown nodes that are classified correctly."""
    net = GraphNet()
    state = tj.optim.adam_state(net)
    known = np.concatenate([group * SIZE + np.arange(KNOWN) for group in range(GROUPS)])
    labels = known // SIZE
    for step in range(STEPS):
        loss = train_step(net, state, edges, counts, known, labels)
        if step % 40 == 0:
            print(f"  step {step:3} loss {float(loss):.3f}")
    found = tj.argmax(net.eval()(tj.asarray(edges), tj.asarray(counts)), axis=1).numpy()
    unknown = np.setdiff1d(np.arange(NODES), known)
    return (found[unknown] == unknown // SIZE).mean()


def main():
    """Train on two graphs; return the shares of correctly classified nodes."""
    tj.random.seed(0)
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(2):
        edges, counts = random_graph(rng)
        print(f"{counts.sum()} edges among {NODES} nodes, {GROUPS * KNOWN} of them known")
        shares.append(learned(edges, counts))
        print(f"found the group of {shares[-1]:.1%} of the others")
    print("the step:", train_step.cache_info())
    return shares


if __name__ == "__main__":
    main()
