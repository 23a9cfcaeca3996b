"""CTC against the sum over all alignments, one by one."""

import itertools

import numpy as np
import pytest
import scipy.special

import tracejit as tj
from tests.frontend.test_functions_gradients import check

STEPS, CLASSES = 5, 3
INPUTS = np.array([5, 4, 3, 5, 2])
LABELS = np.array([[1, 2, 1], [2, 2, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0]])
LENGTHS = np.array([3, 2, 1, 0, 2])  # the last does not fit: equal labels need a blank between them
LOGITS = np.random.default_rng(1).normal(size=(STEPS, 5, CLASSES))


def collapsed(path):
    return [label for label, _ in itertools.groupby(path) if label != 0]


def likelihoods(logits):
    """The probability of each example's labels, by all paths."""
    p = scipy.special.softmax(logits, -1)
    found = []
    for n in range(p.shape[1]):
        wanted = list(LABELS[n, : LENGTHS[n]])
        paths = itertools.product(range(CLASSES), repeat=INPUTS[n])
        found.append(
            sum(
                np.prod([p[t, n, c] for t, c in enumerate(path)])
                for path in paths
                if collapsed(path) == wanted
            )
        )
    return np.array(found)


@pytest.mark.parametrize("blank", [0, 2])
def test_against_all_alignments(blank, run):
    places = np.array([0, 1, 2] if blank == 0 else [2, 0, 1])  # of the classes 0, 1 and 2

    def loss(logits, labels, inputs, lengths):
        return tj.nn.ctc_loss(
            tj.nn.log_softmax(logits), labels, inputs, lengths, blank=blank, reduction="none"
        )

    logits, labels = LOGITS[..., np.argsort(places)], places[LABELS]
    got = run(loss, *map(tj.asarray, (logits, labels, INPUTS, LENGTHS)))
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(got, -np.log(likelihoods(LOGITS)), rtol=1e-12)


def test_reductions(evaluator):
    log_p = scipy.special.log_softmax(LOGITS, -1)
    rows = -np.log(likelihoods(LOGITS)[:4])
    args = log_p[:, :4], LABELS[:4], INPUTS[:4], LENGTHS[:4]
    mean = tj.nn.ctc_loss(*args).numpy()
    np.testing.assert_allclose(mean, (rows / np.maximum(LENGTHS[:4], 1)).mean(), rtol=1e-12)
    np.testing.assert_allclose(tj.nn.ctc_loss(*args, reduction="sum").numpy(), rows.sum(), rtol=1e-12)
    all_rows = tj.nn.ctc_loss(log_p, LABELS, INPUTS, LENGTHS, reduction="sum", zero_infinity=True)
    np.testing.assert_allclose(all_rows.numpy(), rows.sum(), rtol=1e-12)


def test_gradient(evaluator):
    def loss(logits):
        log_p = tj.nn.log_softmax(logits)
        return tj.nn.ctc_loss(log_p, LABELS, INPUTS, LENGTHS, reduction="none", zero_infinity=True)

    check(loss, [LOGITS], np.random.default_rng(2), rtol=1e-5)


def test_errors_name_the_line():
    with pytest.raises(tj.errors.ShapeError, match=r"label_lengths has shape(?s:.*)test_nn_ctc.py"):
        tj.nn.ctc_loss(LOGITS, LABELS, INPUTS, LENGTHS[:2])
    with pytest.raises(IndexError):
        tj.nn.ctc_loss(LOGITS, LABELS + 5, INPUTS, LENGTHS).numpy()
