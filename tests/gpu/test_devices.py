"""GPUs end to end: on a driver that computes on the CPU, or on a real one (`make gpu-test`)."""

import json
import pickle
import re
import threading

import numpy as np
import pytest

import tracejit as tj
import tracejit.engine.cuda.driver as drivers
from benchmarks import gpu as measured
from tests.gpu.fake import ILLEGAL_ADDRESS, OUT_OF_MEMORY
from tracejit.errors import ArgumentError, DeviceError, OutOfBoundsError
from tracejit.frontend.recording.eager import runs_on_numpy
from tracejit.ir.graph import Builder
from tracejit.ir.types import ArrayType


def test_an_array_moves_and_is_used_there(gpu):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = tj.asarray(data).to(gpu)
    y = x * 2 + 1
    assert x.device == y.device == gpu == tj.Device("gpu", 0)
    np.testing.assert_array_equal(y.numpy(), data * 2 + 1)
    np.testing.assert_array_equal(y.to("cpu").numpy(), data * 2 + 1)
    np.testing.assert_array_equal(x.T.to(tj.cpu(0)).numpy(), data.T)
    np.testing.assert_array_equal(x[:, 1:].numpy(), data[:, 1:])
    assert x.to("gpu:0") is x


def test_looks_copy(gpu):
    x = tj.asarray([[1.0, 2.0], [3.0, 4.0]], device=gpu)
    assert x.tolist() == [[1, 2], [3, 4]]
    assert x.item(1, 0) == 3
    assert float(x.sum()) == 10
    assert bool((x > 0).all())
    assert int(x.argmax()) == 3
    assert f"{x[0, 0]:.1f}" == "1.0"
    assert "3., 4." in repr(x)
    np.testing.assert_array_equal(np.asarray(x), x.numpy())
    assert x.wait() is x


def test_memory_is_not_shared(gpu):
    x = tj.ones(3, device=gpu)
    for share in (lambda: x.numpy(copy=False), x.__dlpack__, x.__dlpack_device__):
        with pytest.raises(DeviceError, match=r'cannot be shared yet; copy it, as in x\.to\("cpu:0"\)'):
            share()
    assert pickle.loads(pickle.dumps(x)).device == gpu


SHAPES = [(3, 40), (2, 3, 17), (0, 4)]
FUNCTIONS = {
    "map": lambda x: tj.tanh(x) * x + 1,
    "transposed": lambda x: x + tj.flip(x, 0),
    "sum": lambda x: x.sum(),
    "sums": lambda x: x.sum(axis=0),
    "rows": lambda x: x - x.mean(axis=-1, keepdims=True),
    "softmax": lambda x: tj.nn.softmax(x, axis=-1) if x.size else x,
    "cumulative": lambda x: tj.cumsum(x, axis=0),
    "cast": lambda x: (x * 10).astype("int32") % 3,
    "half": lambda x: (x.astype("float16") * 2).astype("float32"),
    "complex": lambda x: (x * (1 + 2j)).real,
    "where": lambda x: tj.where(x > 0, x, -x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_the_cpu(name, gpu):
    function, traced = FUNCTIONS[name], tj.jit(FUNCTIONS[name])
    for number, shape in enumerate(SHAPES):
        data = np.random.default_rng(number).normal(size=shape).astype(np.float32)
        wanted = function(tj.asarray(data)).numpy()
        for f in (function, traced, traced):
            result = f(tj.asarray(data, device=gpu))
            assert result.device == gpu
            np.testing.assert_allclose(result.numpy(), wanted, rtol=2e-6, atol=1e-6)


def test_a_step_replays_there(gpu):
    """A regression with momentum: arrays updated in place, gradients, a look at each loss."""

    def train(device):
        x = tj.asarray(np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32), device=device)
        y = (x * tj.arange(5.0, device=device)).sum(axis=1)
        w, v = tj.zeros(5, device=device), tj.zeros(5, device=device)

        @tj.jit
        def step(w, v, x, y, rate):
            loss, gradient = tj.value_and_grad(lambda w: (((x * w).sum(axis=1) - y) ** 2).mean())(w)
            v *= 0.5
            v += gradient
            w -= rate * v
            return loss

        losses = [float(step(w, v, x, y, 0.1 / (1 + n))) for n in range(6)]
        assert step.cache_info().traces == 1
        return losses, w.numpy()

    losses, w = train(gpu)
    wanted, w_there = train(tj.cpu(0))
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    np.testing.assert_allclose(w, w_there, rtol=1e-5)


def test_a_traced_step_spans_devices(fake, gpu):
    @tj.jit
    def step(x):
        there = tj.exp(x.to(gpu)) * 2
        return there, there.to(tj.cpu(0)) + (x + 1), there.to(tj.gpu(1)) + 1

    data = np.random.default_rng(0).random((40, 50), np.float32)
    for turn in range(4):
        there, back, other = step(tj.asarray(data + turn))
        assert (there.device, back.device, other.device) == (gpu, tj.cpu(0), tj.gpu(1))
        wanted = np.exp(data + turn) * 2
        np.testing.assert_allclose(back.numpy(), wanted + (data + turn + 1), rtol=1e-5)
        np.testing.assert_allclose(other.numpy(), wanted + 1, rtol=1e-5)


def test_writing(gpu):
    x = tj.zeros((3, 4), device=gpu)
    x[1] = 5
    x[:, 2] += 1
    x[x > 4] = -1
    wanted = np.zeros((3, 4), np.float32)
    wanted[1] = 5
    wanted[:, 2] += 1
    wanted[wanted > 4] = -1
    np.testing.assert_array_equal(x.numpy(), wanted)


def test_devices_are_chosen_as_elsewhere(fake, gpu):
    with tj.device(gpu):
        made = tj.zeros(3), tj.arange(3), tj.random.uniform(shape=5), tj.asarray(2.0)
        assert {x.device for x in made} == {gpu}
    tj.random.seed(3)
    here = tj.random.uniform(shape=100).numpy()
    tj.random.seed(3)
    np.testing.assert_array_equal(tj.random.uniform(shape=100, device=gpu).numpy(), here)
    with pytest.raises(DeviceError, match=r'on gpu:0 and cpu:0.*x\.to\("gpu:0"\)'):
        tj.ones(3, device=gpu) + tj.ones(3)
    with pytest.raises(DeviceError, match="the driver has 2 GPUs"):
        tj.gpu(2)
    with pytest.raises(DeviceError, match="numbered from 0"):
        tj.gpu(-1)
    with pytest.raises(ArgumentError, match="integer"):
        tj.gpu("1")


def test_without_a_driver_it_is_said_what_is_missing(monkeypatch):
    monkeypatch.setattr(drivers, "_current", None)
    monkeypatch.setattr(drivers, "LIBRARY", "libnone.so.1")
    for ask in (lambda: tj.gpu(7), lambda: tj.zeros(3, device="gpu:7")):
        with pytest.raises(DeviceError, match=r"libnone\.so\.1 cannot be loaded(.|\n)*install the driver"):
            ask()
    monkeypatch.setattr(drivers, "LIBRARY", None)  # the process itself
    with pytest.raises(DeviceError, match="is too old: it has no cuInit; update it"):
        tj.gpu(7)


def test_operators_that_are_missing_say_so_at_the_user_s_line(gpu):
    x = tj.ones((3, 3), device=gpu)
    with pytest.raises(DeviceError, match=r"eig does not run on gpu:0 yet(.|\n)*test_devices.py"):
        tj.linalg.eigvals(x).numpy()
    np.testing.assert_array_equal((x + 1).numpy(), 2)


def test_a_graph_that_only_hands_on_memory_of_a_gpu_is_not_left_to_numpy():
    for device, wanted in ((tj.Device("gpu", 0), False), (tj.cpu(0), True)):
        builder = Builder()
        x = builder.input(ArrayType((3,), np.dtype("float32"), device))
        assert runs_on_numpy(builder.graph([x])) is wanted


def test_launches_do_not_wait_for_one_another_to_complete(gpu, fake):
    """While the device stands still, what depends on what it has not done is issued behind it."""

    @tj.jit
    def step(x):
        x += 1
        return x * 2

    x = tj.zeros(4, device=gpu)
    step(x).numpy()
    with fake.at_rest():
        before, results = fake.launches, [step(x) for _ in range(4)]
        give_up = threading.Event()
        for _ in range(200):
            if fake.launches - before >= 4:
                break
            give_up.wait(0.01)
        issued = fake.launches - before
        assert not results[-1]._storage.variable.ready
    assert issued == 4
    assert [r.numpy()[0] for r in results] == [4, 6, 8, 10]


def test_a_bad_index_is_told_and_nothing_is_written(gpu):
    @tj.jit
    def take(table, index, count):
        count += 1
        return table[index] * 2

    table, count = tj.arange(10.0, device=gpu), tj.zeros(1, device=gpu)
    good = tj.asarray([1, -1], device=gpu)
    assert take(table, good, count).tolist() == [2, 18]
    result = take(table, tj.asarray([1, 30, 40], device=gpu), count)
    with pytest.raises(OutOfBoundsError, match=r"index number 1 is out of bounds for axis 0 with extent 10"):
        result.numpy()
    assert count.tolist() == [1]
    assert take(table, good, count).tolist() == [2, 18]


@pytest.mark.parametrize("look", [lambda w: w.numpy(), lambda w: w.tolist(), lambda w: w[0].item(), str])
def test_a_write_that_did_not_happen_is_told_by_a_look(look, gpu, fake):
    w = tj.zeros(3, device=gpu)
    look(w)
    fake.fail("cuMemcpyHtoDAsync", 1)
    w[...] = tj.asarray([1.0, 2.0, 3.0], device=gpu)
    with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_VALUE"):
        look(w)
    assert w.tolist() == [0, 0, 0]


def test_no_memory(gpu, fake):
    fake.fail("cuMemAlloc", OUT_OF_MEMORY)
    assert float(tj.ones(1_000_003, device=gpu)[0]) == 1  # once more, after what is unused was returned
    limit, fake.limit = fake.limit, fake.used
    try:
        with pytest.raises(tj.errors.AllocationError, match="there is no memory"):
            (tj.ones(50_000_017, device=gpu) * 2).numpy()
    finally:
        fake.limit = limit
    assert float((tj.ones(50, device=gpu) * 2).sum()) == 100


@pytest.mark.parametrize("name", ["cuLaunchKernel", "cuEventRecord"])
@pytest.mark.parametrize("function", [lambda x: x + 1, lambda x: tj.sort(x)], ids=["add", "sort"])
def test_a_call_of_the_driver_that_fails(name, function, gpu, fake):
    x = tj.ones(5, device=gpu)
    function(x).numpy()
    fake.fail(name, 1)
    with pytest.raises(DeviceError, match="gpu:0: CUDA_ERROR_INVALID_VALUE"):
        function(x).numpy()
    assert function(x).tolist() == function(tj.ones(5)).tolist()


def test_explanations_have_a_short_key_for_each_kernel(gpu):
    f = tj.jit(lambda x: tj.sort(x * 2.0 + 1.0) @ x)
    f(tj.ones(8, device=gpu)).numpy()
    keys = re.findall(r"\[(.*), compiled\]", f.explain())
    assert len(keys) == len(set(keys)) >= 3
    assert all(re.fullmatch("[0-9a-f]{8}", key) for key in keys), keys


def test_a_lost_device_says_so_and_the_cpu_goes_on(gpu, fake):
    here, x = tj.ones(5), tj.ones(5, device=gpu)
    (x + 1).numpy()
    with fake.at_rest():
        y = x * 3
        y._launched("test")
        fake.break_device(0)
    for _ in range(2):
        with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            (y + 1).numpy()
    assert (here + 1).tolist() == [2] * 5
    assert ILLEGAL_ADDRESS in fake.broken.values()


@pytest.mark.parametrize("seed", range(3))
def test_threads_and_two_devices_in_random_order(seed, gpu, fake):
    """Each thread has arrays on both devices and writes them in place; copies go to and fro."""
    results = {}

    @tj.jit
    def round_trip(a, b):
        a += b.to(a.device)
        b *= 0.5
        return a + 1

    def work(name):
        g = np.random.default_rng(seed * 10 + name)
        a, b = (g.normal(size=70).astype(np.float32) for _ in range(2))
        x, y = tj.asarray(a, device=gpu), tj.asarray(b, device=tj.gpu(1))
        for _ in range(6):
            last = round_trip(x, y)
            a += b
            b *= np.float32(0.5)
        results[name] = [(x.numpy(), a), (y.numpy(), b), (last.numpy(), a + 1)]

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pairs in results.values():
        for got, wanted in pairs:
            np.testing.assert_array_equal(got, wanted)
    assert len(results) == 3


def test_the_measurements_run(gpu, capsys, monkeypatch):
    """What they say here means nothing."""
    monkeypatch.setattr(measured, "CASES", {"x + s * y": measured.CASES["x + s * y"]})
    measured.main(["--bytes", "10000", "--seconds", "0.01"])
    found = json.loads(capsys.readouterr().out)
    assert found["device"] == "gpu:0"
    assert found["TB/s"].keys() == measured.CASES.keys()


def test_the_engine_stops_and_starts_again(gpu):
    x = tj.ones(4, device=gpu)
    for n in range(2):
        x += 1
        tj.engine.stop()
        assert not [t for t in threading.enumerate() if t.name.startswith("tracejit gpu:")]
        assert x.tolist() == [2 + n] * 4


FAILING = ("cuLaunchKernel", "cuEventRecord", "cuMemAlloc", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync")


@pytest.mark.parametrize("seed", range(2))
def test_calls_that_fail_at_random(seed, gpu, fake):
    """A result is right or its look raises; what comes later is right again."""

    @tj.jit
    def step(x, y):
        z = tj.exp(x) * y
        return z, z.sum(axis=0)

    g, told = np.random.default_rng(seed), 0
    for _ in range(30):
        x, y = (g.normal(size=(4, 30)).astype(np.float32) for _ in range(2))
        if g.random() < 0.5:
            fake.fail(str(g.choice(FAILING)), int(g.choice([1, OUT_OF_MEMORY])), after=int(g.integers(0, 3)))
        try:
            z, total = step(tj.asarray(x, device=gpu), tj.asarray(y, device=gpu))
            np.testing.assert_allclose(z.numpy(), np.exp(x) * y, rtol=1e-5)
            np.testing.assert_allclose(total.numpy(), (np.exp(x) * y).sum(axis=0), rtol=1e-4, atol=1e-5)
        except (DeviceError, tj.errors.AllocationError):
            told += 1
    assert 0 < told < 25
