"""Fourier transforms on GPUs, against NumPy."""

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import some
from tracejit.kernels.gpu.plan import MAX_SCRATCH, MAX_SHARED, MAX_TRANSFORM_BLOCKS, gpu_call

COUNTS = [1, 2, 3, 4, 5, 8, 12, 30, 49, 64, 97, 210, 1024]


def numbers(rng, dtype, *shape):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def close(found, wanted, count):
    assert found.dtype == wanted.dtype
    tolerance = 1e-12 if wanted.dtype in ("float64", "complex128") else 1e-5
    np.testing.assert_allclose(found.numpy(), wanted, rtol=tolerance, atol=4 * tolerance * count**0.5)


@pytest.mark.parametrize("parts", ["float32", "float64"])
@pytest.mark.parametrize("count", some(COUNTS, 6))
def test_any_number_of_elements(count, parts, gpu):
    rng = np.random.default_rng(count)
    x = numbers(rng, parts, 2, count, 3)
    z = numbers(rng, np.result_type(parts, "complex64"), 2, count, 3)
    real, complex = (tj.asarray(a, device=gpu) for a in (x, z))
    close(tj.fft.fft(complex, axis=1), np.fft.fft(z, axis=1), count)
    close(tj.fft.ifft(complex, axis=1), np.fft.ifft(z, axis=1), count)
    close(tj.fft.rfft(real, axis=1), np.fft.rfft(x, axis=1), count)
    for size in {max(1, 2 * count - 2), 2 * count - 1}:
        close(tj.fft.irfft(complex, n=size, axis=1), np.fft.irfft(z, size, axis=1), size)


@pytest.mark.parametrize("count", [MAX_SHARED // 24 + 8, 4099])
def test_lines_that_do_not_fit_in_shared_memory(count, gpu):
    z = numbers(np.random.default_rng(0), "complex64", 3, count)
    assert gpu_call("fft", [z.shape] * 2, {"axes": (1,)}, "complex64").scratch > 0
    close(tj.fft.fft(tj.asarray(z, device=gpu)), np.fft.fft(z), count)


@pytest.mark.parametrize("traced", [False, True])
def test_several_axes_of_operands_that_lie_in_any_way(traced, gpu):
    rng = np.random.default_rng(1)
    z = numbers(rng, "complex128", 5, 12, 9)

    def results(z, xp):
        part = z[::2, 1:, ::-1].swapaxes(0, 2)
        return (
            xp.fft.fftn(part),
            xp.fft.ifft2(part),
            xp.fft.fftn(z, axes=(2, 0)),
            xp.fft.rfft2(part.real),
            xp.fft.irfftn(z, (12, 16), axes=(1, 2)),
            xp.fft.fft(z, 5, norm="ortho"),
        )

    there = (tj.jit(results) if traced else results)(tj.asarray(z, device=gpu), tj)
    for found, wanted in zip(there, results(z, np), strict=True):
        close(found, wanted, 500)


def test_what_is_whole_stays_whole(gpu):
    """Roots of unity on the axes are exact."""
    there = tj.fft.fft(tj.arange(4.0, dtype="float64", device=gpu))
    np.testing.assert_array_equal(there.numpy(), [6, -2 + 2j, -2, -2 - 2j])


def test_gradients(gpu):
    x = np.random.default_rng(2).normal(size=(3, 10))

    def loss(x):
        y = tj.fft.rfft(x)
        back = tj.fft.irfft(y * y, n=10)
        return (back**3).sum() + (abs(tj.fft.fft2(x)) ** 2).sum()

    there, here = (tj.grad(loss)(tj.asarray(x, device=d)) for d in (gpu, tj.cpu(0)))
    assert there.device == gpu
    np.testing.assert_allclose(there.numpy(), here.numpy(), rtol=1e-9, atol=1e-8)


def test_the_bits_do_not_depend_on_the_run(gpu):
    z = tj.asarray(numbers(np.random.default_rng(3), "complex64", 40, 60), device=gpu)
    assert len({tj.fft.fft(z, axis=0).numpy().tobytes() for _ in range(3)}) == 1


def test_launches_are_within_bounds():
    for count in (2, 2000, 1 << 20, 1 << 26):
        shape = (1 << 16, count)
        call = gpu_call("fft", [shape, shape], {"axes": (1,), "inverse": False}, "complex128")
        assert 1 <= call.blocks <= MAX_TRANSFORM_BLOCKS
        assert call.shared <= MAX_SHARED
        assert call.blocks * call.scratch <= max(MAX_SCRATCH, call.scratch)
