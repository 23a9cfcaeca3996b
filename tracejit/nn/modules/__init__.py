"""Modules of `tj.nn`: `Module`, layers, recurrent nets.

A traced function treats their methods like user code: the attributes they read are guarded (see
`kinds.is_like_users`).
"""

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
