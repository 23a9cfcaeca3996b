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

from tracejit import late as _late

if TYPE_CHECKING:
    from tracejit.nn import init as init
    from tracejit.nn.activations import (
        celu,
        elu,
        gelu,
        glu,
        hard_sigmoid,
        hard_swish,
        hard_tanh,
        leaky_relu,
        log_sigmoid,
        log_softmax,
        logsumexp,
        mish,
        prelu,
        relu,
        relu6,
        selu,
        sigmoid,
        silu,
        softmax,
        softplus,
        softsign,
        swish,
        tanh,
    )
    from tracejit.nn.attend import (
        attention,
        multi_head_attention,
    )
    from tracejit.nn.convolution import (
        conv1d,
        conv2d,
        conv3d,
        conv_transpose1d,
        conv_transpose2d,
        conv_transpose3d,
    )
    from tracejit.nn.ctc import (
        ctc_loss,
    )
    from tracejit.nn.functional import (
        dropout,
        embedding,
        linear,
        one_hot,
    )
    from tracejit.nn.likelihoods import (
        cross_entropy,
        kl_div,
        nll_loss,
    )
    from tracejit.nn.losses import (
        binary_cross_entropy,
        binary_cross_entropy_with_logits,
        cosine_similarity,
        huber_loss,
        l1_loss,
        mse_loss,
        smooth_l1_loss,
    )
    from tracejit.nn.modules import (
        GRU,
        LSTM,
        BatchNorm,
        Conv1d,
        Conv2d,
        Dropout,
        Embedding,
        GroupNorm,
        LayerNorm,
        Linear,
        Module,
        MultiHeadAttention,
        RMSNorm,
        Sequential,
        stack,
    )
    from tracejit.nn.normalization import (
        batch_norm,
        group_norm,
        instance_norm,
        layer_norm,
        local_response_norm,
        rms_norm,
    )
    from tracejit.nn.pooling import (
        adaptive_avg_pool1d,
        adaptive_avg_pool2d,
        adaptive_avg_pool3d,
        adaptive_max_pool1d,
        adaptive_max_pool2d,
        adaptive_max_pool3d,
        avg_pool1d,
        avg_pool2d,
        avg_pool3d,
        global_avg_pool,
        global_max_pool,
        max_pool1d,
        max_pool2d,
        max_pool3d,
    )
    from tracejit.nn.recurrent import (
        gru,
        gru_cell,
        lstm,
        lstm_cell,
        rnn,
        rnn_cell,
    )
    from tracejit.nn.resampling import (
        interpolate,
        pad,
        pixel_shuffle,
        pixel_unshuffle,
        unfold,
    )

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
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "attention",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "glu",
    "group_norm",
    "gru",
    "gru_cell",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "local_response_norm",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "lstm",
    "lstm_cell",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mish",
    "mse_loss",
    "multi_head_attention",
    "nll_loss",
    "one_hot",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "rnn",
    "rnn_cell",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "softsign",
    "stack",
    "swish",
    "tanh",
    "unfold",
]

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


if not TYPE_CHECKING:  # so that type checkers report a misspelt name

    def __getattr__(name: str) -> Any:
        return _late.attribute(__name__, name, _ORIGINS, {"init": "tracejit.nn.init"})

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "init"})
