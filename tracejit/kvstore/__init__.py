"""KVStore: a store of weights by key, with MXNet's interface: devices push gradients and pull weights.

    kv = tj.kvstore.create("device")
    kv.init(0, w)
    kv.set_optimizer(tj.optim.sgd, lr=0.1)
    for i, gradients in enumerate(per_device):
        kv.push(i, gradients, priority=-i)          # their sum updates the stored weights
        kv.pull(i, out=weights[i], priority=-i)

The store is implemented with array operations: in a traced step they become kernels and copies of the step's
schedule, and a replay runs no Python per key. (The interface is that of Chen et al., MXNet, 2015, section
2.3.)

Modules; each imports only modules to its right and below:

    store        arrays by key; push and pull
    compression  gradients in two bits, with a residual

The package imports `distributed`, `frontend`, `ir`, `ops` and `optim`. Only the public namespace imports
it.
"""

from __future__ import annotations

from tracejit.frontend.python import kinds
from tracejit.kvstore.store import KVStore, create

kinds.treat_like_users(__name__)

__all__ = ["KVStore", "create"]
