"""Functions for neural networks: activations, losses, dropout; convolution, pooling, norms of images.

>>> import tracejit as tj
>>> images, weight = tj.ones((1, 3, 8, 8)), tj.ones((4, 3, 3, 3))
>>> tj.nn.max_pool2d(tj.nn.relu(tj.nn.conv2d(images, weight, padding=1)), 2).shape
(1, 4, 4, 4)

Modules; each imports only modules to its right and below:

    modules                   layers as objects: `Module`, `Linear`, `Conv2d`, recurrent nets
    attend, recurrent         attention; recurrent cells and sequences
    ctc, likelihoods, losses  losses of label sequences; for multiple classes; distances, and losses for two
                              classes
    normalization, pooling, convolution, resampling
                              operations on images and features
    activations, functional   activations and gates; products, embeddings, dropout
    init, walk                initial weights; the contents of a module, by name
    common, windows           conversion and checks of operands; window arguments

The package imports `frontend`, `ir`, `ops` and `tuning`.
"""

from typing import TYPE_CHECKING, Any

from tracejit import lazy as _lazy

if TYPE_CHECKING:
    from tracejit.nn import init as init
    from tracejit.nn.activations import *
    from tracejit.nn.attend import *
    from tracejit.nn.convolution import *
    from tracejit.nn.ctc import *
    from tracejit.nn.functional import *
    from tracejit.nn.likelihoods import *
    from tracejit.nn.losses import *
    from tracejit.nn.modules import *
    from tracejit.nn.normalization import *
    from tracejit.nn.pooling import *
    from tracejit.nn.recurrent import *
    from tracejit.nn.resampling import *

_MODULES = {
    "activations": (
        "celu elu gelu glu hard_sigmoid hard_swish hard_tanh leaky_relu log_sigmoid log_softmax "
        "logsumexp mish prelu relu relu6 selu sigmoid silu softmax softplus softsign swish tanh"
    ),
    "attend": "attention multi_head_attention",
    "convolution": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    "ctc": "ctc_loss",
    "functional": "dropout embedding linear one_hot",
    "likelihoods": "cross_entropy kl_div nll_loss",
    "losses": (
        "binary_cross_entropy binary_cross_entropy_with_logits cosine_similarity huber_loss "
        "l1_loss mse_loss smooth_l1_loss"
    ),
    "modules": (
        "GRU LSTM BatchNorm Conv1d Conv2d Dropout Embedding GroupNorm LayerNorm Linear Module "
        "MultiHeadAttention RMSNorm Sequential stack"
    ),
    "normalization": "batch_norm group_norm instance_norm layer_norm local_response_norm rms_norm",
    "pooling": (
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
        "adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d global_avg_pool "
        "global_max_pool max_pool1d max_pool2d max_pool3d"
    ),
    "recurrent": "gru gru_cell lstm lstm_cell rnn rnn_cell",
    "resampling": "interpolate pad pixel_shuffle pixel_unshuffle unfold",
}
"""The modules' names, which are imported at their first use."""
_ORIGINS = {name: f"tracejit.nn.{module}" for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_ORIGINS)


if not TYPE_CHECKING:  # so that type checkers report a misspelt name

    def __getattr__(name: str) -> Any:
        return _lazy.attribute(__name__, name, _ORIGINS, {"init": "tracejit.nn.init"})

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "init"})
