"""Elementwise kernels against the evaluator, bit for bit."""

import numpy as np
import pytest

from tests.codegen import bodies, runner


@pytest.mark.parametrize("seed", range(60))
def test_random_bodies(seed):
    body = bodies.random_body(seed)
    runner.check(
        runner.fused_node(body), bodies.random_arguments(body, seed), rng=np.random.default_rng(seed)
    )
