"""Traced bodies that look at values of arrays on a GPU: the same results and paths as on the CPU."""

import numpy as np
import pytest

import tracejit as tj


def branch(x):
    if float(x.sum()) > 0:
        return x * 2
    return x - 1


def clipped(x):
    norm = float((x * x).sum()) ** 0.5
    return x * (1 / norm) if norm > 1 else x + 0


def converged(x):
    count = 0
    while float(abs(x).max()) > 0.25:
        x = x * 0.5
        count += 1
    return x, count


def stopped(x):
    for i in range(20):
        if not bool((x < 6).all()):
            break
        x = x + i
    return x


def picked(x):
    m = x > 0
    return x[m].sum(), x[m] * 2


def stored(x):
    x = x.copy()
    x[x > 0] -= 1
    x[x < 0] *= 0.5
    return x


def numbers(x):
    x = x.copy()
    x += np.float32(2)
    x[0] *= np.ones(3, np.float32)
    if x[0, 0] > 1:
        x -= np.float32(1)
    return x


def indexed(x):
    return x[int(x.argmax()) // 3] + int((x > 0).sum())


BODIES = [branch, clipped, converged, stopped, picked, stored, numbers, indexed]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_looks(body, gpu):
    on_gpu, on_cpu = tj.jit(body), tj.jit(body)
    rng = np.random.default_rng(3)
    for _ in range(3):
        for scale in (1, -1, 3, 0.1):
            x = (rng.standard_normal((4, 3)) * scale + np.sign(scale) * 0.1).astype(np.float32)
            expected = body(tj.asarray(x))
            there = on_gpu(tj.asarray(x, device=gpu))
            assert all(a.device == gpu for a in flat(there) if isinstance(a, tj.NDArray))
            for found in (there, on_cpu(tj.asarray(x))):
                for a, b in zip(flat(found), flat(expected), strict=True):
                    np.testing.assert_allclose(np.asarray(to_cpu(a)), np.asarray(b), rtol=1e-6)
    assert on_gpu.cache_info().traces == on_cpu.cache_info().traces, on_gpu.explain()


def flat(result):
    return result if isinstance(result, tuple) else (result,)


def to_cpu(x):
    return x.to(tj.cpu(0)) if isinstance(x, tj.NDArray) else x
