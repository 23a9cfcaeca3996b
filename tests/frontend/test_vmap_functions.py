"""Every public function of one or two arrays in `tj.vmap`, against a loop over the examples."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.errors import ArgumentError
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.functions import NAMESPACE

SIZE = 2
OF_VALUES = {
    *("argwhere", "compress", "extract", "flatnonzero", "nonzero", "where"),
    *("intersect1d", "setdiff1d", "setxor1d", "union1d"),
    *("unique", "unique_all", "unique_counts", "unique_inverse", "unique_values"),
    *("asarray_chkfinite", "may_share_memory", "shares_memory", "trim_zeros"),
}
"""Functions that look at values or memory; most for a result's shape."""
ANY_RESULT = {"empty_like", "nn.dropout"}
"""Functions with results that are not the same twice."""


def public():
    yield from NAMESPACE.items()
    for module in ("linalg", "fft", "nn"):
        for name in getattr(tj, module).__all__:
            yield f"{module}.{name}", getattr(getattr(tj, module), name)


FUNCTIONS = {
    name: function
    for name, function in public()
    if callable(function) and not isinstance(function, type) and name not in ANY_RESULT
}


def drain():
    """Wait for results that nobody has looked at; the loop has called functions in ways that fail."""
    for _ in range(100):
        try:
            tj.wait_all()
        except tj.TracejitError:
            continue
        break


def arrays_of(tree):
    return [leaf for leaf in trees.leaves(tree) if isinstance(leaf, tj.NDArray)]


@pytest.mark.parametrize("arity", [1, 2])
def test_public_functions(arity, evaluator):
    rng = np.random.default_rng(0)
    x = tj.asarray(rng.uniform(0.1, 0.9, (SIZE, 3, 3)))
    refused, tested = set(), 0
    for name, function in FUNCTIONS.items():

        def call(x, function=function):
            return arrays_of(function(*[x] * arity))

        try:
            each = [[result.numpy() for result in call(x[i])] for i in range(SIZE)]
        except Exception:
            continue  # no function of so many floating arrays
        try:
            found = tj.vmap(call)(x)
        except ArgumentError as error:
            refused.add(name)
            assert "looks at the value" in str(error), name  # noqa: PT017
            continue
        for got, rows in zip(found, zip(*each, strict=True), strict=True):
            expected = np.stack(rows)
            assert got.dtype == expected.dtype, name
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9, atol=1e-12, err_msg=name)
            tested += 1
    drain()
    assert refused - OF_VALUES == set()
    assert tested > 60
