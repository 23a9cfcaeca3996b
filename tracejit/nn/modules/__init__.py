"""Modules of `tj.nn`: `Module`, layers, recurrent nets.

A traced function treats their methods like user code: the attributes they read are guarded (see
`kinds.treat_like_users`). Modules; each imports only modules to its right and below:

    sequences  lstm and gru, in layers and directions
    layers     objects with the weights of the functions of `nn`
    stacking   several modules as one, for `tj.vmap`
    base       `Module`: parameters and submodules

The package imports `attend`, `convolution`, `frontend`, `functional`, `init`, `normalization`, `recurrent`
and `walk`. Functions of `nn` do not import it.
"""

from tracejit.frontend.python import kinds
from tracejit.nn.modules.base import Module
from tracejit.nn.modules.layers import (
    BatchNorm,
    Conv1d,
    Conv2d,
    Dropout,
    Embedding,
    GroupNorm,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    RMSNorm,
    Sequential,
)
from tracejit.nn.modules.sequences import GRU, LSTM
from tracejit.nn.modules.stacking import stack

kinds.treat_like_users(__name__)

__all__ = [
    "GRU",
    "LSTM",
    "BatchNorm",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "Module",
    "MultiHeadAttention",
    "RMSNorm",
    "Sequential",
    "stack",
]
