"""Arrays on several CPU devices: copies, operators, the default device, random numbers."""

import copy
import pickle
import random

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


def test_the_default_device_is_not_that_of_numpy_data():
    numbers = np.arange(3, dtype=np.float32)

    def in_place(x):
        x += np.float32(2)
        x[1:] *= np.float32(3)
        return x

    for default in (tj.cpu(0), tj.cpu(1)):
        with tj.device(default):
            for place in (tj.cpu(0), tj.cpu(1)):
                for function in (in_place, tj.jit(in_place)):
                    made = function(tj.ones(3, device=place))
                    assert made.device == place
                    np.testing.assert_array_equal(made.numpy(), [3, 9, 9])
            made = tj.ones(3, device=tj.cpu(0)) + numbers
            assert made.device == tj.sin(numbers).device == tj.cpu(0)


def test_devices_that_do_not_exist():
    with pytest.raises(DeviceError, match="numbered from 0"):
        tj.cpu(-1)
    with pytest.raises(ArgumentError, match="integer"):
        tj.cpu("1")
    for name in ("tpu:0", "cpu:-1", "cpu:x", "gpu:-1", "gpu:x", "host"):
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


def test_vmap_makes_arrays_on_the_device_of_the_call():
    @tj.jit
    def rows(n):
        return tj.vmap(lambda x: x + tj.ones(3), out_axes=0)(tj.zeros((2, 3))) * n

    for device in ("cpu:0", "cpu:1", "cpu:0", "cpu:1"):
        with tj.device(device):
            assert rows(2.0).device == tj.cpu(int(device[-1]))
    assert rows.cache_info().traces == 2


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


def write(x, index):
    x[index] = 5.0
    return x


ELSEWHERE = {
    "list": lambda x, xp: x[[0, 2]],
    "positions": lambda x, xp: x[np.array([0, 2])],
    "mask": lambda x, xp: x[x > 3],
    "written": lambda x, xp: write(x, [0, 1]),
    "written by mask": lambda x, xp: write(x, x > 3),
    "take": lambda x, xp: xp.take(x, np.array([0, 1]), axis=0),
    "nonzero": lambda x, xp: xp.nonzero(x)[0],
    "unique": lambda x, xp: xp.unique(x),
    "insert": lambda x, xp: xp.insert(x, 1, 0.5, axis=0),
    "delete": lambda x, xp: xp.delete(x, [0], axis=0),
    "sort": lambda x, xp: xp.sort(-x, axis=1),
    "svd": lambda x, xp: xp.linalg.svd(x, full_matrices=False)[1],
    "rfft": lambda x, xp: xp.fft.rfft(x).real,
    "append": lambda x, xp: (
        xp.concatenate([x, [[1.0, 2, 3, 4]]]) if xp is tj else xp.append(x, [[1.0, 2, 3, 4]], 0)
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_functions_work_where_their_array_lies(name):
    """Indices, masks and lists go to the array; results that are made on the host come back to it."""
    data = np.arange(12.0).reshape(3, 4)
    expected = ELSEWHERE[name](data.copy(), np)
    for call in (ELSEWHERE[name], tj.jit(lambda x, xp: ELSEWHERE[name](x, xp))):
        found = call(tj.asarray(data, device=tj.cpu(1)), tj)
        assert found.device == tj.cpu(1)
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)


def test_networks_and_copies_stay_on_their_device():
    x = tj.random.normal(shape=(1, 2, 8, 4), device=tj.cpu(1))
    results = [
        tj.nn.attention(x, x, x, causal=True),
        tj.nn.adaptive_avg_pool2d(x, 3),
        tj.nn.conv2d(x, tj.ones((3, 2, 3, 3), device=tj.cpu(1))),
        tj.top_k(x, 2)[0],
        copy.deepcopy(x),
        pickle.loads(pickle.dumps(x)),
    ]
    assert {result.device for result in results} == {tj.cpu(1)}


# ------------------------------------------------------------------------------------------------- programs


def copies(schedule):
    return [task.name for task in schedule.tasks].count("copy_to")


def test_one_copy_for_a_value_and_device():
    @tj.jit
    def step(x):
        return x.to("cpu:1") + 1, x.to("cpu:1") * 2, x.to("cpu:1").to("cpu:0") + x, x.to("cpu:1").to("cpu:2")

    x = tj.arange(5000.0)
    results = step(x)
    assert copies(step.schedule(x)) == 2  # one to cpu:1, one to cpu:2
    for result, expected in zip(results, (1.0, 0.0, 0.0, 0.0), strict=True):
        assert float(result[0]) == expected


def layers(devices):
    generator = np.random.default_rng(1)
    shapes = [(20, 30), (30, 30), (30, 4)]
    drawn = [generator.normal(0, 0.3, shape).astype(np.float32) for shape in shapes]
    return [tj.asarray(w, device=device) for w, device in zip(drawn, devices, strict=True)]


def train(weights, x, y, steps, call):
    def loss_of(weights):
        h = x
        for w in weights[:-1]:
            h = tj.tanh(h.to(w.device) @ w)
        error = h.to(weights[-1].device) @ weights[-1] - y.to(weights[-1].device)
        return (error * error).mean()

    def step(weights):
        loss, gradients = tj.value_and_grad(loss_of)(weights)
        for w, g in zip(weights, gradients, strict=True):
            assert g.device == w.device
            w -= 0.1 * g
        return loss

    run = call(step)
    losses = [float(run(weights)) for _ in range(steps)]
    return losses, [w.numpy() for w in weights]


@pytest.mark.parametrize("call", [lambda f: f, tj.jit], ids=["eager", "jit"])
def test_a_model_whose_layers_lie_on_two_devices_trains_to_the_same_bits(call):
    generator = np.random.default_rng(0)
    x = tj.asarray(generator.normal(size=(64, 20)).astype(np.float32))
    y = tj.asarray(generator.normal(size=(64, 4)).astype(np.float32))
    one, two = tj.cpu(0), tj.cpu(1)
    losses, expected = train(layers([one, one, one]), x, y, 5, call)
    assert losses[-1] < losses[0]
    for devices in ([one, two, two], [two, one, tj.cpu(2)]):
        again, found = train(layers(devices), x, y, 5, call)
        assert again == losses
        for w, v in zip(found, expected, strict=True):
            np.testing.assert_array_equal(w, v)


def test_each_device_has_memory_and_arenas_of_its_own():
    place = tj.cpu(5)
    before = tj.engine.pool_of(5).statistics().allocations

    @tj.jit
    def step(x):
        hidden = tj.tanh(x.to(place) @ tj.ones((100, 100), device=place))
        return (hidden @ hidden).to("cpu:0")

    x = tj.ones((100, 100))
    step(x).wait()
    plan = step.schedule(x).plan
    assert plan.arenas[5] >= 100 * 100 * 4
    assert "arena 5+0" in str(step.schedule(x))
    assert tj.engine.pool_of(5).statistics().allocations > before


def data_parallel(devices):
    """Halves of a batch; each gradient where its half lies, summed on the first device."""
    generator = np.random.default_rng(2)
    w = tj.asarray(generator.normal(size=(16, 3)).astype(np.float32))
    halves = [tj.asarray(generator.normal(size=(32, 16)).astype(np.float32), device=d) for d in devices]

    def loss_of(w, half):
        return (tj.tanh(half @ w) ** 2).mean()

    @tj.jit
    def step(w, halves):
        parts = [tj.grad(loss_of)(w.to(half.device), half) for half in halves]
        total = parts[0].to(w.device)
        for part in parts[1:]:
            total = total + part.to(w.device)
        w -= 0.1 * total

    for _ in range(6):
        step(w, halves)
    return w.numpy()


def test_halves_of_a_batch_on_two_devices_train_to_the_bits_of_one():
    np.testing.assert_array_equal(data_parallel(["cpu:0", "cpu:1"]), data_parallel(["cpu:0", "cpu:0"]))


def test_dropout_masks_of_devices_differ():
    tj.random.seed(11)
    masks = [tj.nn.functional.dropout(tj.ones(1000, device=tj.cpu(i)), 0.5).numpy() != 0 for i in (0, 1)]
    assert 300 < (masks[0] != masks[1]).sum() < 700


def random_step(seed):
    """A program of operators, copies, views and writes on random devices; the same in NumPy with `np`."""

    def step(xp, arrays):
        rng = random.Random(seed)
        arrays = list(arrays)
        for _ in range(14):
            a, b = rng.choice(arrays), rng.choice(arrays)
            place = tj.cpu(rng.randrange(3))
            if xp is tj:
                a, b = a.to(place), b.to(place)
            kind = rng.randrange(6)
            if kind == 0:
                arrays.append(a + b)
            elif kind == 1:
                arrays.append(xp.maximum(a.T, b) - a)
            elif kind == 2:
                arrays.append(a @ b * 0.125)
            elif kind == 3:
                arrays.append(a - a.sum(axis=0))
            else:
                target = arrays[rng.randrange(len(arrays))]
                rows = slice(rng.randrange(4), None, 2)
                target[rows] = (b.to(target.device) if xp is tj else b)[rows] * 0.5
        return arrays

    return step


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [8, 60])
def test_random_programs_over_devices_give_what_numpy_gives(seed, size):
    data = [
        np.random.default_rng(seed + i).integers(-3, 4, (size, size)).astype(np.float64) for i in range(3)
    ]
    step = random_step(seed)
    expected = step(np, [x.copy() for x in data])

    @tj.jit
    def traced(arrays):
        return step(tj, arrays)

    for call in (lambda arrays: step(tj, arrays), traced, traced):
        inputs = [tj.asarray(x, device=tj.cpu(i % 2)) for i, x in enumerate(data)]
        found = call(inputs)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x.numpy(), y, rtol=1e-12)


def test_the_naive_engine_serves_all_devices(monkeypatch):
    expected = data_parallel(["cpu:0", "cpu:1"])
    monkeypatch.setattr(tj.config, "engine", "naive")
    np.testing.assert_array_equal(data_parallel(["cpu:0", "cpu:1"]), expected)


def test_layers_on_two_devices_work_at_once_on_the_parts_of_a_batch():
    """Nothing makes the first layer of a part wait for the second layer of the part before it."""
    first = tj.ones((60, 60), device=tj.cpu(0))
    second = tj.ones((60, 60), device=tj.cpu(1))

    @tj.jit
    def step(parts):
        return [tj.tanh(part @ first).to(tj.cpu(1)) @ second for part in parts]

    parts = [tj.ones((60, 60)) * i for i in range(3)]
    step(parts)
    schedule = step.schedule(parts)
    below = [i for i, task in enumerate(schedule.tasks) if task.lane == 0]
    above = [i for i, task in enumerate(schedule.tasks) if task.lane == 1 and "matmul" in task.name]
    assert len(below) == len(above) == 3
    assert not any(schedule.path(late, early) for late in above for early in below)
    assert [sum(schedule.path(early, late) for early in below) for late in above] == [1, 1, 1]


def test_the_example_trains_both_ways(capsys):
    from examples import two_devices

    for losses in two_devices.main(["--steps", "12"]):
        assert losses[-1] < losses[0] / 2
    assert capsys.readouterr().out.count("1 trace, 11 replays") == 2


def test_data_go_to_the_default_device_and_arrays_stay():
    data, there = np.ones(3, np.float32), tj.ones(3, device="cpu:2")
    with tj.device("cpu:1"):
        for made in (tj.asarray(data), tj.array([1, 2]), tj.asarray([data, data]), tj.fft.fftfreq(4)):
            assert made.device == tj.cpu(1)
        assert tj.asarray(there).device == tj.asarray([there, there]).device == tj.cpu(2)
        assert tj.zeros_like(there).device == tj.cpu(2)
    assert tj.fft.rfftfreq(4, device="cpu:1").device == tj.cpu(1)
    assert tj.astype(there, tj.int32, device="cpu:0").device == tj.cpu(0)
    assert tj.from_dlpack(data, device="cpu:1").device == tj.cpu(1)
    with pytest.raises(ArgumentError, match="cannot be shared with cpu:1"):
        tj.from_dlpack(data, device="cpu:1", copy=False)
