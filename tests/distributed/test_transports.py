"""Programs between ranks on one process: a transport of the test stands for the others."""

import threading

import numpy as np
import pytest

import tracejit as tj
from tracejit import ops
from tracejit.assembly import link
from tracejit.distributed import world
from tracejit.errors import PeerError
from tracejit.ir.graph import Node, Value
from tracejit.ir.types import ArrayType
from tracejit.ops import communicate

LAYERS = 4


class Mirror:
    """Another rank, which has what this one has; `hold`, `fail`: whether an exchange waits, or fails."""

    rank, size = 0, 2

    def __init__(self):
        self.begun, self.held, self.tags = [], [], []
        self.agreed = 0
        self.hold = self.fail = lambda node: False
        self.arrived = threading.Event()

    def post(self, node, operands, results, tag, done):
        def end(error=None):
            for result in results:
                result += result
            done(error)

        self.begun.append(node.attrs["priority"])
        self.tags.append(tag)
        if self.fail(node):
            done(PeerError("rank 1 is gone"))
        elif self.hold(node):
            self.held.append(end)
        else:
            end()
        self.arrived.set()

    def agree(self, node, failure, done):
        self.agreed += 1
        done(None)

    def progress(self, wanted):
        pass

    def plan(self, node):
        return None


@pytest.fixture
def mirror(monkeypatch):
    made = Mirror()
    monkeypatch.setattr(world, "_transport", made)
    monkeypatch.setattr(communicate, "_transports", [made])
    monkeypatch.setattr(link, "_orders", {})  # those of a transport that has failed stay poisoned
    yield made
    for end in made.held:
        end()
    tj.wait_all()


def training(**functions):
    """A step on a perceptron whose gradients are exchanged layer by layer, and its parameters."""
    rng = np.random.default_rng(0)
    w = [tj.asarray(rng.standard_normal((8, 8)).astype("f") / 4) for _ in range(LAYERS)]
    before = functions.get("before", lambda x, layer: x)

    def loss_of(w, x):
        for number, layer in enumerate(w):
            x = tj.tanh(before(x, number) @ layer)
        return (x * x).mean()

    @tj.jit
    def step(x):
        loss, gradients = tj.value_and_grad(loss_of)(w, x)
        for number, gradient in enumerate(gradients):
            w[number] -= tj.distributed.all_reduce(gradient, priority=-number)
        return loss

    return step, w, tj.asarray(rng.standard_normal((4, 8)).astype("f"))


def test_no_backward_task_waits_for_an_exchange(mirror):
    step, _, x = training()
    step(x)
    schedule = step.schedule(x)
    locations, nodes = schedule.plan.locations, [task.node for task in schedule.plan.tasks]
    exchanges = {node.attrs["priority"]: n for n, node in enumerate(nodes) if node.op is ops.exchange}
    assert sorted(exchanges) == [-3, -2, -1, 0]
    for layer in range(LAYERS):
        for lower in range(layer):
            assert not schedule.path(exchanges[-layer], exchanges[-lower])
            assert not schedule.path(exchanges[-lower], exchanges[-layer])
    agree = next(n for n, node in enumerate(nodes) if node.op is ops.agree)
    writers = [n for n, node in enumerate(nodes) for v in node.outputs if "input" in str(locations[v])]
    assert len(writers) == LAYERS
    assert all(schedule.path(agree, n) for n in writers)


def test_no_lower_backward_task_lies_on_a_path_of_an_exchange(mirror):
    """Static: what computes a lower layer's gradient neither waits for a higher one's exchange, nor the other
    way round.
    """
    step, _, x = training()
    step(x)
    schedule = step.schedule(x)
    tasks, nodes = schedule.tasks, [task.node for task in schedule.plan.tasks]
    made = {node.attrs["priority"]: tasks[n].after for n, node in enumerate(nodes) if node.op is ops.exchange}
    exchanges = {node.attrs["priority"]: n for n, node in enumerate(nodes) if node.op is ops.exchange}
    for layer in range(1, LAYERS):
        for lower in range(layer):
            for producer in made[-lower]:
                assert not schedule.path(exchanges[-layer], producer)
                assert not schedule.path(producer, exchanges[-layer])


@pytest.mark.parametrize("held", range(LAYERS))
def test_everything_else_is_exchanged_while_one_exchange_is_held_up(mirror, held):
    step, w, x = training()
    for _ in range(2):
        step(x)  # recorded, then replayed
    tj.wait_all()
    mirror.begun.clear()
    mirror.hold = lambda node: node.attrs["priority"] == -held
    before = [layer.numpy().copy() for layer in w]
    step(x)
    while len(mirror.begun) < LAYERS:  # rendezvous: the others begin although one has not ended
        assert mirror.arrived.wait(20)
        mirror.arrived.clear()
    for number, layer in enumerate(w):
        if number != held:
            assert not np.array_equal(layer.numpy(), before[number])
    mirror.held.pop()()
    assert not np.array_equal(w[held].numpy(), before[held])


def test_no_result_is_read_before_the_ranks_have_agreed(mirror):
    """It may come from what another rank sent when it had failed."""

    @tj.jit
    def step(x, w):
        gradient = tj.distributed.all_reduce(x)
        w += gradient
        return gradient, gradient.sum()

    schedule = step.schedule(tj.ones(4), tj.zeros(4))
    (agree,) = [t for t, planned in enumerate(schedule.plan.tasks) if planned.node.op is ops.agree]
    count = len(schedule.graph.inputs)
    assert {count, count + 1} <= set(schedule.tasks[agree].uses)


def test_a_launch_gets_numbers_of_its_own_for_its_exchanges(mirror):
    step, _, x = training()
    for _ in range(3):
        step(x)
    tj.wait_all()
    assert len(set(mirror.tags)) == 3 * LAYERS
    assert mirror.agreed == 3


def test_a_failing_exchange_poisons_what_the_step_writes(mirror):
    step, w, x = training()
    step(x)
    tj.wait_all()
    mirror.fail = lambda node: node.attrs["priority"] == -1
    step(x)
    for layer in w:
        for _ in range(2):
            with pytest.raises(PeerError, match="rank 1 is gone"):
                layer.numpy()
    mirror.fail = lambda node: False
    with pytest.raises(PeerError):
        step(x).numpy()
    w[:] = [tj.ones((8, 8)) for _ in w]  # as from a checkpoint


def test_a_step_that_checks_and_counts_does_not_wait_for_its_exchanges(mirror):
    """Nor does the next one: steps overlap, although each rebinds a number that a failure would not have
    rebound.
    """
    state = {"t": 0, "w": tj.zeros(8)}

    @tj.jit
    def step(x, index):
        state["w"] -= tj.distributed.all_reduce(x[index].sum(axis=0))
        state["t"] += 1

    x, index = tj.ones((4, 8)), tj.asarray([1, 3])
    for _ in range(2):
        step(x, index)
    mirror.hold = lambda node: True
    step(x, index)
    step(x, index)
    assert (state["t"], mirror.agreed) == (4, 4)
    variable = state["w"].__variable__()
    assert not variable.ready
    while not variable.ready:
        if mirror.held:
            mirror.held.pop()()
    assert state["w"].tolist() == [-16.0] * 8


def test_an_exchange_whose_result_nobody_needs_takes_place(mirror):
    step = tj.jit(lambda x: (tj.distributed.all_reduce(x), x + 1)[1])
    for _ in range(3):
        step(tj.ones(3))
    tj.wait_all()
    assert len(mirror.begun) == 3


def test_equal_exchanges_are_not_merged_and_operands_stay(mirror):
    @tj.jit
    def step(x):
        return tj.distributed.all_reduce(x) + tj.distributed.all_reduce(x) + x

    x = tj.arange(3.0)
    for _ in range(3):
        assert step(x).tolist() == [0, 5, 10]
    assert x.tolist() == [0, 1, 2]
    assert len(mirror.begun) == 6


def test_exchanges_are_not_recomputed_in_a_backward_pass(mirror):
    @tj.jit
    def step(x):
        return tj.grad(lambda x: tj.checkpoint(lambda x: tj.distributed.all_reduce(tj.sin(x)).sum())(x))(x)

    for _ in range(2):
        np.testing.assert_allclose(step(tj.ones(3)).numpy(), 2 * np.cos(np.ones(3)), rtol=1e-6)
    tj.wait_all()  # no result depends on the forward ones
    assert len(mirror.begun) == 4  # one forward, one backward


def test_kernels_before_an_exchange_are_urgent(mirror):
    step, _, x = training()
    step(x)
    schedule = step.schedule(x)
    for task, planned in zip(schedule.tasks, schedule.plan.tasks, strict=True):
        if planned.node.op is ops.exchange:
            assert all(schedule.tasks[n].priority > 0 for n in task.after)


def test_a_kept_graph_refuses_exchanges(mirror):
    with pytest.raises(tj.TracejitError, match="exported graph"):
        tj.export(tj.distributed.all_reduce, tj.spec((3,)))


def exchange_of(shape, **attrs):
    value = Value(ArrayType(shape, np.dtype("float32")))
    return Node(ops.exchange, (value,), (), {"combine": "sum", "priority": 0, "token": None, **attrs})


def test_ranks_compare_what_they_exchange_and_groups_their_arrays():
    """All ranks the operators and what all exchange, the ranks of a group what these exchange."""
    pairs = ((0, 1), (2, 3))
    whole, within = communicate.digests([exchange_of((3,)), exchange_of((4,), groups=pairs)])
    assert [groups for groups, _ in within] == [pairs]
    other, elsewhere = communicate.digests([exchange_of((3,)), exchange_of((5,), groups=pairs)])
    assert whole == other
    assert within != elsewhere
    for nodes in (
        [exchange_of((2,)), exchange_of((4,), groups=pairs)],
        [exchange_of((3,)), exchange_of((4,), groups=((0, 2), (1, 3)))],
        [exchange_of((3,)), exchange_of((4,), groups=pairs, combine="max")],
        [exchange_of((3,))],
    ):
        assert communicate.digests(nodes)[0] != whole
