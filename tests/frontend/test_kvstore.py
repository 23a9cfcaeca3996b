"""KVStore of one process: MXNet's interface, against sums and updates written out."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.errors import ArgumentError, DTypeError, ShapeError

SHAPE = (4, 4)
KEYS = [5, 7, 11]
DEVICES = [tj.cpu(i) for i in range(4)]


def full(value, device="cpu:0"):
    return tj.full(SHAPE, value, dtype=tj.float32, device=device)


def store(type="local"):
    kv = tj.kvstore.create(type)
    kv.init(3, tj.zeros(SHAPE))
    kv.init(KEYS, [tj.zeros(SHAPE)] * len(KEYS))
    return kv


def check(array, value):
    np.testing.assert_array_equal(array.numpy(), np.full(SHAPE, value, np.float32))


@pytest.mark.parametrize("type", ["local", "device"])
def test_a_single_key_and_lists_of_keys(type):
    kv = store(type)
    kv.push(3, full(2.0))
    out = full(0)
    kv.pull(3, out=out)
    check(out, 2)
    kv.push(3, full(7.0))  # without an updater, a push replaces
    kv.push(KEYS, [full(4.0)] * len(KEYS))
    outs = [full(0) for _ in KEYS]
    kv.pull(KEYS, out=outs)
    kv.pull(3, out=out)
    check(out, 7)
    for each in outs:
        check(each, 4)


@pytest.mark.parametrize("type", ["local", "device"])
def test_values_of_several_devices_are_summed(type):
    kv = store(type)
    kv.push(3, [full(i + 1.0, d) for i, d in enumerate(DEVICES)])
    outs = [full(0, d) for d in DEVICES]
    kv.pull(3, out=outs)
    for out, device in zip(outs, DEVICES, strict=True):
        assert out.device == device
        check(out, 1 + 2 + 3 + 4)
    values = [[full(2.0, d) for d in DEVICES] for _ in KEYS]
    kv.push(KEYS, values)
    outs = [[full(0, d) for d in DEVICES] for _ in KEYS]
    kv.pull(KEYS, out=outs)
    for out in [each for row in outs for each in row]:
        check(out, 8)
    kv.push([3, 3], [full(1.0), full(2.0)])  # one key twice: the sum
    kv.pull(3, out=out)
    check(out, 3)


def test_an_updater_gets_the_key_the_sum_and_what_is_stored():
    seen = []

    def update(key, received, stored):
        seen.append(key)
        stored += 2 * received

    kv = store()
    kv.set_updater(update)
    for _ in range(3):
        kv.push(KEYS, [[full(1.0, d) for d in DEVICES]] * len(KEYS))
    outs = [full(0) for _ in KEYS]
    kv.pull(KEYS, out=outs)
    for out in outs:
        check(out, 3 * 2 * 4)
    assert seen == KEYS * 3


def test_an_updater_is_traced_with_the_step():
    kv, out = store("device"), full(0)
    kv.set_updater(lambda key, received, stored: stored.__isub__(received * key))

    @tj.jit
    def step(g):
        kv.pushpull(3, [g, g.to("cpu:1")], out=out)

    for turn in range(3):
        step(full(1.0))
        check(out, -6 * (turn + 1))
    assert step.cache_info()[:2] == (1, 2)


def test_pushpull_and_broadcast():
    kv = tj.kvstore.create("device")
    outs = [full(0, d) for d in DEVICES]
    kv.broadcast("w", full(3.0, DEVICES[1]), outs)
    for out in outs:
        check(out, 3)
    values = [full(1.0, d) for d in DEVICES]
    kv.pushpull("w", values)
    for value in values:
        check(value, 4)
    kv.pushpull("w", values, out=outs)
    for out in outs:
        check(out, 16)


def test_init_copies():
    value = full(1.0)
    kv = tj.kvstore.create()
    kv.init(0, value)
    value += 1
    out = full(0)
    kv.pull(0, out)
    check(out, 1)


OPTIMIZERS = [
    (tj.optim.sgd, None, {"lr": 0.1}),
    (tj.optim.momentum, tj.optim.zeros_like, {"lr": 0.1, "nesterov": True}),
    (tj.optim.adam, tj.optim.adam_state, {"lr": 0.01}),
    (tj.optim.adagrad, tj.optim.zeros_like, {}),
    (tj.optim.rmsprop, tj.optim.rmsprop_state, {}),
]


@pytest.mark.parametrize(
    ("optimizer", "state_of", "settings"), OPTIMIZERS, ids=lambda x: getattr(x, "__name__", "")
)
def test_optimizers_update_as_they_do_without_a_store(optimizer, state_of, settings, tmp_path):
    generator = np.random.default_rng(0)
    start = generator.normal(size=SHAPE).astype(np.float32)
    gradients = [generator.normal(size=SHAPE).astype(np.float32) for _ in range(6)]
    w = tj.asarray(start)
    state = () if state_of is None else (state_of(w),)
    for g in gradients:
        optimizer(w, tj.asarray(g), *state, **settings)

    kv = tj.kvstore.create()
    kv.init("w", tj.asarray(start))
    kv.set_optimizer(optimizer, **settings)
    for g in gradients[:3]:
        kv.push("w", tj.asarray(g))
    kv.save_optimizer_states(tmp_path / "states")
    value = full(0)
    kv.pull("w", value)

    again = tj.kvstore.create("device")  # goes on where the first one stopped
    again.init("w", value.to("cpu:2"))
    again.set_optimizer(optimizer, **settings)
    again.load_optimizer_states(tmp_path / "states")
    for g in gradients[3:]:
        again.push("w", tj.asarray(g))
    again.pull("w", value)
    np.testing.assert_array_equal(value.numpy(), w.numpy())


def test_two_bits_with_a_residual():
    kv = tj.kvstore.create("device")
    kv.init(0, tj.zeros(5))
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    generator = np.random.default_rng(3)
    residuals = np.zeros((2, 5), np.float32)
    out, half = tj.zeros(5), np.float32(0.5)

    @tj.jit
    def step(first, second):
        kv.pushpull(0, [first, second], out=out)

    for _ in range(8):
        given = generator.normal(0, 0.4, (2, 5)).astype(np.float32)
        step(tj.asarray(given[0]), tj.asarray(given[1], device="cpu:1"))
        residuals += given
        sent = np.where(residuals >= half, half, np.where(residuals <= -half, -half, np.float32(0)))
        residuals -= sent
        np.testing.assert_array_equal(out.numpy(), sent[0] + sent[1])
    assert step.cache_info().traces == 2  # the residuals are made by the first


def test_a_traced_step_pushes_and_pulls_inside_one_schedule():
    """No Python runs per key in a replay: there is one trace, and its schedule has no Python task."""
    count, lanes = 6, [tj.cpu(0), tj.cpu(1)]
    kv = tj.kvstore.create("device")
    kv.init(list(range(count)), [full(1.0)] * count)
    kv.set_optimizer(tj.optim.sgd, lr=0.5)
    weights = [[full(1.0, d) for d in lanes] for _ in range(count)]

    @tj.jit
    def step():
        for key in range(count):
            kv.push(key, [w * 0.25 for w in weights[key]], priority=-key)
            kv.pull(key, out=weights[key], priority=-key)

    for turn in range(4):
        step()
        for w in [each for row in weights for each in row]:
            np.testing.assert_allclose(w.numpy(), 0.75 ** (turn + 1))
    info = step.cache_info()
    assert (info.traces, info.replays) == (1, 3)
    (schedule,) = step.schedules()
    assert all(task.callable is None for task in schedule.tasks)
    moved = [task for task in schedule.tasks if task.name == "copy_to"]
    assert sorted({task.priority for task in moved}) == list(range(-count + 1, 1))
    assert {task.lane for task in moved} == {0, 1}
    assert not [edge for edge in _edges(schedule) if edge[0] != edge[1]]


def _edges(schedule):
    """Pairs of priorities of copies of which one waits for the other: keys are independent."""
    moved = [i for i, task in enumerate(schedule.tasks) if task.name == "copy_to"]
    pairs = [(a, b) for a in moved for b in moved if a != b and schedule.path(a, b)]
    return [(schedule.tasks[a].priority, schedule.tasks[b].priority) for a, b in pairs]


def test_facts():
    kv = tj.kvstore.create()
    assert (kv.type, kv.rank, kv.num_workers) == ("local", 0, 1)
    assert (kv.is_capable("optimizer"), kv.is_capable("Optimizer"), kv.is_capable("x")) == (True, True, False)
    kv.barrier()


@pytest.mark.parametrize(
    ("name", "type", "place"),
    [
        ("local_allreduce_cpu", "local", "cpu:0"),
        ("local_update_cpu", "local", "cpu:0"),
        ("local_allreduce_device", "device", "cpu:1"),
        ("Device", "device", "cpu:1"),
        ("dist", "dist_sync", "cpu:0"),
        ("dist_sync", "dist_sync", "cpu:0"),
        ("dist_sync_device", "dist_device_sync", "cpu:1"),
        ("dist_device_sync", "dist_device_sync", "cpu:1"),
        ("dist_async_device", "dist_device_async", "cpu:1"),
    ],
)
def test_names_of_stores(name, type, place):
    kv, seen = tj.kvstore.create(name), []
    kv.init("w", tj.zeros(2, device=tj.cpu(1)))
    kv.set_updater(lambda key, received, stored: seen.append(str(stored.device)))
    for _ in range(1 + kv.staleness):
        kv.push("w", tj.ones(2))
    assert (kv.type, kv.num_workers, seen) == (type, 1, [place])


def two_bits(kv, **parameters):
    kv.set_gradient_compression({"type": "2bit", **parameters})


class Sparse:
    """As a matrix of SciPy's."""

    nnz = 2


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ArgumentError, "no store 'nccl'; 'device' does the same", lambda kv: tj.kvstore.create("nccl")),
        (ArgumentError, "no store 'horovod'; 'dist_sync' does", lambda kv: tj.kvstore.create("horovod")),
        (ArgumentError, "no store 'server'; expected one of", lambda kv: tj.kvstore.create("server")),
        (ArgumentError, "no store 3; expected one of 'local'", lambda kv: tj.kvstore.create(3)),
        (ArgumentError, "for 'dist_async' only; got 1", lambda kv: tj.kvstore.create("dist_device_sync", 1)),
        (ArgumentError, "the key 3 is known already", lambda kv: kv.init(3, full(0))),
        (ArgumentError, "keys are integers or strings, got float", lambda kv: kv.init(1.5, full(0))),
        (ArgumentError, "the key 'x' is not known .* call init first", lambda kv: kv.push("x", full(0))),
        (ArgumentError, "the key 'x' is not known", lambda kv: kv.pull("x", full(0))),
        (ArgumentError, "2 keys and 1 values", lambda kv: kv.push([3, 5], [full(0)])),
        (ArgumentError, "of the key 3 is float; expected arrays", lambda kv: kv.push(3, 1.0)),
        (ArgumentError, "of the key 3 is nothing", lambda kv: kv.push(3, [])),
        (ArgumentError, r"is Sparse; expected dense arrays.*toarray\(\)", lambda kv: kv.push(3, Sparse())),
        (ArgumentError, "pull: needs out=", lambda kv: kv.pull(3)),
        (ShapeError, r"shape \(2,\) for the key 3, which has \(4, 4\)", lambda kv: kv.push(3, tj.zeros(2))),
        (ShapeError, r"pull: an array of shape \(2,\)", lambda kv: kv.pull(3, tj.zeros(2))),
        (DTypeError, "an array of int64 for the key 3", lambda kv: kv.push(3, tj.zeros(SHAPE, tj.int64))),
        (ArgumentError, "set_updater: expected a function", lambda kv: kv.set_updater(3)),
        (ArgumentError, "set_optimizer: expected a function", lambda kv: kv.set_optimizer("sgd")),
        (ArgumentError, "type '1bit'; expected", lambda kv: two_bits(kv, type="1bit")),
        (ArgumentError, "parameters bits; expected", lambda kv: two_bits(kv, bits=2)),
        (ArgumentError, "threshold must be a number above 0", lambda kv: two_bits(kv, threshold=0)),
        (ArgumentError, "there is no optimizer", lambda kv: kv.save_optimizer_states("x")),
        (ArgumentError, "there is no optimizer", lambda kv: kv.load_optimizer_states("x")),
    ],
)
def test_what_does_not_fit_is_refused_with_the_line(error, message, call):
    with pytest.raises(error, match=rf"(?s){message}.*test_kvstore\.py"):
        call(store())


def test_states_of_other_keys_are_refused(tmp_path):
    kv, other = store(), tj.kvstore.create()
    other.init("w", full(0))
    for each in (kv, other):
        each.set_optimizer(tj.optim.momentum, lr=0.1)
    other.save_optimizer_states(tmp_path / "states")
    with pytest.raises(ArgumentError, match=r"states of the keys \['w'\], expected \[3, 5, 7, 11\]"):
        kv.load_optimizer_states(tmp_path / "states")
