"""`tj.vmap` against a loop over the examples, eagerly, recorded and replayed."""

import gc
import weakref

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.test_forward_mode import FUNCTIONS
from tracejit.errors import ArgumentError, AxisError, ReadOnlyError, ReplayError
from tracejit.frontend.arrays import trees

SIZE = 3
INDEX = np.array([[2, 0], [2, 1]])


class Keyed(Exception):
    """What counts as a tree, and is not laid out as objects are."""

    def __tree__(self):
        return {"key": tj.ones(3)}


def numpy(tree):
    return trees.map(lambda x: x.numpy() if isinstance(x, tj.NDArray) else x, tree)


def loop(function, in_axes, *args):
    """The results for each example, stacked; arrays that the function writes are written."""
    flat = [x for x, axis in zip(args, in_axes, strict=True) if axis is not None]
    size = flat[0].shape[next(a for a in in_axes if a is not None)]
    results = []
    for i in range(size):
        given = [
            x if axis is None else x[(slice(None),) * (axis % x.ndim) + (i,)]
            for x, axis in zip(args, in_axes, strict=True)
        ]
        results.append(numpy(function(*given)))
    return trees.map(lambda *xs: np.stack(xs), *results)


def same(found, expected):
    found, structure = trees.flatten(numpy(found))
    expected, other = trees.flatten(expected)
    assert structure == other
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-9 if x.dtype != np.float32 else 2e-5, atol=1e-12)


def assigned_by_index(x):
    y = x.copy()
    y[:, INDEX[0]] += x[:, :2]
    y[x > 0.5] = 0.0
    return y


def built(x):
    """A new array that becomes mapped when something mapped is written into it."""
    y = tj.zeros((2, 4), dtype=x.dtype)
    y[0] = x[1]
    y[1, ::2] -= x[0, :2]
    z = tj.asarray(np.ones(4))
    z[1:] = x[2, 1:]
    return y, z


MORE = {
    "assigned_by_index": assigned_by_index,
    "built": built,
    "argsort": lambda x: tj.argsort(x, axis=0),
    "argmax": lambda x: tj.argmax(x, axis=1),
    "any": lambda x: (x > 1).any(),
    "gather_mapped": lambda x: tj.take(x, tj.argsort(x[0]), axis=1),
    "take_from_one": lambda x: tj.arange(5)[tj.argsort(x[0])],
    "solve": lambda x: tj.linalg.solve(x @ x.T + 3 * tj.eye(3, dtype=x.dtype), x),
    "svd": lambda x: tj.linalg.svd(x, full_matrices=False)[1],
    "fft": lambda x: tj.abs(tj.fft.fft2(x)),
    "search": lambda x: tj.searchsorted(tj.sort(x[0]), x[1]),
    "einsum": lambda x: tj.einsum("ij,kj->ik", x, x),
    "norm": lambda x: tj.nn.layer_norm(x),
    "attention": lambda x: tj.nn.attention(x, x, x, causal=True),
    "scalar": lambda x: x.sum() * 2,
    "vector": lambda x: x[0] @ x[1],
    "unmapped": lambda x: tj.arange(3) * 2,
}


@pytest.mark.parametrize("name", [*FUNCTIONS, *MORE])
def test_vmap_is_a_loop(name, evaluator):
    function = {**FUNCTIONS, **MORE}[name]
    x = tj.asarray(np.random.default_rng(3).uniform(-1.5, 1.5, (SIZE, 3, 4)))
    expected = loop(function, (0,), x)
    same(tj.vmap(function)(x), expected)
    if name in ("assigned_by_index", "built", "svd"):
        traced = tj.jit(tj.vmap(function), strict=name != "assigned_by_index")
        same(traced(x), expected)
        same(traced(x), expected)


AXES = [
    ((0, 0), 0),
    ((1, None), 0),
    ((-1, 0), 1),
    ((None, 2), -1),
    ((2, 1), (1, 0)),
    ([0, None], [0, -1]),
]


@pytest.mark.parametrize(("in_axes", "out_axes"), AXES)
def test_axes_of_arguments_and_results(in_axes, out_axes, run):
    rng = np.random.default_rng(0)
    shapes = [(SIZE, SIZE, SIZE), (SIZE, SIZE, SIZE)]
    shapes = [s if a is not None else s[1:] for s, a in zip(shapes, in_axes, strict=True)]
    x, y = (tj.asarray(rng.normal(size=s)) for s in shapes)

    def function(x, y):
        return x @ y, x - 2 * y

    wanted = [np.moveaxis(r, 0, a) for r, a in zip(
        loop(function, in_axes, x, y),
        out_axes if isinstance(out_axes, tuple | list) else (out_axes, out_axes),
        strict=True,
    )]  # fmt: skip
    found = run(tj.vmap(function, in_axes, tuple(out_axes) if isinstance(out_axes, list) else out_axes), x, y)
    same(found, tuple(wanted))


def test_axes_in_trees_and_keyword_arguments(evaluator):
    rng = np.random.default_rng(1)
    params = {
        "w": tj.asarray(rng.normal(size=(4, SIZE))),
        "b": tj.asarray(2.0),
        "layers": [tj.ones((SIZE, 2))],
    }

    def function(params, x, flag, *, y, scale):
        assert flag == "plain"
        assert scale == 2
        assert params["w"].shape == (4,)
        assert y["in"].shape == (2,)
        return {
            "out": params["w"] * x + params["b"],
            "sum": params["layers"][0].sum() + y["in"].sum() * scale,
        }

    axes = ({"w": 1, "b": None, "layers": 0}, None, None)
    found = tj.vmap(function, axes, {"out": 1, "sum": 0})(
        params, 3.0, "plain", y={"in": tj.ones((SIZE, 2))}, scale=2
    )
    np.testing.assert_allclose(found["out"].numpy(), params["w"].numpy() * 3 + 2)
    np.testing.assert_allclose(found["sum"].numpy(), np.full(SIZE, 6.0))


def test_results_that_are_the_same_for_all_examples(evaluator):
    x = tj.ones((SIZE, 2))
    found = tj.vmap(lambda x: (x, tj.arange(2), 5, "text", None), out_axes=(0, 0, 0, None, None))(x)
    np.testing.assert_array_equal(found[1].numpy(), [[0, 1]] * SIZE)
    np.testing.assert_array_equal(found[2].numpy(), [5] * SIZE)
    assert found[3:] == ("text", None)
    assert tj.vmap(lambda x: tj.arange(2), out_axes=None)(x).shape == (2,)


def test_nested(run):
    x, y = (tj.asarray(np.random.default_rng(2).normal(size=(n, 3))) for n in (2, 4))
    pairs = tj.vmap(tj.vmap(lambda x, y: x @ y, in_axes=(None, 0)), in_axes=(0, None))
    np.testing.assert_allclose(run(pairs, x, y), x.numpy() @ y.numpy().T, rtol=1e-6)


def net_loss(params, x, y):
    hidden = tj.tanh(x @ params["w1"] + params["b1"])
    return tj.nn.cross_entropy(hidden @ params["w2"], y)


def net(rng, *lead):
    shapes = {"w1": (5, 4), "b1": (4,), "w2": (4, 3)}
    return {name: tj.asarray(rng.normal(size=(*lead, *s)), dtype=tj.float32) for name, s in shapes.items()}


def step(params, x, y, rate):
    loss, gradients = tj.value_and_grad(net_loss)(params, x, y)
    for name, gradient in gradients.items():
        params[name] -= rate * gradient
    return loss


@pytest.mark.parametrize("traced", [False, True])
def test_training_steps_of_an_ensemble(traced, evaluator):
    """Parameters stacked along axis 0 are written in place; every member has a learning rate of its own."""
    rng = np.random.default_rng(4)
    params, data = (
        net(rng, SIZE),
        (tj.asarray(rng.normal(size=(8, 5)), dtype=tj.float32), tj.asarray(np.arange(8) % 3)),
    )
    members = [{name: x[i].copy() for name, x in params.items()} for i in range(SIZE)]
    rates = tj.asarray([0.1, 0.01, 1.0])
    ensemble = tj.vmap(step, in_axes=(0, None, None, 0))
    run = tj.jit(lambda *args: ensemble(*args), strict=True) if traced else ensemble
    before = params["w1"]
    for _ in range(3):
        losses = run(params, *data, rates)
        expected = [float(step(member, *data, rate)) for member, rate in zip(members, rates, strict=True)]
        np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-5)
    assert params["w1"] is before
    for name, x in params.items():
        np.testing.assert_allclose(
            x.numpy(), np.stack([m[name].numpy() for m in members]), rtol=1e-4, atol=1e-6
        )


def test_what_is_put_into_mapped_containers(evaluator):
    def function(state, x):
        state["w"] = state["w"] + x
        state["new"] = x * 2
        state["list"][0] = x
        del state["gone"]

    state = {"w": tj.zeros((SIZE, 2)), "list": [tj.zeros(SIZE)], "gone": tj.zeros(SIZE), "n": 5}
    inner = state["list"]
    x = tj.arange(SIZE, dtype=tj.float32)
    tj.vmap(function, in_axes=({"w": 0, "list": 0, "gone": 0, "n": None}, 0))(state, x)
    np.testing.assert_array_equal(state["w"].numpy(), [[0, 0], [1, 1], [2, 2]])
    np.testing.assert_array_equal(state["new"].numpy(), [0, 2, 4])
    np.testing.assert_array_equal(inner[0].numpy(), [0, 1, 2])
    assert "gone" not in state


def test_one_container_along_two_axes(evaluator):
    pair = {"x": tj.arange(4).reshape(2, 2)}
    found = tj.vmap(lambda a, b: a["x"] * 10 + b["x"], in_axes=(0, 1))(pair, pair)
    np.testing.assert_array_equal(found.numpy(), [[0, 12], [21, 33]])


def test_numbers_that_are_the_same_for_all_examples_are_no_guards():
    x = tj.ones((SIZE, 2))
    traced = tj.jit(lambda x, rate: tj.vmap(lambda x, *, rate: (x * rate, True))(x, rate=rate), strict=True)
    for rate in (0.5, 0.25, 2.0):
        found, flags = traced(x, rate)
        np.testing.assert_array_equal(found.numpy(), np.full((SIZE, 2), rate))
        assert flags.shape == (SIZE,)
    assert traced.cache_info().traces == 1


def test_an_unmapped_array_is_written_once():
    count, x = tj.zeros(()), tj.ones((SIZE, 2))

    @tj.jit
    def traced(count, x):
        def function(x):
            count[...] += 1
            return x * count

        return tj.vmap(function)(x)

    np.testing.assert_array_equal(traced(count, x).numpy(), np.ones((SIZE, 2)))
    np.testing.assert_array_equal(traced(count, x).numpy(), 2 * np.ones((SIZE, 2)))
    assert float(count) == 2


def test_overlapping_windows_of_an_unmapped_array(evaluator):
    w = tj.zeros(6)

    def function(x):
        w[:4] = 1.0
        head = w[2:5] * 2
        w[3] += 1.0
        return x * head.sum() + w.sum()

    np.testing.assert_array_equal(tj.vmap(function)(tj.ones(SIZE)).numpy(), np.full(SIZE, 4.0 + 5.0))
    np.testing.assert_array_equal(w.numpy(), [1, 1, 1, 2, 0, 0])


def test_views_of_one_storage_may_be_written_if_they_share_no_element(evaluator):
    flat = tj.zeros((SIZE, 6))

    def function(a, b):
        a += 1.0
        b[...] = a[0] * 2

    tj.vmap(function)(flat[:, :2], flat[:, 2:])
    np.testing.assert_array_equal(flat.numpy(), [[1, 1, 2, 2, 2, 2]] * SIZE)
    with pytest.raises(ArgumentError, match="share memory"):
        tj.vmap(function)(flat[:, :3], flat[:, 2:])
    with pytest.raises(ArgumentError, match="share memory"):
        tj.vmap(lambda a: function(a, a + flat[0]))(flat)
    np.testing.assert_array_equal(flat.numpy(), [[1, 1, 2, 2, 2, 2]] * SIZE)


def test_the_same_array_twice_is_one_array(evaluator):
    x = tj.zeros((SIZE, 2))

    def function(a, b):
        a += 1.0
        return b * 2

    np.testing.assert_array_equal(tj.vmap(function)(x, x).numpy(), 2 * np.ones((SIZE, 2)))


def test_examples_draw_what_a_loop_draws():
    def function(x):
        return (
            tj.random.normal(shape=4) + x,
            tj.nn.dropout(tj.ones(6), 0.5),
            tj.random.integers(10, shape=(2, 2)),
        )

    x = tj.arange(SIZE, dtype=tj.float32)
    traced = tj.jit(tj.vmap(function))
    tj.random.seed(7)
    expected = [loop(function, (0,), x) for _ in range(3)]
    tj.random.seed(7)
    for run, wanted in zip((tj.vmap(function), traced, traced), expected, strict=True):
        for found, y in zip(numpy(run(x)), wanted, strict=True):
            np.testing.assert_array_equal(found, y)


def test_nested_examples_draw_what_nested_loops_draw(evaluator):
    x = tj.zeros((2, 3))
    tj.random.seed(1)
    expected = np.stack([np.stack([tj.random.uniform(shape=2).numpy() for _ in range(3)]) for _ in range(2)])
    tj.random.seed(1)
    found = tj.vmap(tj.vmap(lambda x: x + tj.random.uniform(shape=2)))(x)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_samples_without_a_mapped_argument():
    assert tj.vmap(lambda: tj.random.normal(shape=2), axis_size=5)().shape == (5, 2)


@pytest.mark.parametrize("size", [0, 1])
def test_few_examples(size, run):
    x, w = tj.ones((size, 2)), tj.ones((2, 3))
    assert run(tj.vmap(lambda x, w: tj.tanh(x @ w).sum(), (0, None)), x, w).shape == (size,)
    grads = run(tj.grad(lambda w, x: tj.vmap(lambda x: (x @ w).sum())(x).sum()), w, x)
    np.testing.assert_array_equal(grads, np.full((2, 3), size))


# ---- gradients


def test_per_example_gradients(run):
    rng = np.random.default_rng(5)
    params = net(rng)
    x, y = tj.asarray(rng.normal(size=(6, 1, 5)), dtype=tj.float32), tj.asarray((np.arange(6) % 3)[:, None])
    gradients = tj.grad(net_loss)
    expected = loop(gradients, (None, 0, 0), params, x, y)
    found = run(tj.vmap(gradients, in_axes=(None, 0, 0)), params, x, y)
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-6)


@tj.custom_gradient
def scaled(x, y):
    kept = x * 2
    return tj.sin(x) * y, lambda dy: (dy * kept, dy * y)


RULES = {
    "custom": scaled,
    "checkpoint": tj.checkpoint(lambda x, y: tj.sin(tj.exp(x)) * y.sum()),
    "both": tj.checkpoint(lambda x, y: scaled(tj.tanh(x), y * y)),
    "jvp": lambda x, y: tj.jvp(lambda x: tj.sin(x) * y, (x,), (y,))[1],
    "closure": lambda x, y: tj.vjp(lambda x: x * y * x, x)[1](y)[0],
    "in place": lambda x, y: _squared_in_place(x, y),
}


def _squared_in_place(x, y):
    z = x * 1.0
    z[1:] *= y[:-1]
    z *= z
    return z


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0)])
def test_gradients_inside_and_around(name, in_axes, evaluator):
    """Gradients of vmap, vmap of gradients, and gradients of a vmap within a vmap."""
    function, rng = RULES[name], np.random.default_rng(6)
    x, y = (tj.asarray(rng.normal(size=(SIZE, 4) if a is not None else 4)) for a in in_axes)

    def loss(x, y):
        return (function(x, y) ** 2).sum()

    def looped(x, y):
        parts = [
            loss(x if in_axes[0] is None else x[i], y if in_axes[1] is None else y[i]) for i in range(SIZE)
        ]
        return sum(parts[1:], parts[0])

    same(tj.vmap(tj.grad(loss, (0, 1)), in_axes)(x, y), loop(tj.grad(loss, (0, 1)), in_axes, x, y))
    mapped = tj.vmap(loss, in_axes)
    around = tj.grad(lambda x, y: mapped(x, y).sum(), (0, 1))
    expected = numpy(tj.grad(looped, (0, 1))(x, y))
    same(around(x, y), expected)
    if name in ("custom", "both") and in_axes == (0, None):
        traced = tj.jit(around, strict=True)
        same(traced(x, y), expected)
        same(traced(x, y), expected)


def test_rules_of_functions_in_nested_batches(evaluator):
    x = tj.asarray(np.random.default_rng(7).normal(size=(2, 3, 4)))
    y = tj.ones(4, dtype=tj.float64)
    inner = tj.vmap(tj.vmap(scaled, in_axes=(0, None)), in_axes=(0, None))
    found = tj.grad(lambda x, y: (inner(x, y) ** 2).sum(), (0, 1))(x, y)
    same(found, numpy(tj.grad(lambda x, y: (scaled(x, y + 0 * x) ** 2).sum(), (0, 1))(x, y)))
    second = tj.vmap(tj.grad(lambda x: tj.grad(lambda x: scaled(x, y).sum())(x).sum()))(x[0])
    same(second, np.full((3, 4), 2.0))


def test_pull_backs_from_outside(evaluator):
    x = tj.asarray(np.random.default_rng(8).normal(size=4))
    _, pull_back = tj.vjp(lambda x: scaled(x, x) + tj.exp(x), x)
    (found,) = tj.vmap(pull_back)(tj.eye(4, dtype=tj.float64))
    expected = np.diag(x.numpy() * 2 + x.numpy() + np.exp(x.numpy()))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)


# ---- refusals


def test_numbers_of_numpy_beside_a_batch_give_up_as_they_do_outside():
    @tj.jit
    def scaled_by_sum(x, rows):
        found = np.zeros(3)
        for i in range(3):
            found[i] = x[i]
        return tj.vmap(lambda row: row * found.sum())(rows)

    for x in ([1.0, 2.0, 3.0], [2.0, 2.0, 4.0]):
        same(scaled_by_sum(tj.asarray(x), tj.ones((2, 3))), np.full((2, 3), sum(x), np.float32))
    assert "a float64 number widens an array" in scaled_by_sum.explain()


def test_refusals(evaluator):
    x, one = tj.ones((SIZE, 2)), tj.zeros(2)

    def writes(x):
        one[...] = x

    with pytest.raises(ArgumentError, match="common to all examples"):
        tj.vmap(writes)(x)
    with pytest.raises(ArgumentError, match="writes into a NumPy array"):
        tj.vmap(lambda x: np.add(x, 1, out=np.zeros(2, np.float32)))(x)
    for look in (
        float,
        bool,
        lambda x: x if x > 0 else -x,
        lambda x: x.numpy(),
        lambda x: x[None][x[None] > 0],
    ):
        for run in (
            tj.vmap(lambda x, look=look: look(x.sum())),
            tj.jit(tj.vmap(lambda x, look=look: look(x.sum()))),
        ):
            with pytest.raises(ArgumentError, match=r"tj\.where"):
                run(x)
    kept = []
    tj.vmap(lambda x: kept.append(x * 2))(x)
    with pytest.raises(ReplayError, match="stands for one example"):
        kept[0] + 1
    with pytest.raises(ReadOnlyError, match="NumPy array"):
        tj.vmap(lambda x: x.fill(1.0))(np.ones((3, 2)))
    with pytest.raises(ReadOnlyError, match="broadcast"):
        tj.vmap(lambda x: x.fill(1.0))(tj.broadcast_to(one, (3, 2)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: tj.vmap(tj.sin, in_axes=(0, 1))(x), ArgumentError, "1 positional"),
        (lambda x: tj.vmap(x), ArgumentError, "expected a function"),
        (lambda x: tj.vmap(tj.sin, in_axes="0")(x), ArgumentError, "int or None"),
        (lambda x: tj.vmap(tj.sin, in_axes=2)(x), AxisError, "2 dimensions"),
        (lambda x: tj.vmap(tj.sin, in_axes=None)(x), ArgumentError, "axis_size"),
        (lambda x: tj.vmap(tj.sin, in_axes=None, axis_size=-1)(x), ArgumentError, "negative"),
        (lambda x: tj.vmap(tj.sin, axis_size=5)(x), ArgumentError, "axis_size: 5"),
        (lambda x: tj.vmap(tj.add)(x, x[:2]), ArgumentError, r"args\[0\]: 3, args\[1\]: 2"),
        (lambda x: tj.vmap(tj.add)(x, 2.0), ArgumentError, r"args\[1\] is a float"),
        (lambda x: tj.vmap(len, in_axes=({"a": 0},))([x]), ArgumentError, "do not fit"),
        (lambda x: tj.vmap(lambda x: "text")(x), ArgumentError, "out_axes"),
        (lambda x: tj.vmap(lambda x: x, out_axes=None)(x), ArgumentError, "differs between"),
        (lambda x: tj.vmap(lambda x: x, out_axes=5)(x), AxisError, "out_axes"),
        (lambda x: tj.vmap(lambda x: x.pop())([x, x]), ArgumentError, "length of a list"),
        (lambda x: tj.vmap(lambda key: 1)(Keyed()), ArgumentError, "args.0. is a Keyed, which has no axis"),
    ],
)
def test_arguments_are_checked(call, error, message):
    with pytest.raises(error, match=message) as raised:
        call(tj.ones((SIZE, 2)))
    assert "test_vmap.py" in str(raised.value)


def test_nothing_is_written_if_the_function_raises(evaluator):
    x = tj.zeros((SIZE, 2))

    def function(x):
        x += 1.0
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        tj.vmap(function)(x)
    np.testing.assert_array_equal(x.numpy(), np.zeros((SIZE, 2)))
    assert float((tj.ones(2) * 2).sum()) == 4  # nothing is left open


def test_arrays_made_of_numpy_arrays_are_each_examples_own(evaluator):
    kept = []

    def function(x):
        made = tj.asarray(np.zeros(2))
        made[...] = x
        kept.append(made)
        return made * 2

    x = tj.ones((SIZE, 2), dtype="float64")
    for run in (tj.vmap(function), tj.vmap(tj.vmap(function, in_axes=0), in_axes=None, axis_size=2)):
        assert float(run(x).sum()) in (12.0, 24.0)
        with pytest.raises(ReplayError, match="stands for one example"):
            kept[-1] * 1


def test_nothing_is_kept_after_a_call():
    """No reference cycle keeps the memory of arrays until the garbage collector runs."""

    def called():
        x, y = tj.ones((SIZE, 2)), tj.ones(2)
        result = tj.vmap(lambda x: scaled(x * 2, y))(x).wait()
        gradient = tj.grad(lambda x: tj.vmap(lambda x: scaled(x, y))(x).sum())(x).wait()
        return [weakref.ref(array._storage) for array in (x, y, result, gradient)]

    gc.disable()
    try:
        assert [ref() for ref in called()] == [None] * 4
    finally:
        gc.enable()


def test_kept_graphs(evaluator):
    """One in a batch, and a batch in one."""
    x = tj.asarray(np.random.default_rng(9).normal(size=(SIZE, 3)))
    kept = tj.export(lambda x: tj.sin(x).sum(), tj.spec((3,), "float64"))
    same(tj.vmap(kept)(x), np.sin(x.numpy()).sum(1))
    same(tj.vmap(tj.grad(lambda x: kept(x)))(x), np.cos(x.numpy()))
    batched = tj.export(tj.vmap(lambda x: tj.sin(x).sum()), tj.spec(("rows", 3), "float64"))
    same(batched(x[:2]), np.sin(x[:2].numpy()).sum(1))


# -- callbacks -----------------------------------------------------------------------------------------------


def called(wrap, times=2):
    """What callbacks of a mapped function got, in calls of it."""
    seen, x, by = [], tj.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), tj.asarray([10.0])

    def function(x, by):
        tj.callback(lambda *a: seen.append([np.asarray(v).tolist() for v in a]), x.sum(), by, "each")
        return x * 2

    traced = wrap(tj.vmap(function, in_axes=(0, None)))
    for _ in range(times):
        result = traced(x, by)
    tj.wait_all()
    np.testing.assert_array_equal(result.numpy(), x.numpy() * 2)
    return seen


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: tj.jit(f, strict=True)])
def test_a_callback_is_called_for_each_example(wrap):
    assert called(wrap) == [[3.0, [10.0], "each"], [7.0, [10.0], "each"], [11.0, [10.0], "each"]] * 2


def test_callbacks_in_nested_maps_and_gradients():
    seen = []

    def inner(x):
        tj.callback(lambda v: seen.append(float(v)), x)
        return x * x

    x = tj.asarray([[1.0, 2.0], [3.0, 4.0]])
    for wrap in (lambda f: f, tj.jit):
        seen.clear()
        slopes = wrap(tj.vmap(tj.vmap(tj.grad(inner))))(x)
        tj.wait_all()
        np.testing.assert_array_equal(slopes.numpy(), 2 * x.numpy())
        assert seen == [1.0, 2.0, 3.0, 4.0]
    tj.vmap(lambda x: tj.callback(seen.append, 1), in_axes=0, out_axes=None)(tj.ones((3, 1)))
    assert seen[4:] == [1, 1, 1]


# -- modules -------------------------------------------------------------------------------------------------


class Net(tj.nn.Module):
    buffers = ("last",)

    def __init__(self):
        self.layers = [tj.nn.Linear(4, 8), tj.nn.BatchNorm(8), tj.nn.Linear(8, 2)]
        self.sizes, self.calls = [4, 8, 2], 0

    def forward(self, x):
        self.calls += 1
        for layer in self.layers:
            x = layer(x)
        self.last = x
        return x


def train(net, x):
    loss, grads = tj.value_and_grad(lambda net: (net(x) ** 2).mean())(net)
    tj.optim.sgd(net, grads, 0.1)
    return loss


@pytest.mark.parametrize("wrap", [lambda f: f, tj.jit])
def test_modules_are_mapped(wrap):
    """An ensemble: parameters are updated in place, running means and attributes are replaced."""
    nets = [Net() for _ in range(SIZE)]
    several, x = tj.nn.stack(nets), tj.random.normal(shape=(SIZE, 4, 4))
    step = wrap(tj.vmap(train))
    for _ in range(3):
        losses = step(several, x)
        each = [train(net, given) for net, given in zip(nets, x, strict=True)]
    np.testing.assert_allclose(losses.numpy(), [float(loss) for loss in each], rtol=1e-5)
    assert several.calls == nets[0].calls == 3
    state = several.state_dict()
    assert len(state) == 9
    for name, found in state.items():
        expected = np.stack([net.state_dict()[name].numpy() for net in nets])
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_module_that_is_not_mapped_and_one_as_the_function():
    layer, x = tj.nn.Linear(4, 2), tj.random.normal(shape=(3, 5, 4))
    for found in (tj.vmap(lambda m, x: m(x), in_axes=(None, 0))(layer, x), tj.vmap(layer)(x)):
        np.testing.assert_allclose(found.numpy(), layer(x).numpy(), rtol=1e-5)
    several = tj.nn.stack([tj.nn.Linear(4, 2) for _ in range(5)])
    with pytest.raises(ArgumentError, match=r"different numbers of examples(?s:.*)args\[0\]\.weight: 5"):
        tj.vmap(lambda m, x: m(x))(several, x)


def test_modules_that_cannot_be_stacked():
    with pytest.raises(ArgumentError, match=r"nn\.stack: at least one module(?s:.*)test_vmap"):
        tj.nn.stack([])
    with pytest.raises(ArgumentError, match=r"nn\.stack: modules 0 and 1 have arrays of different names"):
        tj.nn.stack([tj.nn.Linear(2, 2), tj.nn.Linear(2, 2, bias=False)])
    with pytest.raises(tj.errors.ShapeError):
        tj.nn.stack([tj.nn.Linear(2, 2), tj.nn.Linear(3, 2)])
