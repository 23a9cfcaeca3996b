"""Rolled loops: the same results as the unrolled recording, in one task."""

import numpy as np
import pytest

import tracejit as tj
from tests.graphs import assert_same_meaning, outcome, random_inputs
from tests.thorough import some
from tracejit import ops
from tracejit.config import config
from tracejit.errors import OutOfBoundsError
from tracejit.ir.verify import verify
from tracejit.passes.driver import clean
from tracejit.passes.rolling import roll as rolling
from tracejit.passes.rolling.roll import MAX_CHAIN, MIN_ITERATIONS, roll

N = 2 * MIN_ITERATIONS


@pytest.fixture(autouse=True)
def short_chains(monkeypatch, request):
    """Roll what is rolled for its length only in longer programs, too."""
    if request.function is not test_short_chains_stay_in_registers:
        monkeypatch.setattr(rolling, "MAX_CHAIN", 0)


def jacobi(a, b):
    for _ in range(N):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])
    return a


def sequences(a, b):
    state = a[0]
    for i in range(N):
        state = state * 0.5 + a[i] * i
        b[i] = state
    return state


def backwards(a, b):
    for i in range(N - 2, -1, -1):
        b[i] = b[i + 1] * 0.5 + a[i]
    return b


def swapped(a, b):
    for _ in range(N):
        a, b = b * 0.5 + a, a
    return a - b


def collected(a, b):
    rows = []
    for i in range(N):
        b = b * 0.5 + a[i]
        rows.append(b)
    return tj.stack(rows)


def gradient(a, b):
    def loss(b):
        state = b[0]
        for i in range(N):
            state = tj.tanh(state * b[1] + a[i])
        return state[0]

    return tj.grad(loss)(b)


def elsewhere(a, b):
    """Reads of the array that is written, at a place that stays."""
    for i in range(1, N):
        b[i] = b[i - 1] * 0.5 + b[0]
    return b


def uneven(a, b):
    """Places that do not move evenly: not rolled."""
    for i in range(N):
        b[i * i % N] = a[i] * 0.5 + i
    return b


def windows(a, b):
    """Loops of few rounds each, which are recorded alike: the inner one moves evenly, each time anew."""
    for i in range(8):
        for j in range(8):
            b[8 + i + j, 0] = (a[i : i + 3, :3] * a[j : j + 3, 3:]).sum() + b[i + j, 0]
    return b


def pairs(a, b):
    """Two rounds of the innermost loop are one round that moves evenly."""
    for k in range(4):
        for i in range(8):
            for j in range(2):
                b[i, k] += a[k, j] * a[2 * i + j, 2]
    return b


def solve(a, b):
    """Extents that grow."""
    lower, x = a @ a.T, b[:, 0].copy()
    for i in range(N):
        x[i] = (b[i, 1] - lower[i, :i] @ x[:i]) / (lower[i, i] + 9.0)
    return x


def solve_backwards(a, b):
    """Extents that shrink."""
    upper, x = a @ a.T, b[:, 0].copy()
    for i in range(N - 1, -1, -1):
        x[i] = (b[i, 1] - upper[i, i + 1 :] @ x[i + 1 :]) / (upper[i, i] + 9.0)
    return x


def factorize(a, b):
    """Loops in a loop whose counts and extents grow and shrink."""
    m = a @ a.T + 40.0 * tj.eye(N, dtype="float64")
    for i in range(N):
        for j in range(i):
            m[i, j] -= m[i, :j] @ m[:j, j]
            m[i, j] /= m[j, j]
        for j in range(i, N):
            m[i, j] -= m[i, :i] @ m[:i, j]
    return m


def orthogonal(a, b):
    m, q = a @ a.T + 40.0 * tj.eye(N, dtype="float64"), b @ b.T
    for k in range(N):
        q[:, k] = m[:, k] / tj.sqrt(m[:, k] @ m[:, k])
        for j in range(k + 1, N):
            m[:, j] -= q[:, k] * (q[:, k] @ m[:, j])
    return q


def mirrored(a, b):
    """The recursion of Durbin: a prefix is read backwards and stored forwards."""
    r, y = a[:, 0] / 9.0, b[:, 0].copy()
    for k in range(1, N):
        alpha = -(r[k] + tj.flip(r[:k]) @ y[:k])
        y[:k] += alpha * tj.flip(y[:k])
        y[k] = alpha
    return y


BODIES = (jacobi, sequences, backwards, swapped, collected, gradient, elsewhere, windows, pairs)
TRIANGULAR = (solve, solve_backwards, factorize, orthogonal, mirrored)


def run(body):
    traced = tj.jit(body, strict=True)
    outcomes = []
    for _ in range(2):  # recorded, then replayed
        given = [tj.asarray(x) for x in np.random.default_rng(0).normal(size=(2, N, 6))]
        outcomes.append([np.asarray(traced(*given)), *map(np.asarray, given)])
    for first, again in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(first, again)
    return outcomes[0], [task.name for task in traced.schedules()[0].tasks]


@pytest.mark.parametrize("body", some([*BODIES, *TRIANGULAR, uneven], 8))
def test_a_rolled_loop_gives_the_same_bits(body, monkeypatch):
    rolled, names = run(body)
    assert ("loop" in names) == (body is not uneven)
    monkeypatch.setattr(config, "disable", frozenset({"roll"}))
    unrolled, flat = run(body)
    assert "loop" not in flat
    for one, other in zip(rolled, unrolled, strict=True):
        if body is orthogonal:  # unrolled, several rounds are one kernel, which adds up in another order
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-14)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("body", [*BODIES, *TRIANGULAR])
def test_the_rolled_graph_means_the_same(body):
    graph = tj.jit(body).graph(tj.spec((N, 6), "float64"), tj.spec((N, 6), "float64"))
    rolled = verify(roll(graph))
    assert len(rolled.nodes) < len(graph.nodes)
    assert_same_meaning(rolled, graph, 0)


def recurrent(x, w):
    """A sequence whose rounds read parts of an array, and the same weight."""
    state = x[0] * 0.0
    for i in range(N):
        state = tj.tanh(state @ w.T + x[i])
    return (state * state).sum()


def recurrence(*shape):
    """The gradients of `recurrent`, rolled; its loops."""
    given = tj.spec((N, *shape)), tj.spec((shape[1], shape[1]))
    graph = tj.jit(tj.grad(recurrent, argnums=(0, 1))).graph(*given)
    found = verify(clean(graph))
    given = random_inputs(graph, 0)
    for results, others in zip(outcome(found, given), outcome(graph, given), strict=True):
        for got, expected in zip(results, others, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)  # stacked products: rounded less
    return found, [node for node in found.nodes if node.op is ops.loop]


def test_the_gradient_of_parts_is_stored_part_by_part():
    """No round of the loop backward adds whole arrays, and the gradient of the weight is one product."""
    graph, loops = recurrence(2, 6)
    assert len(loops) == 2
    sums = [n.output.type.shape for loop in loops for n in loop.attrs["body"].nodes if n.op is ops.add]
    assert set(sums) == {(2, 6)}
    products = [node for node in graph.nodes if node.op is ops.matmul]
    assert max(product.inputs[0].type.shape[-1] for product in products) == 2 * N


@pytest.mark.parametrize(("rows", "copied"), [(8, True), (2, False)])
def test_a_transposed_factor_is_copied_before_the_loop(rows, copied):
    """If its products read their factors in place; the rounds backward read the weight as it lies."""
    graph, (forward, backward) = recurrence(rows, 8)
    producers = {n.output: n for n in graph.nodes if n.op is ops.view and n.inputs[0] in graph.inputs}
    views = [[v for v in loop.inputs if v in producers] for loop in (forward, backward)]
    turned = [[v for v in seen if producers[v].attrs["view"].strides == (1, 8)] for seen in views]
    assert [len(found) for found in turned] == [int(copied), 0]


def test_equal_loops_are_planned_once():
    """The inner loops of nested ones, which differ in their places only, have one body."""
    graph = roll(tj.jit(pairs).graph(tj.spec((N, 6)), tj.spec((N, 6))))
    loops = [node for node in graph.nodes if node.op.name == "loop"]
    assert len(loops) == 4
    bodies = {id(node.attrs["body"]) for node in loops}
    assert len(bodies) == 1


def test_rounds_that_differ_say_why():
    graph = tj.jit(uneven).graph(tj.spec((N, 6)), tj.spec((N, 6)))
    assert roll(graph) is graph
    assert "the offset of update is not affine" in graph.notes["unrolled"]


def test_a_bad_index_tells_the_round_and_changes_nothing():
    @tj.jit(strict=True)
    def walk(x, places):
        total = x[0] * 0
        for i in range(N):
            total = total + x[places[i]]
        x[0] = total
        return total

    x = tj.arange(5.0)
    places = np.arange(N) % 5
    walk(x, tj.asarray(places))
    before, places[17] = np.asarray(x).copy(), 9
    with pytest.raises(OutOfBoundsError, match=r"index 9 .* in iteration 17 of the loop[\s\S]*test_roll\.py"):
        np.asarray(walk(x, tj.asarray(places)))
    np.testing.assert_array_equal(x, before)


def test_explain_says_why_rounds_are_not_a_loop():
    traced = tj.jit(uneven)
    traced.warm(tj.spec((N, 6)), tj.spec((N, 6)))
    told = "not rolled: the offset of update is not affine, at "
    assert told in traced.explain()
    assert "test_roll.py" in traced.explain().split(told)[1]


def test_explain_says_why_where_equal_parts_were_planned_once():
    @tj.jit
    def twice(a, b, c, d):
        uneven(a, b)
        uneven(c, d)

    given = [tj.spec((N, 6)) for _ in range(4)]
    twice.warm(*given)
    assert "not rolled: the offset of update is not affine" in twice.explain()


def test_a_loop_is_cut_where_rounds_need_other_plans():
    def body(a, b):
        for i in range(N):
            b[i] = (a[i] + b[N // 2]) * 0.5  # the row itself in one of the rounds
        return b

    rolled, names = run(body)
    assert names.count("loop") == 2
    expected = np.random.default_rng(0).normal(size=(2, N, 6))
    body(*expected)
    np.testing.assert_array_equal(rolled[0], expected[1])


def test_a_loop_that_would_fall_apart_stays_unrolled():
    @tj.jit
    def body(a, b):
        for i in range(2, 14, 4):
            for j in range(
                MIN_ITERATIONS + 2
            ):  # the sum holds the row that is stored, from another round on in each of them
                b[j] = tj.tanh(b[: i + 1].sum(0) * 0.1 + a[i])
        return b

    given = np.random.default_rng(0).normal(size=(2, N, 6))
    result = np.asarray(body(*map(tj.asarray, given)))
    expected = given[1]
    for i in range(2, 14, 4):
        for j in range(MIN_ITERATIONS + 2):
            expected[j] = np.tanh(expected[: i + 1].sum(0) * 0.1 + given[0, i])
    np.testing.assert_allclose(result, expected, rtol=1e-9)


@pytest.mark.parametrize(("rounds", "rolled"), [(MIN_ITERATIONS, False), (MAX_CHAIN, True)])
def test_short_chains_stay_in_registers(rounds, rolled):
    def chain(x):
        for _ in range(rounds):
            x = x * 0.5 + 1.0
        return x

    graph = tj.jit(chain).graph(tj.spec((100,)))
    assert (roll(graph) is not graph) == rolled


@pytest.mark.parametrize("shape", [(300, 300), (64, 128)])
def test_rounds_of_much_work_are_for_all_workers(shape, monkeypatch):
    """Many elements, or a product of many multiplications."""

    def state(x, w):
        for _ in range(N):
            x = tj.tanh(x @ w) if shape[0] == 64 else x + w.sum(0)
        return x

    graph = tj.jit(state).graph(tj.spec(shape), tj.spec((shape[1], shape[1])))
    searched = []
    search = rolling._Sequence._search
    monkeypatch.setattr(rolling._Sequence, "_search", lambda *run: searched.append(run[1:]) or search(*run))
    assert roll(graph) is graph
    assert "an iteration is long enough for several workers" in graph.notes["unrolled"]
    assert searched
    assert len(set(searched)) == len(searched)  # although the search is repeated for other runs


def test_a_bad_index_beside_stores_changes_nothing():
    @tj.jit(strict=True)
    def walk(x, places):
        for i in range(N):
            x[i] = x[places[i]] * 0.5

    x = tj.arange(float(N))
    places = np.arange(N)
    walk(x, tj.asarray(places))
    before, places[17] = np.asarray(x).copy(), 2 * N

    def walked():
        walk(x, tj.asarray(places))
        return np.asarray(x)

    with pytest.raises(OutOfBoundsError):
        walked()
    places[17] = 17
    walk(x, tj.asarray(places))
    np.testing.assert_array_equal(x, before * 0.5)


def reads_and_stores(x, places):
    for i in range(N):
        x[i] = tj.tanh(x[places[i]]) * 0.5


def stores_at_places(x, places):
    for i in range(N):
        x[places[i]] = x[i] * 0.5 + 1


def inner_loop(x, places):
    for i in range(N):
        for j in range(N - 1):
            x[j] = tj.tanh(x[places[i]]) + x[j + 1] * 0.5


def native_rounds(x, places):
    total = x * 0.0
    for _ in tj.range(N):
        total = total * 0.5 + x[places]
    x[...] = total


@pytest.mark.parametrize("body", [reads_and_stores, stores_at_places, inner_loop, native_rounds])
def test_a_bad_index_in_a_loop_tells_line_and_round_and_changes_nothing(body):
    walk = tj.jit(body, strict=True)
    x, places = tj.arange(float(N)), np.arange(N) % 5
    walk(x, tj.asarray(places))
    assert "loop" in [task.name for task in walk.schedules()[0].tasks]
    before, places[17] = np.asarray(x).copy(), 2 * N

    def walked():
        walk(x, tj.asarray(places))
        return np.asarray(x)

    told = r"index .* out of bounds" + r".* in iteration \d+ of the loop" * (body is not native_rounds)
    with pytest.raises(OutOfBoundsError, match=told + r"[\s\S]*test_roll\.py:\d+"):
        walked()
    np.testing.assert_array_equal(x, before)
    places[17] = 1
    walked()  # goes on
