"""The tests of scalar functions, with loops that run on a GPU; and both against each other, bit for bit."""

import functools

import numpy as np
import pytest

from tests.gpu import device
from tests.kernels import test_philox, test_scalar_exact, test_scalar_transcendental
from tests.kernels.loops import Loops, same
from tests.kernels.scalar.test_cuda import cases
from tests.kernels.scalar.test_exact import pairs, values

OF_DECLARATIONS = ("test_lookup_names", "test_nothing_is_promoted")  # nothing runs in these
globals().update(
    (name, function)
    for module in (test_scalar_exact, test_scalar_transcendental)
    for name, function in vars(module).items()
    if name.startswith("test_") and name not in OF_DECLARATIONS
)
loops = functools.cache(test_scalar_transcendental.loops.__wrapped__)


@pytest.fixture(autouse=True)
def _on_the_gpu(monkeypatch):
    for module in (test_scalar_exact, test_scalar_transcendental):
        monkeypatch.setattr(module, "Loops", device.Loops)
    monkeypatch.setattr(test_scalar_transcendental, "loops", loops)


def operands_of(name, dtypes):
    """Extreme and random operands."""
    if name.startswith("random_bits_"):
        return [np.random.default_rng(n).integers(0, 2**63, 3000).astype(t) for n, t in enumerate(dtypes)]
    if len(dtypes) == 1:
        return [values(dtypes[0])]
    x, y = pairs(dtypes[-1])
    if len(dtypes) == 3:
        return [x < y, x, y]
    if "shift" in name:
        y = y & 7
    return [x, y]


@pytest.mark.parametrize(("name", "operands", "result"), list(cases()))
def test_the_bits_are_those_of_the_cpu(name, operands, result):
    case = [([name], operands, [result])]
    arrays = operands_of(name, operands)
    (here,), (there,) = Loops(case)(0, *arrays), device.Loops(case)(0, *arrays)
    agree = same(there, here) if here.dtype.kind == "f" else there == here
    at = np.flatnonzero(~agree)[:1]
    assert agree.all(), f"{[a[at] for a in arrays]}: {there[at]} on the GPU, {here[at]} on the CPU"


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_draws_are_those_of_philox(dtype):
    g = np.random.default_rng(0)
    key, counter = (g.integers(0, 2**64, 500, dtype=np.uint64) for _ in range(2))
    index = g.integers(0, 2**40, 500)
    key[:3], counter[:3], index[:3] = 0, (0, 2**64 - 1, 2**32 - 1), (0, 1, 1)
    loop = device.Loops([([f"random_bits_{dtype}"], ["uint64", "uint64", "int64"], [dtype])])
    answers = [test_philox.expected(*map(int, row)) for row in zip(key, counter, index, strict=True)]
    assert loop(0, key, counter, index)[0].tolist() == [a[dtype == "uint64"] for a in answers]
