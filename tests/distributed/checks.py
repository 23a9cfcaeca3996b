"""What ranks check; `test_ranks.py` starts them: ``checks.py FOLDER [NAMES]`` writes results by rank."""

import functools
import hashlib
import itertools
import json
import os
import pathlib
import sys
import traceback

import numpy as np

import tracejit as tj
from tracejit.distributed.window import BLOCK
from tracejit.errors import ArgumentError, DTypeError, OutOfBoundsError, PeerError, ShapeError
from tracejit.ops.communicate import transport

CHECKS = []
POWERS = 10.0 ** np.arange(-3, 4)
DEVICES = None  # those of this rank that share its part of a batch


def check(function):
    CHECKS.append(function)
    return function


def value(rank, shape, dtype="float32"):
    """What rank `rank` has: numbers whose sum depends on the order in which they are added."""
    rng = np.random.default_rng([rank, 7])
    return (rng.standard_normal(shape) * POWERS[rng.integers(0, len(POWERS), shape)]).astype(dtype)


def tree_of(parts, function=np.add):
    """Combined in a balanced tree: the oracle."""
    while len(parts) > 1:
        pairs = [function(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, parts[-1]] if len(parts) % 2 else pairs
    return parts[0]


def same(array, expected):
    assert array.dtype == expected.dtype
    assert array.shape == expected.shape
    assert array.numpy().tobytes() == np.ascontiguousarray(expected).tobytes()


def everywhere(function):
    return [function(rank) for rank in range(N)]


def raised(call, kind):
    """The error that a call raises."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


@check
def sums_are_balanced_trees():
    for shape in [(), (3,), (0, 2), (7, 5), (123, 457), (3, 200_001)]:  # the last two in slices, and chunks
        for dtype in ["float32", "float64"]:
            got = tj.distributed.all_reduce(tj.asarray(value(R, shape, dtype)))
            same(got, np.asarray(tree_of(everywhere(lambda r: value(r, shape, dtype)))))  # noqa: B023
    for dtype in [tj.int32, tj.float16, tj.bfloat16]:
        got = tj.distributed.all_reduce(tj.full(3, R + 1).astype(dtype))
        assert got.dtype == dtype
        assert got.astype("float64").tolist() == [N * (N + 1) / 2] * 3


@check
def other_reductions():
    x = tj.asarray(value(R, (4, 3)))
    parts = everywhere(lambda r: value(r, (4, 3)))
    same(tj.distributed.all_reduce(x, op="max"), tree_of(parts, np.maximum))
    same(tj.distributed.all_reduce(x, op="min"), tree_of(parts, np.minimum))
    same(tj.distributed.all_reduce(x, op="mean"), tree_of(parts) * np.float32(1 / N))
    same(x, value(R, (4, 3)))  # as it was


@check
def containers_travel_in_buckets():
    tree = {"a": [tj.full(5, R + 1.0), tj.full(2, R)], "b": tj.ones((1200, 1000)), "c": tj.ones(3)}
    got = tj.distributed.all_reduce(tree)
    assert got["a"][0].tolist() == [N * (N + 1) / 2] * 5
    assert got["a"][1].tolist() == [N * (N - 1) / 2] * 2
    assert float(got["b"].min()) == float(got["b"].max()) == N
    assert got["c"].tolist() == [N] * 3


@check
def many_exchanges_are_under_way_at_once():
    """More than there are blocks; of launches in a row, some of several arrays."""
    sizes = [300_000, 5, 70_001, 7, 200_000, 260_000, 11, 250_000, 240_001, 3]
    step = tj.jit(lambda arrays: tj.distributed.all_reduce(arrays))
    expected = [tree_of(everywhere(lambda r: value(r, n))) for n in sizes]  # noqa: B023
    mine = [tj.asarray(value(R, n)) for n in sizes]
    for found in [step(mine) for _ in range(6)]:
        for got, right in zip(found, expected, strict=True):
            same(got, right)


@check
def steps_exchange_without_python():
    """Where there is shared memory, and no profile is recorded. One block is not enough for two at once."""
    carrier, posted = transport(), []
    outer = carrier.post

    def post(node, *rest):
        posted.append(node.op.name)
        outer(node, *rest)

    arrays = [tj.asarray(value(R, n)) for n in (70_000, 9, 200_000)]
    step = tj.jit(lambda arrays: tj.distributed.all_reduce(arrays))
    step(arrays)
    tj.wait_all()
    carrier.post = post
    try:
        for _ in range(3):
            found = step(arrays)
            tj.wait_all()
    finally:
        carrier.post = outer
    for got, n in zip(found, (70_000, 9, 200_000), strict=True):
        same(got, tree_of(everywhere(lambda r: value(r, n))))  # noqa: B023
    by_python = tj.config.window == 0 or "TRACEJIT_TIMELINE" in os.environ
    assert bool(posted) == by_python or tj.config.window == BLOCK, posted


@check
def gathers_scatters_and_broadcasts():
    got = tj.distributed.all_gather(tj.asarray(value(R, (2, 3))))
    same(got, np.stack(everywhere(lambda r: value(r, (2, 3)))))
    part = tj.distributed.reduce_scatter(tj.asarray(value(R, (N * 2, 3))))
    same(part, tree_of(everywhere(lambda r: value(r, (N * 2, 3))))[2 * R : 2 * R + 2])
    first, second = tj.distributed.broadcast([tj.asarray(value(R, 4)), tj.full((), R)], root=N - 1)
    same(first, value(N - 1, 4))
    assert int(second) == N - 1


COLORS = [lambda rank: rank % 2, lambda rank: rank // 2, lambda rank: -min(rank, 1), lambda rank: rank]


def members_of(color):
    return [rank for rank in range(N) if color(rank) == color(R)]


@check
def groups_exchange_among_themselves():
    for color in COLORS:
        group, members = tj.distributed.split(color(R)), members_of(color)
        assert (group.rank, group.size, list(group.members)) == (members.index(R), len(members), members)
        for shape in [(7,), (123, 457)]:
            x = tj.asarray(value(R, shape))
            sums = tree_of([value(r, shape) for r in members])

            def combine(x):
                total = tj.distributed.all_reduce(x, group=group)  # noqa: B023
                mean = tj.distributed.all_reduce(x, op="mean", group=group)  # noqa: B023
                return total, mean, tj.distributed.all_gather(x, group=group)  # noqa: B023

            step = tj.jit(combine)
            for call in (combine, step, step):
                total, mean, gathered = call(x)
                same(total, sums)
                same(mean, sums * np.float32(1 / len(members)))
                same(gathered, np.stack([value(r, shape) for r in members]))
        part = tj.distributed.reduce_scatter(tj.asarray(value(R, (12, 3))), op="max", group=group)
        each = 12 // len(members)
        whole = tree_of([value(r, (12, 3)) for r in members], np.maximum)
        same(part, whole[each * group.rank : each * (group.rank + 1)])
        count = 4 + members[0]  # arrays differ between groups
        got = tj.distributed.broadcast(tj.asarray(value(R, count)), root=group.size - 1, group=group)
        same(got, value(members[-1], count))


@check
def groups_are_divided_and_mixed():
    """Sums over columns of a grid of ranks, gathered over its rows."""
    halves = tj.distributed.split(R // 2)
    pairs = tj.distributed.split(R % 2)
    single = tj.distributed.split(R % 2, group=halves)
    assert (single.size, single.members) == (1, (R,))
    total = tj.distributed.all_reduce(tj.full((1, 2), R), group=halves)
    got = tj.distributed.all_gather(total, group=pairs)
    sums = [sum(r for r in range(N) if r // 2 == half) for half in range((N + 1) // 2)]
    assert got[:, 0, 0].tolist() == [sums[r // 2] for r in pairs.members]


@check
def gradients_and_messages_go_through_groups():
    pairs = tj.distributed.split(R // 2)
    x = tj.full(3, R + 1.0)
    step = tj.jit(tj.grad(lambda x: (tj.distributed.all_reduce(x, group=pairs) ** 2).sum()))
    expected = 2 * pairs.size * sum(r + 1.0 for r in pairs.members)
    for _ in range(2):
        assert step(x).tolist() == [expected] * 3
    first = tj.grad(lambda x: tj.distributed.broadcast(x, root=1, group=pairs).sum())(x)
    assert first.tolist() == [float(pairs.size) if pairs.rank == 1 else 0.0] * 3
    turn, x = pairs.rank == 0, tj.ones(4)
    for _ in range(6):
        if turn:
            tj.distributed.send(2 * x, to=1 - pairs.rank, group=pairs)
        else:
            x = tj.distributed.receive(x, source=1 - pairs.rank, group=pairs)
        turn = not turn
    assert x.tolist() == [64.0 if pairs.rank == 0 else 32.0] * 4


@check
def bad_groups():
    own = tj.distributed.split(R)
    for call, told in [
        (lambda: tj.distributed.all_reduce(tj.ones(2), group=3), "created by tj.distributed.split, got int"),
        (lambda: tj.distributed.broadcast(tj.ones(2), root=1, group=own), "root must be a rank from 0 to 0"),
        (lambda: tj.distributed.send(tj.ones(2), to=0, group=own), "to=0 is this rank itself"),
        (lambda: tj.distributed.receive(tj.ones(2), source=1, group=own), "source must be a rank from 0"),
        (lambda: tj.distributed.split(1.5), "color must be a 64-bit integer"),
        (lambda: tj.jit(lambda: tj.distributed.split(0))(), "inside a traced function"),
    ]:
        error = str(raised(call, ArgumentError))
        assert told in error
        assert "checks.py" in error


@check
def messages_of_a_ring_keep_their_order():
    for number in range(3):
        tj.distributed.send(tj.full(2, 10 * R + number), to=(R + 1) % N)
    got = [tj.distributed.receive(tj.zeros(2, dtype=tj.int64), source=(R - 1) % N) for _ in range(3)]
    assert [x.tolist() for x in got] == [[10 * ((R - 1) % N) + number] * 2 for number in range(3)]


@check
def bad_arguments():
    for call, kind in [
        (lambda: tj.distributed.all_reduce(3), ArgumentError),
        (lambda: tj.distributed.all_reduce(tj.ones(2), op="xor"), ArgumentError),
        (lambda: tj.distributed.all_reduce(tj.arange(2), op="mean"), ArgumentError),
        (lambda: tj.distributed.all_reduce(tj.ones(2, dtype="complex64"), op="max"), DTypeError),
        (lambda: tj.distributed.reduce_scatter(tj.ones(N, dtype="complex64"), op="min"), DTypeError),
        (lambda: tj.distributed.reduce_scatter(tj.ones(N + 1)), ShapeError),
        (lambda: tj.distributed.broadcast(tj.ones(2), root=N), ArgumentError),
        (lambda: tj.distributed.send(tj.ones(2), to=R), ArgumentError),
        (lambda: next(tj.distributed.sampler(10, N + 1)), ArgumentError),
        (lambda: tj.distributed.data_parallel(None, shards=3), ArgumentError),
        (lambda: tj.vmap(tj.distributed.all_reduce)(tj.ones((2, 2))), ArgumentError),
    ]:
        assert "checks.py" in str(raised(call, kind))


@check
def gradients_go_through_a_sum():
    def loss(x):
        return (tj.distributed.all_reduce(x) ** 2).sum()

    x = tj.full(3, R + 1.0)
    for gradient in (tj.grad(loss)(x), tj.jit(tj.grad(loss))(x)):
        assert gradient.tolist() == [N * N * (N + 1)] * 3  # each rank's loss depends on each rank's x


@check
def gradients_go_through_gathers_scatters_and_broadcasts():
    weights = tj.asarray(value(0, (N, 2 * N, 3)))
    x = tj.asarray(value(R, (2 * N, 3)))

    def gathered(x):
        return (tj.distributed.all_gather(x) * weights * (R + 1)).sum()

    def scattered(x):
        return (tj.distributed.reduce_scatter(x) * weights[0, :2] * (R + 1)).sum()

    def sent(x):
        first, second = tj.distributed.broadcast([x, x * 2], root=N - 1)
        return ((first + 0 * second) * weights[0] * (R + 1)).sum() + second.sum()

    w, ranks = weights.numpy(), np.arange(1.0, N + 1)
    expected = {
        gathered: w[R] * ranks.sum(),
        scattered: np.concatenate([w[0, :2] * r for r in ranks]),
        sent: (w[0] * ranks.sum() + 2 * N) * (R == N - 1),
    }
    for loss, gradient in expected.items():
        step = tj.jit(tj.grad(loss))
        for got in (tj.grad(loss)(x), step(x), step(x)):
            np.testing.assert_allclose(got.numpy(), gradient, rtol=1e-5)
    for refused in (
        lambda x: tj.distributed.reduce_scatter(x, op="max").sum(),
        lambda x: tj.distributed.all_reduce(x, op="max").sum(),
    ):
        assert "is not known; use 'sum'" in str(raised(lambda: tj.grad(refused)(x), ArgumentError))  # noqa: B023


def perceptron():
    rng = np.random.default_rng(0)
    sizes = [6, 16, 16, 3]
    return [tj.asarray(rng.standard_normal(s).astype("f") / 3) for s in itertools.pairwise(sizes)]


def loss_of(w, x, y):
    for layer in w[:-1]:
        x = tj.tanh(x @ layer)
    return ((x @ w[-1] - y) ** 2).mean()


def batches(n=32, count=4):
    rng = np.random.default_rng(1)
    return [
        (rng.standard_normal((n, 6)).astype("f"), rng.standard_normal((n, 3)).astype("f"))
        for _ in range(count)
    ]


def mine(batch):
    """This rank's part of the batch of all."""
    n = len(batch[0]) // N
    return [tj.asarray(x[R * n : (R + 1) * n]) for x in batch]


def digest(arrays):
    return hashlib.sha256(b"".join(x.numpy().tobytes() for x in arrays)).hexdigest()


@check
def data_parallel_training_is_the_same_on_any_number_of_ranks():
    w, velocity = perceptron(), tj.optim.zeros_like(perceptron())
    mean = tj.distributed.data_parallel(loss_of, shards=4, devices=DEVICES)

    @tj.jit
    def step(x, y):
        loss, gradients = mean(w, x, y)
        tj.optim.momentum(w, gradients, velocity, lr=0.1)
        return loss

    losses = [step(*mine(batch)) for _ in range(2) for batch in batches()]
    assert float(losses[-1]) < float(losses[0])
    assert len(set(everywhere_digests(digest([*w, *losses])))) == 1
    FACTS["data_parallel"] = digest([*w, *losses])


def everywhere_digests(text):
    """The digests of all ranks."""
    number = tj.asarray(np.frombuffer(bytes.fromhex(text), np.int64).copy())
    return [tuple(row) for row in tj.distributed.all_gather(number).tolist()]


def kv_training(kind, **settings):
    kv = tj.kvstore.create(kind, **settings)
    w = perceptron()
    for i, layer in enumerate(w):
        kv.init(i, layer + R)  # that of rank 0 counts
    kv.set_optimizer(tj.optim.momentum, lr=0.05)
    kv.pull(list(range(len(w))), out=w)

    @tj.jit
    def step(x, y):
        loss, gradients = tj.value_and_grad(loss_of)(w, x, y)
        for i, gradient in enumerate(gradients):
            kv.push(i, gradient * (1 / N), priority=-i)
            kv.pull(i, out=w[i], priority=-i)
        return loss

    losses = [step(*mine(batch)) for _ in range(2) for batch in batches()]
    return kv, w, losses


@check
def sharded_optimizers_give_the_same_bits_and_keep_a_part_of_the_state():
    for optimizer, make, settings in [
        (tj.optim.adam, tj.optim.adam_state, {"lr": 0.01, "weight_decay": 0.1}),
        (tj.optim.momentum, tj.optim.zeros_like, {"lr": 0.1}),
        (tj.optim.sgd, None, {"lr": 0.1}),
    ]:
        w, sharded, again = perceptron(), perceptron(), perceptron()
        whole = () if make is None else (make(w),)
        update, state = tj.distributed.shard_optimizer(optimizer, sharded)
        summed, parts = tj.distributed.shard_optimizer(optimizer, again, op=None)

        @tj.jit
        def step(x, y):
            _, gradients = tj.value_and_grad(loss_of)(w, x, y)  # noqa: B023
            gradients = tj.distributed.all_reduce(gradients, op="mean")
            optimizer(w, gradients, *whole, **settings)  # noqa: B023

        @tj.jit
        def sharded_step(x, y):
            _, gradients = tj.value_and_grad(loss_of)(sharded, x, y)  # noqa: B023
            update(sharded, gradients, state, **settings)  # noqa: B023
            gradients = tj.distributed.all_reduce(tj.grad(loss_of)(again, x, y), op="mean")  # noqa: B023
            summed(again, gradients, parts, **settings)  # noqa: B023

        for batch in batches():
            step(*mine(batch))
            sharded_step(*mine(batch))
        assert digest(w) == digest(sharded) == digest(again)
        if make is not None:
            kept = sum(x.size for x in tj.tree.leaves(state) if isinstance(x, tj.NDArray))
            full = sum(x.size for x in tj.tree.leaves(whole[0]) if isinstance(x, tj.NDArray))
            assert kept == -(-full // N)


@check
def a_sharded_optimizer_takes_any_shapes_and_dtypes():
    params = [tj.ones(3), tj.ones((), dtype="float64"), tj.ones((2, 1)), 7]
    gradients = [tj.full(3, R), tj.full((), R, dtype="float64"), tj.full((2, 1), R), None]
    gradients = [g if g is None else g.astype(p.dtype) for p, g in zip(params, gradients, strict=True)]
    update, state = tj.distributed.shard_optimizer(tj.optim.sgd, params, op="sum")
    update(params, gradients, state, lr=1.0)
    for x in params[:3]:
        assert np.unique(x.numpy()).tolist() == [1 - N * (N - 1) / 2]


@check
def states_of_sharded_optimizers_are_gathered_and_divided_again():
    """As for a checkpoint, which other numbers of ranks load: their padding differs."""
    params = [tj.ones(7), tj.ones((2, 2)), tj.ones(13, dtype="float64")]
    update, state = tj.distributed.shard_optimizer(tj.optim.adam, params)
    update(params, [x * (R + 1) for x in params], state)
    whole = tj.distributed.gather_state(state)
    lengths = [x.size for x in tj.tree.leaves(whole["state"]) if isinstance(x, tj.NDArray)]
    assert lengths == [-(-n // N) * N for n in (13, 11)] * 2
    again = tj.distributed.scatter_state(whole, like=state)
    same_trees(again, state)
    for ranks in (1, 3, 16):
        foreign = tj.tree.map(functools.partial(padded_for, ranks), whole["state"])
        found = tj.distributed.scatter_state({"ranks": ranks, "state": foreign}, like=state)
        same_trees(found, state)
    _, other = tj.distributed.shard_optimizer(tj.optim.momentum, params)
    _, wider = tj.distributed.shard_optimizer(tj.optim.adam, [tj.ones(70), tj.ones(1, dtype="float64")])
    for given, like, told in [
        (whole, other, "of another optimizer"),
        (whole, wider, "is not of these parameters"),
        (state, state, "expected a result of gather_state, got dict"),
    ]:
        call = lambda: tj.distributed.scatter_state(given, like)  # noqa: B023, E731
        assert told in str(raised(call, ArgumentError))
    refused = raised(lambda: tj.jit(tj.distributed.gather_state)(state), ArgumentError)
    assert "inside a traced function" in str(refused)


def padded_for(ranks, x):
    """A leaf of the state above, as so many ranks gather it."""
    if not isinstance(x, tj.NDArray):
        return x
    count = 13 if x.dtype == tj.float64 else 11
    return tj.concat([x[:count], tj.zeros(-count % ranks, dtype=x.dtype)])


def same_trees(found, expected):
    """Equal trees, with equal bits."""
    pairs = zip(tj.tree.leaves(found), tj.tree.leaves(expected), strict=True)
    for x, y in pairs:
        assert type(x) is type(y)
        assert x == y if not isinstance(x, tj.NDArray) else x.numpy().tobytes() == y.numpy().tobytes()


@check
def sharded_optimizers_refuse():
    w = [tj.ones(3)]
    update, state = tj.distributed.shard_optimizer(tj.optim.momentum, w)
    for call, told in [
        (lambda: tj.distributed.shard_optimizer(tj.optim.lamb, w), "lamb needs norms of whole parameters"),
        (
            lambda: tj.distributed.shard_optimizer(tj.optim.sgd, w, op="max"),
            "op must be 'mean', 'sum' or None",
        ),
        (lambda: update(w, [None], state, lr=0.1), "has no gradient"),
        (lambda: update([tj.ones(4)], [tj.ones(4)], state, lr=0.1), "created for"),
    ]:
        assert told in str(raised(call, ArgumentError))


@check
def a_shared_store_sums_over_ranks():
    kv, w, losses = kv_training("dist_sync")
    assert (kv.rank, kv.num_workers) == (R, N)
    assert len(set(everywhere_digests(digest(w)))) == 1
    _, again, _ = kv_training("dist_async", staleness=0)
    assert digest(w) == digest(again)
    _, late, late_losses = kv_training("dist_async", staleness=2)
    assert digest(late) != digest(w)
    assert len(set(everywhere_digests(digest(late)))) == 1
    whole = float(tj.distributed.all_reduce(late_losses[-1]))
    assert whole < float(tj.distributed.all_reduce(late_losses[0]))
    FACTS["losses"] = [float(x) for x in losses]


@check
def a_shared_store_as_in_mxnet():
    kv = tj.kvstore.create("dist_sync")
    shape, keys = (2, 3), [3, 5, 7]
    kv.init(keys, [tj.ones(shape)] * 3)
    kv.set_updater(lambda key, received, stored: stored.__iadd__(received * 2))
    for _ in range(3):
        kv.push(keys, [[tj.full(shape, R + 1.0)] * 2 for _ in keys])
    out = [tj.zeros(shape) for _ in keys]
    kv.pull(keys, out=out)
    expected = 1 + 3 * 2 * 2 * N * (N + 1) / 2
    for each in out:
        assert np.unique(each.numpy()).tolist() == [expected]
    kv.barrier()


@check
def stale_sums_arrive_later():
    kv = tj.kvstore.create("dist_async", staleness=2)
    kv.init("w", tj.zeros(2))
    kv.set_updater(lambda key, received, stored: stored.__iadd__(received))
    seen = []
    for number in range(5):
        kv.push("w", tj.full(2, 10.0**number))
        out = tj.zeros(2)
        kv.pull("w", out=out)
        seen.append(float(out[0]))
    assert seen == [0, 0, N, 11 * N, 111 * N]


@check
def a_step_fails_on_all_ranks_or_on_none():
    w, x = tj.zeros(4), tj.asarray(value(R, (3, 4)))

    @tj.jit
    def step(i):
        nonlocal w
        gradient = tj.distributed.all_reduce(x[i])
        w += gradient
        return gradient.sum()

    step(tj.asarray(1))
    before = w.numpy().copy()
    fails = R == N - 1
    error = raised(
        lambda: float(step(tj.asarray(9 if fails else 1))), OutOfBoundsError if fails else PeerError
    )
    assert "index 9 is out of bounds" in str(error)
    assert fails or f"rank {N - 1} failed in this step" in str(error)
    same(w, before)
    step(tj.asarray(1))
    same(w, before + before)


@check
def a_checked_run_exchanges_in_lockstep():
    outer, tj.config.check = tj.config.check, True
    try:
        step = tj.jit(lambda x: tj.distributed.all_reduce(x * 2) + 1)
        for _ in range(3):
            assert step(tj.full(3, R)).tolist() == [N * (N - 1) + 1] * 3
    finally:
        tj.config.check = outer


@check
def ranks_of_a_machine_share_its_processors():
    assert tj.engine.workers.count_of(0) == max(1, tj.engine.processors() // N - 1)


@check
def samplers_share_out_every_batch():
    mine = [positions.tolist() for positions in tj.distributed.sampler(23, 8, seed=3)]
    assert len(mine) == 2
    for number, positions in enumerate(mine):
        everybody = tj.distributed.all_gather(tj.asarray(positions)).numpy().ravel().tolist()
        assert everybody == np.random.default_rng([3, 0]).permutation(23)[8 * number :][:8].tolist()


@check
def checkpoints_hold_the_latest_whole_step():
    folder = FOLDER / f"checkpoint-{N}"
    assert tj.distributed.load_checkpoint(folder) is None
    tree = {"w": perceptron(), "t": 4, "state": (tj.ones(2), None)}
    tj.distributed.save_checkpoint(folder, tree, step=1)
    tj.distributed.save_checkpoint(folder, {**tree, "t": 5}, step=2)
    found, step = tj.distributed.load_checkpoint(folder)
    assert (step, found["t"], found["state"][1]) == (2, 5, None)
    assert digest(found["w"]) == digest(perceptron())
    if R == 1:
        (folder / "step-3").write_text("in the way")  # this rank and all others cannot make the folder
    tj.distributed.barrier()
    raised(lambda: tj.distributed.save_checkpoint(folder, tree, step=3), OSError)  # PeerError is one, too
    assert tj.distributed.load_checkpoint(folder)[1] == 2


@check
def checkpoints_are_written_while_the_program_goes_on():
    """What the arrays held at the call is written, although they change; failures are raised once, later."""
    folder, w = FOLDER / f"beside-{N}", perceptron()
    before = digest(w)
    tj.distributed.save_checkpoint(folder, w, step=1, wait=False)
    w[0] += 1.0
    tj.wait_all()
    found, step = tj.distributed.load_checkpoint(folder)
    assert (digest(found), step) == (before, 1)
    if R == 1:
        (folder / "step-2").write_text("in the way")
    tj.distributed.barrier()
    tj.distributed.save_checkpoint(folder, w, step=2, wait=False)
    assert f"{__file__}:" in str(raised(tj.wait_all, tj.errors.EngineError))
    tj.distributed.save_checkpoint(folder, w, step=3, wait=False)  # the failure has been told
    tj.distributed.save_checkpoint(folder, w, step=2, wait=False)
    raised(lambda: tj.distributed.save_checkpoint(folder, w, step=4), OSError)
    assert tj.distributed.load_checkpoint(folder)[1] == 3


if __name__ == "__main__":
    tj.distributed.init()
    R, N = tj.distributed.rank(), tj.distributed.size()
    FOLDER, FACTS, results = pathlib.Path(sys.argv[1]), {}, {}
    for function in CHECKS:
        if sys.argv[2:] and function.__name__ not in sys.argv[2:]:
            continue
        try:
            function()
            results[function.__name__] = None
        except Exception:
            results[function.__name__] = traceback.format_exc()
    (FOLDER / f"results-{N}-{R}.json").write_text(json.dumps([results, FACTS]))
