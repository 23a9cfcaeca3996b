"""KVStore: weights by key, to which devices push gradients and from which they pull, with MXNet's interface.

    kv = tj.kvstore.create("device")
    kv.init(0, w)
    kv.set_optimizer(tj.optim.sgd, lr=0.1)
    for i, gradients in enumerate(per_device):
        kv.push(i, gradients, priority=-i)          # their sum updates what is stored
        kv.pull(i, out=weights[i], priority=-i)

All of it is array code: in a traced step it becomes kernels and copies of the step's one schedule, and a
replay runs no Python per key. (The interface is that of Chen et al., MXNet, 2015, section 2.3.)
"""

from __future__ import annotations

from tracejit.kvstore.store import KVStore, create

__all__ = ["KVStore", "create"]
