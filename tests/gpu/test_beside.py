"""What is on the CPU beside arrays on a GPU, in traced functions: NumPy arguments, and what callbacks get."""

import numpy as np
import pytest

import tracejit as tj

DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


def twice(function, *args):
    """The result of the first call and of a replay, on the GPU."""
    for _ in range(2):
        result = function(*args)
        assert result.device.kind == "gpu"
    return result.numpy()


def test_numpy_arguments_go_where_the_other_arguments_lie(gpu):
    @tj.jit
    def step(x, batch):
        return x + batch["a"] / 2

    there = tj.ones((2, 3), device=gpu)
    np.testing.assert_array_equal(twice(step, there, {"a": DATA}), 1 + DATA / 2)
    assert step.cache_info().traces == 1
    np.testing.assert_array_equal(step(tj.ones((2, 3)), {"a": DATA}).numpy(), 1 + DATA / 2)
    np.testing.assert_array_equal(step(there, {"a": DATA * 3}).numpy(), 1 + DATA * 3 / 2)
    assert step.cache_info().traces == 2


def test_numpy_arguments_alone_stay(gpu):
    double = tj.jit(lambda x: x * 2)
    with tj.device(gpu):
        assert double(DATA).device == double(DATA).device == tj.cpu(0)


def test_numpy_arguments_go_where_arrays_lie_that_the_body_reaches_by_name(gpu):
    weights = tj.ones((3, 2), device=gpu)

    @tj.jit
    def step(x):
        nonlocal weights
        scaled = x / 4
        weights -= 1
        return scaled @ weights

    for i in range(3):
        np.testing.assert_array_equal(step(DATA).numpy(), DATA / 4 @ np.full((3, 2), -i, np.float32))
    assert step.cache_info().traces == 1


@pytest.mark.parametrize("jitted", [False, True])
def test_numpy_arguments_where_the_body_runs_itself(jitted, gpu, monkeypatch, capsys):
    monkeypatch.setattr(tj.config, "jit", jitted)

    @tj.jit
    def step(x, batch):
        print("shown")
        return x + batch

    np.testing.assert_array_equal(twice(step, tj.ones((2, 3), device=gpu), DATA), 1 + DATA)
    assert capsys.readouterr().out == "shown\n" * 2


def test_numpy_arguments_cannot_be_written(gpu):
    @tj.jit
    def step(x, batch):
        batch[0] = 1
        return x + batch

    with pytest.raises(tj.errors.ReadOnlyError, match="batch is a NumPy array"):
        step(tj.ones((2, 3), device=gpu), DATA)


def test_arrays_of_two_devices_are_refused_still(gpu):
    here = tj.ones(3)
    with pytest.raises(tj.errors.DeviceError, match=r"add got arrays on .*x\.to\("):
        tj.jit(lambda x, y: x + here + y)(tj.ones(3, device=gpu), DATA[0])


def test_callbacks_get_copies(gpu):
    seen = []

    @tj.jit(strict=True)
    def step(x, i):
        x = x * 2
        tj.callback(lambda *given: seen.append(given), x.sum(), i, "text")
        x += 1
        return x

    for i in range(3):
        step(tj.ones(3, device=gpu) * i, i)
    tj.wait_all()
    assert [(float(total), number, text) for total, number, text in seen] == [
        (6.0 * i, i, "text") for i in range(3)
    ]


class Exported:
    """Another library's array on the CPU."""

    def __dlpack__(self, **options):
        return DATA.__dlpack__(**options)

    def __dlpack_device__(self):
        return DATA.__dlpack_device__()


def test_arrays_of_other_libraries_on_the_cpu_go_along(gpu):
    there = tj.ones((2, 3), device=gpu)
    np.testing.assert_array_equal(twice(lambda x: tj.add(x, Exported()), there), 1 + DATA)


@pytest.mark.parametrize("traced", [False, True])
def test_what_is_computed_again_may_span_devices(traced, gpu):
    """Blocks with an index of the CPU, with work of the CPU, and with results on both."""
    x = np.arange(1.0, 5.0) / 4

    def loss(x, wrap, device):
        def block(x):
            y = tj.sin(x)[[3, 0, 0, 2]]
            other = tj.exp((y * 2).to("cpu:0"))
            return tj.cos(y) * other.to(device), other * 3

        (a, b), c = wrap(block)(x), wrap(lambda x: tj.sin(x) ** 2)(x)
        return (a * c).sum() + b.sum().to(device)

    def slope(wrap, device):
        f = lambda x: tj.grad(lambda x: loss(x, wrap, device))(x)  # noqa: E731
        return (tj.jit(f) if traced else f)(tj.asarray(x, device=device))

    there, wanted = slope(tj.checkpoint, gpu), slope(lambda f: f, tj.cpu(0))
    assert there.device == gpu
    np.testing.assert_allclose(there.numpy(), wanted.numpy(), rtol=1e-9)
