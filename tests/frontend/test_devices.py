"""Arrays on several CPU devices: copies, operators, the default device, random numbers."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.errors import ArgumentError, DeviceError

SIZES = (5, 5000)  # NumPy computes the first eagerly, kernels the second


@pytest.mark.parametrize("size", SIZES)
def test_an_array_moves_and_is_used_there(size):
    data = np.arange(size, dtype=np.float32)
    x = tj.asarray(data).to(tj.cpu(1))
    y = x + 1
    assert (x.device, y.device) == (tj.cpu(1), tj.cpu(1))
    np.testing.assert_array_equal(y.numpy(), data + 1)
    np.testing.assert_array_equal(y.to("cpu").numpy(), data + 1)
    assert x.to_device("cpu:1") is x


def test_a_traced_step_spans_devices():
    @tj.jit
    def step(x):
        there = x.to(tj.cpu(1)) * 2
        return there, there.to(tj.cpu(0)) + (x + 1)

    data = np.random.default_rng(0).random((40, 50), np.float32)
    for turn in range(3):
        there, back = step(tj.asarray(data + turn))
        assert (there.device, back.device) == (tj.cpu(1), tj.cpu(0))
        np.testing.assert_array_equal(back.numpy(), (data + turn) * 2 + (data + turn + 1))
    assert step.cache_info().traces == 1


def test_gradients_flow_back_through_copies():
    def loss(x):
        return (x.to(tj.cpu(1)) ** 2).sum()

    x = tj.arange(4.0)
    for gradient in (tj.grad(loss)(x), tj.jit(tj.grad(loss))(x)):
        assert gradient.device == tj.cpu(0)
        np.testing.assert_array_equal(gradient.numpy(), 2 * np.arange(4.0))


def test_mixed_devices_are_refused_with_the_remedy():
    x, y = tj.ones(3), tj.ones(3, device=tj.cpu(1))
    with pytest.raises(DeviceError, match=r'add got arrays on cpu:0 and cpu:1.*x\.to\("cpu:0"\)'):
        x + y
    with pytest.raises(DeviceError, match="matmul got arrays on"):
        tj.ones((3, 3)) @ tj.ones((3, 3), device="cpu:1")
    with pytest.raises(DeviceError, match="on cpu:0 and cpu:1"):
        tj.jit(lambda a, b: a + b)(x, y)
    with pytest.raises(DeviceError, match="is stored into one on cpu:0"):
        x[:] = y


def test_numpy_data_lie_on_the_first_device_but_scalars_go_anywhere():
    x = tj.ones(3, device=tj.cpu(1))
    np.testing.assert_array_equal((x * np.float32(2)).numpy(), [2, 2, 2])
    for call in (lambda x: x + np.ones(3, np.float32), lambda x: x.__setitem__(0, np.ones(()))):
        with pytest.raises(DeviceError, match=r"x\.to\("):
            call(x)


def test_devices_that_do_not_exist():
    with pytest.raises(DeviceError, match="numbered from 0"):
        tj.cpu(-1)
    with pytest.raises(ArgumentError, match="integer"):
        tj.cpu("1")
    for name in ("gpu:0", "cpu:-1", "cpu:x", "host"):
        with pytest.raises(DeviceError, match="there is no device"):
            tj.zeros(2, device=name)
    assert tj.cpu(7) is tj.cpu(7)


@pytest.mark.parametrize("size", SIZES)
def test_the_default_device(size):
    with tj.device(tj.cpu(1)) as place:
        made = tj.zeros(size), tj.arange(size), tj.random.uniform(shape=size), tj.asarray(2.0), tj.eye(3)
        assert place == tj.cpu(1)
        with tj.device("cpu:2"):
            assert tj.ones(size).device == tj.cpu(2)
        assert tj.ones(size).device == tj.cpu(1)
        assert tj.ones(size, device=tj.cpu(0)).device == tj.cpu(0)
    assert {x.device for x in made} == {tj.cpu(1)}
    assert tj.ones(size).device == tj.cpu(0)


def test_the_default_device_is_part_of_a_signature_that_uses_it():
    @tj.jit
    def made(n):
        with tj.device(tj.cpu(2)):
            inner = tj.zeros(3)
        return tj.zeros(3) + n, inner

    for _ in range(2):
        outer, inner = made(1)
        assert (outer.device, inner.device) == (tj.cpu(0), tj.cpu(2))
        with tj.device(tj.cpu(1)):
            outer, inner = made(1)
        assert (outer.device, inner.device) == (tj.cpu(1), tj.cpu(2))
    assert made.cache_info().traces == 2


def test_random_numbers_of_devices_differ_and_start_from_the_seed():
    def draw():
        return [tj.random.uniform(shape=100, device=tj.cpu(i)).numpy() for i in range(3)]

    tj.random.seed(3)
    first = draw()
    tj.random.seed(3)
    second = draw()
    np.testing.assert_array_equal(first, second)
    assert all(abs(np.corrcoef(first[0], other)[0, 1]) < 0.4 for other in first[1:])


def test_complex_numbers_go_to_the_device_of_the_arrays():
    x = tj.ones(3, dtype=tj.complex64, device=tj.cpu(1))
    y = x * 2j
    assert y.device == tj.cpu(1)
    np.testing.assert_array_equal(y.numpy(), np.full(3, 2j, np.complex64))
