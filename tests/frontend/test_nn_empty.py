"""tj.nn of arrays without elements: shapes, and nothing that fails."""

import numpy as np
import pytest

import tracejit as tj

nn = tj.nn


def z(*shape):
    return tj.zeros(shape)


def labels(*shape):
    return tj.zeros(shape, dtype=tj.int64)


CASES = {
    "mish": (lambda: nn.mish(z(0)), (0,)),
    "glu": (lambda: nn.glu(z(0, 4)), (0, 2)),
    "prelu": (lambda: nn.prelu(z(0, 4), z(4)), (0, 4)),
    "dropout": (lambda: nn.dropout(z(0), 0.5), (0,)),
    "linear": (lambda: nn.linear(z(0, 2), z(3, 2), z(3)), (0, 3)),
    "linear_of_nothing": (lambda: nn.linear(z(2, 0), z(3, 0), z(3)), (2, 3)),
    "embedding": (lambda: nn.embedding(labels(0), z(3, 4)), (0, 4)),
    "layer_norm": (lambda: nn.layer_norm(z(0, 4)), (0, 4)),
    "rms_norm": (lambda: nn.rms_norm(z(0, 4)), (0, 4)),
    "group_norm": (lambda: nn.group_norm(z(0, 4, 3), 2), (0, 4, 3)),
    "instance_norm": (lambda: nn.instance_norm(z(0, 4, 3)), (0, 4, 3)),
    "attention_of_no_query": (lambda: nn.attention(z(0, 4), z(3, 4), z(3, 4)), (0, 4)),
    "attention_of_no_batch": (lambda: nn.attention(*[z(0, 3, 4)] * 3, causal=True), (0, 3, 4)),
    "attention_of_no_value": (lambda: nn.attention(z(2, 4), z(3, 4), z(3, 0)), (2, 0)),
    "attention_of_no_feature": (lambda: nn.attention(z(2, 0), z(3, 0), z(3, 2)), (2, 2)),
    "lstm": (lambda: nn.lstm(z(0, 3, 2), None, z(8, 2), z(8, 2))[0], (0, 3, 2)),
    "gru": (lambda: nn.gru(z(0, 3, 2), None, z(6, 2), z(6, 2))[0], (0, 3, 2)),
    "conv1d": (lambda: nn.conv1d(z(0, 2, 5), z(3, 2, 2)), (0, 3, 4)),
    "conv3d": (lambda: nn.conv3d(z(0, 2, 5, 5, 5), z(3, 2, 2, 2, 2)), (0, 3, 4, 4, 4)),
    "conv_transpose2d": (lambda: nn.conv_transpose2d(z(0, 2, 5, 5), z(2, 3, 2, 2)), (0, 3, 6, 6)),
    "max_pool1d": (lambda: nn.max_pool1d(z(0, 2, 5), 2), (0, 2, 2)),
    "adaptive_avg_pool2d": (lambda: nn.adaptive_avg_pool2d(z(0, 2, 5, 5), 2), (0, 2, 2, 2)),
    "interpolate": (lambda: nn.interpolate(z(0, 2, 5), 7, mode="linear"), (0, 2, 7)),
    "pad": (lambda: nn.pad(z(2, 0), ((1, 1),)), (2, 2)),
    "pad_reflect": (lambda: nn.pad(z(0, 2, 5), ((1, 1),), mode="reflect"), (0, 2, 7)),
    "unfold": (lambda: nn.unfold(z(0, 2, 5, 5), 2), (0, 8, 16)),
    "pixel_shuffle": (lambda: nn.pixel_shuffle(z(0, 4, 2, 2), 2), (0, 1, 4, 4)),
    "cross_entropy": (lambda: nn.cross_entropy(z(0, 3), labels(0), reduction="sum"), ()),
    "mse_loss": (lambda: nn.mse_loss(z(0), z(0), reduction="sum"), ()),
    "ctc_loss": (lambda: nn.ctc_loss(z(4, 2, 3), labels(2, 0), labels(2) + 4, labels(2)), ()),
    "global_norm": (lambda: tj.optim.global_norm({}), ()),
}


@pytest.mark.parametrize("name", CASES)
def test_empty_arrays(name, evaluator):
    function, shape = CASES[name]
    for found in (function(), tj.jit(function)()):
        assert found.shape == shape
        assert np.isfinite(found.numpy()).all()
