"""CUDA sources: real PTX without a device, numbers from numba-cuda's simulator, and sizes of launches."""

import importlib.util
import itertools
import os
import subprocess
import sys

import pytest

from tests.codegen.cases import CASES
from tracejit.codegen.gpu.launch import THREADS, launch
from tracejit.codegen.lower import lower
from tracejit.codegen.text import load_source
from tracejit.targets import emit

HAS_CUDA = importlib.util.find_spec("numba_cuda") is not None
needs_cuda = pytest.mark.skipif(not HAS_CUDA, reason="needs the package numba-cuda")


@pytest.mark.parametrize("name", CASES)
def test_sources_are_python(name):
    for node in CASES[name]():
        source = emit(lower(node).spec, "gpu")
        compile(source, name, "exec")
        assert "def kernel(block, lo, hi, scratch, failure):" in source


@needs_cuda
@pytest.mark.parametrize("name", CASES)
def test_ptx(name):
    from numba import cuda, int64, void

    for node in CASES[name]():
        function = load_source(emit(lower(node).spec, "gpu"))
        ptx, _ = cuda.compile_ptx(function, void(*[int64] * 5), cc=(9, 0))
        assert ".visible .entry" in ptx


@needs_cuda
def test_the_simulator_agrees_with_the_evaluator():
    """In a process of its own: the simulator is chosen when Numba is imported."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-m", "tests.codegen.simulation"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-4000:]


@pytest.mark.parametrize("name", CASES)
def test_launches_are_within_bounds(name):
    for node, processors, most in itertools.product(CASES[name](), (1, 20, 132), (256, THREADS)):
        lowered = lower(node)
        (bx, by), (tx, ty) = launch(lowered, processors, most)
        assert 1 <= bx <= lowered.units
        assert tx * ty <= most
        assert all(n & (n - 1) == 0 for n in (by, tx, ty))
        if lowered.spec.orientation == "rows":
            assert by == ty == 1


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("silu", (1 << 22,)),
        ("bias_and_relu", (1 << 12, 1 << 10)),
        ("softmax", (1 << 12, 1 << 10)),
        ("bias_gradient", (1 << 12, 1 << 13)),
        ("symmetric", (1 << 11,)),
        ("long_sum", (1 << 26,)),
    ],
)
def test_large_arrays_fill_a_device(name, shape):
    """With 64 processors, at least 512 threads on each."""
    (bx, by), (tx, ty) = launch(lower(CASES[name](*shape)[0]), 64, THREADS)
    assert bx * by * tx * ty >= 64 * 512
