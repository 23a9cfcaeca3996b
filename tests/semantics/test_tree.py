"""The trace tree: a traced body that looks at values of arrays is replayed, path by path.

Random programs with branches on values are compared bit for bit with eager code, together with how often they
were recorded.
"""

from __future__ import annotations

import math
import random
import threading

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.compare import Program, check
from tests.thorough import some
from tracejit.errors import OutOfBoundsError, ReplayError
from tracejit.frontend.jit import trace_tree
from tracejit.frontend.jit.state_loops.branching import BranchingLoop
from tracejit.frontend.jit.state_loops.loop_builder import MAX_ITERATIONS
from tracejit.frontend.jit.state_loops.native_numbers import Unsupported
from tracejit.frontend.jit.state_loops.selecting import SelectingLoop


def bits(value):
    """A result as something that is equal only for equal bits."""
    if isinstance(value, tj.NDArray):
        array = value.numpy()
        return str(array.dtype), array.shape, array.tobytes()
    if isinstance(value, tuple | list):
        return [bits(each) for each in value]
    return type(value).__name__, repr(value)


def same_as_eager(step, arguments, calls, traces=None, strict=True):
    """Calls give the bits of eager ones, in results, arguments and random numbers."""
    function = tj.jit(step, strict=strict)
    results = []
    for each in (step, function):
        made = arguments()
        tj.random.seed(5)
        results.append([])
        for i in range(calls):
            given = made(i)
            results[-1].append((bits(each(*given)), bits(given), bits(tj.random.uniform(shape=2))))
    for i, (expected, given) in enumerate(zip(*results, strict=True)):
        assert given == expected, f"call {i}"
    info = function.cache_info()
    assert "piecewise" not in function.explain()
    if traces is not None:
        assert (info.traces, info.replays) == (traces, calls - traces), function.explain()
    return function


def growing(scale=1.0):
    """A weight that is kept, and a gradient that is larger in every third call."""

    def make():
        w = tj.asarray(np.linspace(-1, 1, 6, dtype=np.float32))
        return lambda i: (w, tj.asarray(np.full(6, scale * (1.0 + 10.0 * (i % 3 == 2)), np.float32)), 4.0)

    return make


# -- what is looked at ---------------------------------------------------------------------------------------


def clip(w, g, limit):
    norm = float(tj.sqrt((g * g).sum()))
    if norm > limit:
        g = g * (limit / norm)
    w -= 0.1 * g
    return norm


def branch_on_an_array(w, g, limit):
    w += g
    if (w * w).sum() > 100 * limit:  # the write before it waits
        w *= 0.5
        return w.sum()
    return w * 2.0, limit


def item(w, g, limit):
    largest = g.max().item()
    return w * largest if largest < limit else w / largest


def whole_number(w, g, limit):
    n = int((g > limit).sum())
    return w[: n // 2 + 1] * n


def two_looks(w, g, limit):
    total = g.sum()
    if total < 8:
        w += 1
        if bool(tj.isfinite(w).all()):
            return w, total
    w[0] = total
    return w.mean()


def view_after(w, g, limit):
    part = w[1:4]
    part += g[1:4]
    if g[0] > limit:
        part *= 2
        return part
    w[2] = 0.0
    return part, w[::2]


@pytest.mark.parametrize("step", [clip, branch_on_an_array, item, whole_number, two_looks, view_after])
def test_looks_replay(step):
    same_as_eager(step, growing(), 9, traces=2)


def test_the_same_array_twice_and_an_argument():
    def step(w, g, limit):
        y = w + g
        z = tj.zeros(6)
        z[:] = y
        if y.sum() > 4 * limit:
            return y, z, y, w
        y += 1
        return y, z, y, w

    f = same_as_eager(step, growing(), 6, traces=2)
    first, second, again, _w = f(*growing()()(0))
    assert first is again
    first += 1
    assert (first != second).all()  # no two arrays share what a segment has computed


def test_results_survive_later_calls():
    f = tj.jit(lambda x: (x * 2, x.sum().item()), strict=True)
    kept = [f(tj.full(3, float(i))) for i in range(4)]
    assert [(x.tolist(), n) for x, n in kept] == [([2.0 * i] * 3, 3.0 * i) for i in range(4)]
    assert f.cache_info().traces == 1


def test_numpy_arguments_and_python_state():
    def make(xp, array):
        state = {"scale": 8.0, "good": 0, "log": None}
        w = array(np.ones(3))

        def step(g):
            g = g * state["scale"]
            if xp.isfinite(g).all():
                w[...] -= g / state["scale"]
                state["good"] += 1
            else:
                state["scale"] /= 2
                state["good"] = 0
            return state["scale"]

        return Program(step, lambda i: (array([1.0, 2.0, np.inf if i % 4 == 3 else i]),), (w, state))

    check(make, calls=12, traces=2)


# -- what comes before the end of a path ---------------------------------------------------------------------


def test_randomness_before_and_after_a_look():
    def step(w, g, limit):
        noise = tj.random.normal(shape=6)
        if noise.sum() > 0:
            return noise + g
        return tj.random.uniform(shape=3), noise, tj.random.uniform(shape=2)

    same_as_eager(step, growing(), 12, traces=2)


def test_nothing_is_written_by_a_path_that_does_not_fit():
    @tj.jit(strict=True)
    def step(w, x):
        w += 1
        if x.sum() > 10:
            raise FloatingPointError("too large")
        w *= 2
        return w

    w, u = tj.zeros(2), tj.ones(2)
    for x in (u, u * 9, u, u * 9, u):
        before = w.tolist()
        if x[0] > 5:
            with pytest.raises(FloatingPointError):
                step(w, x)
            assert w.tolist() == before
        else:
            step(w, x)
            assert w.tolist() == [2 * (v + 1) for v in before]
    assert step.cache_info().replays == 2


def test_an_index_out_of_range_before_a_look_changes_nothing():
    @tj.jit(strict=True)
    def step(w, i, x):
        w += x[i]
        if x.sum() > 1:
            w *= 2
        return w

    w, x = tj.zeros(()), tj.ones(3)
    step(w, tj.asarray(1), x)
    assert float(step(w, tj.asarray(2), x)) == 6
    for _ in range(2):
        with pytest.raises(OutOfBoundsError, match=r"test_tree\.py"):
            step(w, tj.asarray(5), x)
        assert float(w) == 6
    assert float(step(w, tj.asarray(-1), x)) == 14


def test_errors_in_pythons_arithmetic():
    @tj.jit(strict=True)
    def step(x):
        return x / (1.0 / x.sum().item())

    assert step(tj.ones(2)).tolist() == [2, 2]
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            step(tj.zeros(2))
    assert step(tj.ones(2) * 2).tolist() == [8, 8]


def test_early_returns_loops_and_breaks():
    def step(w, g, limit):
        x = w + 2
        for i in range(6):
            x = x * 1.5
            if x.sum() > limit * 20:
                break
            if i == 4:
                return x, i
        else:
            return w
        return x - g, i

    def make():
        return lambda i: (tj.full(6, float(i % 5)), tj.ones(6), 4.0 + i % 3)

    same_as_eager(step, make, 40)


# -- gradients -----------------------------------------------------------------------------------------------


def test_looks_inside_and_after_a_gradient():
    def step(w, g, limit):
        def loss_of(w):
            h = tj.tanh(w * g)
            if h.sum() > 1:
                h = h * 0.5
            return ((h - 1.0) ** 2).mean() * h.max().item()

        loss, slope = tj.value_and_grad(loss_of)(w)
        if tj.isfinite(slope).all():
            w -= 0.1 * slope
        return loss

    same_as_eager(step, growing(), 12)


def test_a_line_search():
    def step(w, g, limit):
        def loss_of(w):
            return ((w - 3.0) ** 4).sum()

        loss, slope = tj.value_and_grad(loss_of)(w)
        rate, squared = 1.0, (slope * slope).sum().item()
        for _ in range(20):
            if loss_of(w - rate * slope).item() <= loss.item() - 0.3 * rate * squared:
                break
            rate *= 0.5
        w -= rate * slope
        return loss, rate

    same_as_eager(step, growing(), 10)


# -- loops ---------------------------------------------------------------------------------------------------


def newton(x, tol):
    err, rounds = math.inf, 0
    while err > tol:
        y = 0.5 * (x + 2.0 / x)
        err = float(tj.abs(y - x).max())
        x = y
        rounds += 1
    return x, rounds


def test_a_loop_until_convergence():
    def make():
        return lambda i: (tj.full(3, 10.0 ** (i % 4)), 10.0 ** -(i % 5))

    f = same_as_eager(newton, make, 40)
    seen = f.cache_info().traces
    for i in range(40):
        f(*make()(i))
    assert f.cache_info().traces == seen


def converge(x, tol):
    err = math.inf
    while err > tol:
        y = 0.5 * (x + 2.0 / x)
        err = float(tj.abs(y - x).max())
        x = y
    return x, err


def in_place(x, tol):
    x += 0.0
    while (x * x - 2.0).max() > tol:
        x[...] = 0.5 * (x + 2.0 / x)
    x *= 2
    return x.sum()


def two_exits(x, tol):
    before, now = 0.0, 1.0
    while abs(now - before) > tol:
        if now > 1e3:
            return x, before
        x = 0.5 * (x + 2.0 / x) + tj.random.uniform(shape=3) * 0.01 * tol
        before, now = now, x.sum().item()
    return x, before, now


def then_another(x, tol):
    while x.max() > 3:
        x = x * 0.5
    y = x + 1
    while float(y.min()) < 20:
        y = y * 1.5
        if y[0] > 100:
            break
    return x, y


def counts(x, tol):
    rounds = 0
    while x.max() > 3:
        x = x * 0.5
        rounds += 1
        if rounds == 4:
            return x
    return x + rounds


def hands_on(x, tol):
    before, last = x, x * 2.0
    while tj.abs(last - before).max() > tol:
        before, last = last, 0.5 * (before + last)
    return before, last


def bisection(x, tol):
    low, high = 0.0, 5000.0
    while high - low > 30.0:
        middle = 0.5 * (low + high)
        if (x - middle).sum() > 0:
            low = middle
        else:
            high = middle
    return low, high


def in_a_for(x, tol):
    for _ in "12345":
        if x.max() < 3:
            break
        x = x * 0.5
    else:
        return x, "not"
    return x


@pytest.mark.parametrize(
    "step", [converge, in_place, two_exits, then_another, counts, hands_on, bisection, in_a_for]
)
def test_rounds_of_a_loop(step):
    """As many rounds as there were not: where rounds are equal, this records nothing."""

    def make():
        return lambda i: (tj.full(3, 4.0 * 7.0 ** (i % 9)), 10.0 ** -(i * 5 % 7))

    f = same_as_eager(step, make, 40)
    limit = 40 if step in (bisection, in_a_for) else 12
    assert f.cache_info().traces <= limit, f.explain()
    fits = [path for path in f._entries[0].paths if "while True" in path.text]
    assert fits or step in (bisection, in_a_for)


# -- paths ---------------------------------------------------------------------------------------------------


def test_paths_share_what_they_launch():
    calls = []

    def step(x):
        total = x.sum()
        if total > 3:
            return x * 2
        if total > 2:
            return x * 3
        return x * 4

    f = tj.jit(step, strict=True)
    for n in (4.0, 2.5, 1.0):
        f(tj.full(1, n))
    (entry,) = f._entries
    assert len(entry.paths) == 3
    assert len({path.segments[0][0] for path in entry.paths}) == 1
    assert len({path.segments[1][0] for path in entry.paths if len(path.segments) > 1}) == 1
    assert not calls
    text = f.explain()
    assert "3 paths" in text
    assert "piecewise" not in text


@pytest.mark.parametrize("convert", [tj.asarray, np.asarray])
def test_paths_share_the_loop_before_their_first_difference(convert):
    @tj.jit
    def step(x, weights):
        while float((x * weights).sum()) > 1:
            x = x * 0.5
        return x + 1 if float(x[0]) > 0.3 else x - 1

    for first in (8, 1):
        step(tj.asarray(np.array([first, 8 - first], np.float32)), convert(np.ones(2, np.float32)))
    (entry,) = step._entries
    one, other = [[node for node, _answers in path.segments] for path in entry.paths]
    assert one == other


def test_threads_share_paths():
    f = tj.jit(lambda x: x * 2 if x.sum() > 3 else x + 1, strict=True)
    wrong = []

    def work():
        for i in range(100):
            result, n = f(tj.full(2, float(i % 4))).tolist(), float(i % 4)
            if result != ([2 * n] * 2 if n > 1.5 else [n + 1] * 2):
                wrong.append((i, result))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    assert f.cache_info().traces == 2


def test_paths_are_bounded(monkeypatch):
    monkeypatch.setattr(trace_tree, "PATHS", 4)
    monkeypatch.setattr(trace_tree, "TRIES", 12)

    def step(x):
        return x * len(range(int(x.sum())))

    f = tj.jit(step)
    for i in range(10):
        assert f(tj.full(1, float(i))).tolist() == [i * i]
    assert len(f._entries[0].paths) == 4
    for i in range(30):
        assert f(tj.full(1, float(i))).tolist() == [i * i]
    text = f.explain()
    assert "runs piecewise" in text
    assert "paths" in text
    assert f.cache_info().traces < 30


def test_what_stays_piecewise():
    def digits(x):
        return x * hash(x.sum().item())

    def text(x):
        return x * len(f"{float(x.sum())}")

    def logged(x):
        tj.callback(lambda a: None, x)
        return x if x.sum() > 0 else -x

    for step in (digits, text, logged):
        f = tj.jit(step)
        for i in range(1, 4):
            x = tj.full(2, float(i))
            assert bits(f(x)) == bits(step(x))
        assert "runs piecewise" in f.explain()
        with pytest.raises(ReplayError, match=r"test_tree\.py"):
            tj.jit(step, strict=True)(tj.ones(2))


def test_float_where_it_is_a_class_too():
    def step(x):
        y = float(x.sum())
        return x * (2.0 if isinstance(y, float) else 3.0)

    f = tj.jit(step)
    assert [f(tj.full(1, float(i))).tolist() for i in range(3)] == [[0], [2], [4]]


def test_functions_keep_their_builtins():
    def step(x):
        return float(x.sum())

    f = tj.jit(step, strict=True)
    assert [f(tj.full(1, float(i))) for i in range(3)] == [0, 1, 2]
    assert step.__builtins__["float"] is float
    assert type(f(tj.ones(1))) is float


# -- random programs -----------------------------------------------------------------------------------------


class Writer:
    """Writes a random function on arrays w, x, which are changed, and a number k."""

    def __init__(self, seed):
        self.random, self.lines, self.serial = random.Random(seed), [], 0

    def array(self):
        return self.random.choice(["w", "x", "t", "t", "w[::-1] * x", "tj.concatenate([t[:1], x[1:]])"])

    def number(self):
        return self.random.choice(["k", "n", "0.5", "1.25", f"float({self.random.choice('wxt')}.mean())"])

    def question(self):
        a = self.random.choice("wxt")
        return self.random.choice([
            f"{a}.sum() > k", f"float({a}.max()) < n", f"{a}[0].item() > {a}.mean().item()",
            f"bool(tj.isfinite({a}).all())", f"(n * 2 > k or {a}[1] < 0)", f"int({a}[2] * 3) % 2 == 0",
        ])  # fmt: skip

    def statement(self, depth, indent):
        pad, kind = "    " * indent, self.random.randrange(12 if depth else 6)
        a = self.random.choice("wxt")
        if kind == 0:
            self.lines.append(f"{pad}t = tj.tanh({self.array()}[:3] + {self.number()})")
        elif kind == 1:
            self.lines.append(f"{pad}{a} *= {self.number()}")
        elif kind == 2:
            self.lines.append(f"{pad}{a}[1:] = {self.random.choice('wxt')}[:-1] * 0.5")
        elif kind == 3:
            self.lines.append(f"{pad}n = {self.random.choice(['n + 1', 'float(t.sum())', 'n * 0.5', 'k'])}")
        elif kind == 4:
            self.lines.append(f"{pad}t = t + tj.random.uniform(shape=3)")
        elif kind == 5:
            self.lines.append(f"{pad}{a} = {self.random.choice('wxt')} - {a}")
        elif kind in (6, 7):
            self.lines.append(f"{pad}if {self.question()}:")
            self.block(depth - 1, indent + 1)
            if self.random.random() < 0.5:
                self.lines.append(f"{pad}else:")
                self.block(depth - 1, indent + 1)
        elif kind == 8:
            self.serial += 1
            self.lines += [
                f"{pad}i{self.serial} = 0",
                f"{pad}while i{self.serial} < 3 and {self.question()}:",
            ]
            self.lines.append(f"{pad}    i{self.serial} += 1")
            self.block(depth - 1, indent + 1)
        elif kind == 9:
            self.lines.append(f"{pad}if {self.question()}: return t, n")
        else:
            self.lines += [f"{pad}{line}" for line in self.convergence(kind)]

    def convergence(self, kind):
        """A loop without a counter, whose rounds hand on what they found to the next but one."""
        self.serial += 1
        a, b, c = (f"{name}{self.serial}" for name in "abc")
        if kind == 10:
            question = self.random.choice([f"(t * 0 + {c}).max() > n", f"{c} + t.mean() > k"])
            return [
                f"{a}, {b} = 0.0, 1.0 + k",
                f"while {b} - {a} > 0.3:",
                f"    {c} = 0.5 * ({a} + {b})",
                f"    if {question}: {b} = {c}",
                f"    else: {a} = {c}",
            ]
        arrays = self.random.choice(["t, t * 2", "t, x[:3]", "w[:3] + 1, t"])
        return [
            f"{a}, {b} = {arrays}",
            f"while float(tj.abs({b}).max()) > {self.random.choice(['0.5', '0.1'])}:",
            f"    {a}, {b} = {b}, 0.25 * {a} - 0.25 * {b}",
            f"t = {self.random.choice([a, b, f'{a} + {b}'])}",
        ]

    def block(self, depth, indent):
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, indent)

    def function(self):
        self.block(2, 1)
        self.block(2, 1)
        text = "\n".join(
            ["def step(w, x, k):", "    t, n = w[:3] * x[:3], 1.0", *self.lines, "    return t, n, w"]
        )
        namespace = {"tj": tj, "__name__": "random_programs"}
        exec(text, namespace)
        return namespace["step"], text


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_random_programs(seed):
    step, text = Writer(seed).function()
    numbers = np.random.default_rng(seed)
    data = [numbers.normal(size=(2, 3)).astype(np.float32) for _ in range(8)]

    def make():
        w = tj.asarray(data[0][0])
        return lambda i: (w if i % 2 else tj.asarray(data[i][0]), tj.asarray(data[i][1]), float(i % 3))

    try:
        f = same_as_eager(step, make, 8)
        seen = f.cache_info().traces
        again = make()
        tj.random.seed(5)
        for i in range(8):
            f(*again(i))
            tj.random.uniform(shape=2)
        assert f.cache_info().traces == seen, f.explain()
    except BaseException:
        print(text)
        raise


def test_a_path_of_too_many_different_segments_runs_piecewise(monkeypatch):
    monkeypatch.setattr("tracejit.frontend.recording.looks.SEGMENTS", 3)

    def body(x, last):
        for operation in (tj.sqrt, tj.negative, tj.abs, tj.exp2, tj.square)[:last]:
            if x.sum() != 0:
                x = operation(x)
        return x

    few, many = tj.jit(body), tj.jit(body)
    x = tj.asarray([16.0])
    assert [float(few(x, 3)) for _ in range(2)] == [4.0] * 2
    assert few.cache_info().replays == 1
    assert [float(many(x, 5)) for _ in range(2)] == [256.0] * 2
    assert "after 3 looks that each follow other operations" in many.explain()


# -- rounds that run natively --------------------------------------------------------------------------------


def halves(x, n, k):
    while (x.max() > k) is not False and x.max() > k:
        x = x * 0.5
    return x


def by_difference(x, n, k):
    before, now = 0.0, 1.0
    while abs(now - before) > 1e-3 * k:
        x = 0.5 * (x + 2.0 / x)
        before, now = now, float(x.sum())
    return x, before, now


def counts_down(x, n, k):
    """Both answers decide, and a whole number."""
    while float(x.min()) > 1.0:
        n = n - 2
        if n < 3:
            break
        x = x * 0.75 + 0.01 * n
    return x, n


def by_quotient(x, n, k):
    """The denominator is zero in one round: Python raises."""
    while 10.0 / (float(x.sum()) - k) > 0.0:
        x = x - 1.0
    return x


def until_not_a_number(x, n, k):
    while not float(x.max()) > 1e4:
        x = tj.sqrt(x - 0.5) if k > 1.5 else x * x
        if bool(tj.isnan(x).any()):
            break
    return x


def searches(x, n, k):
    """A number that rounds change goes into the arrays."""
    t = k * 8.0
    while ((x - t) ** 2).sum() > (x * x).sum():
        t = t * 0.5
    return x - t, t


def integers(x, n, k):
    y = x.astype("int32")
    while int(y.sum()) > n:
        y = y - 1
    return y


def hands_over(x, n, k):
    a, b, c = x, x * 0.5, x * 0.25
    while a.max() > k * 0.125:
        a, b, c = b, c, a * 0.25
    return a, b, c


def indexes(x, n, k):
    """May fail."""
    while x.max() > k:
        x = tj.take(x, tj.asarray([2, 0, 1])) * 0.5
    return x


def draws(x, n, k):
    while x.max() > k:
        x = x * tj.random.uniform(shape=x.shape)
    return x


def refuses(*args):
    raise Unsupported("not this way")


@pytest.mark.parametrize("branches", [True, False])
@pytest.mark.parametrize(
    ("step", "is_native"),
    [
        (halves, True),
        (by_difference, True),
        (counts_down, True),
        (by_quotient, True),
        (until_not_a_number, True),
        (searches, True),
        (integers, True),
        (hands_over, True),
        (indexes, True),
        (draws, True),
    ],
)
def test_rounds_that_the_graph_ends(step, is_native, branches, monkeypatch):
    """The same bits and errors as eager code, for any number of rounds. On GPUs no round is native."""
    if not branches:
        monkeypatch.setattr(BranchingLoop, "loop", refuses)
        is_native = is_native and step is not draws
    f = tj.jit(step, strict=True)
    is_native = is_native and tj.zeros(1).device == tj.cpu(0)

    def outcome(function, i):
        x = tj.asarray(np.array([2.0, 3.0, 5.0], np.float32) * (1.0 + i % 7))
        try:
            return bits(function(x, 40 + i % 9, 1.0 + i % 3))
        except ZeroDivisionError as error:
            return str(error)

    for function in (step, f):
        tj.random.seed(3)
        found = [outcome(function, i) for i in range(60)]
        if function is step:
            expected = found
    assert found == expected
    limits = [str(kind.ITERATIONS) for kind in (BranchingLoop, SelectingLoop)] + [str(MAX_ITERATIONS)]
    native = [path for path in f._entries[0].paths if any(limit in path.text for limit in limits)]
    assert bool(native) == is_native, f.explain()
    told = [line for line in f.explain().splitlines() if line.startswith("  iterations up to ")]
    assert any(line.endswith("are one launch") for line in told) == is_native
    if native:
        names = {kernel.name for schedule in native[0].schedules for kernel in schedule.kernels}
        assert "loop" in names


def checksum(data, poly):
    """A ``for`` over an array, one over a range in it, and a branch; whole numbers of Python's."""
    crc = 0xFFFF
    for b in data:
        byte = 0xFF & b
        for _ in range(8):
            if (crc & 1) ^ (byte & 1):
                crc = (crc >> 1) ^ poly
            else:
                crc >>= 1
            byte >>= 1
    return (~crc & 0xFF) << 8 | (crc >> 8) & 0xFF


def largest(data, limit):
    best, at = data[0], 0
    for k in range(1, len(data)):
        if data[k] > best:
            best, at = data[k], k
    return best, at


def clamped_walk(data, limit):
    """Three ways, and an array of which a branch stores one element."""
    at, seen, count = data[0] * 0, data * 0, 0
    for v in data:
        if v % 3 == 0:
            at = at + 1
        elif at > 2:
            at = at - 2
            seen[at] = v
        count = max(count, 3) + 1
    return at, seen, count


def table_walk(data, limit):
    """An index that is out of range in one branch, in some calls."""
    total = data[0] * 0
    for k in range(len(data)):
        total = total + data[data[k] - 8] if data[k] > 7 else total - 1
    return total


def sums_of_numbers(data, limit):
    n = 100
    for k in range(len(data)):
        n += int(data[k])
    return n


@pytest.mark.cpu("it counts launches of rounds, which on GPUs are a launch each")
@pytest.mark.parametrize("step", [checksum, largest, clamped_walk, table_walk, sums_of_numbers])
def test_rounds_that_branch_are_one_launch(step):
    f = tj.jit(step, strict=True)

    def outcome(function, data, limit):
        try:
            return [np.asarray(each).tolist() for each in np.atleast_1d(function(data, limit))]
        except ValueError:
            return [np.asarray(each).tolist() for each in function(data, limit)]
        except IndexError:
            return "out of range"

    for i in range(20):
        data = np.random.default_rng(i).integers(0, 120 if i % 7 == 6 else 18, 20).astype(np.uint8)
        with np.errstate(over="ignore"):
            expected = outcome(step, data, 0x8408)
        assert outcome(f, data, 0x8408) == expected
    assert "are one launch" in f.explain()
    assert "a launch each" not in f.explain()
    assert f.cache_info().traces <= 8


def adds(x):
    n = 100
    for k in range(6):
        n += int(x[k])
    return n


def adds_in_one_line(x):
    n = 100
    for k in range(6): n += int(x[k])  # fmt: skip  # noqa: E701
    return n


def chooses(x):
    n = 1
    for k in range(6):
        n = n * 2 + (n if int(x[k]) > 3 else -n)
    return n


def calls(x):
    n = m = 1
    for k in range(6):
        n, m = max(n, int(x[k]), m), n + m
    return n * 1000 + m


def packs(x):
    n, pairs = 3, ()
    for k in range(6):
        pairs = (n, int(x[k]), -n)
        n = pairs[1] - pairs[2]
    return n


def compares(x):
    n = 2
    for k in range(6):
        n += 1 if n < int(x[k]) < n + 4 else 0
    return n


def counts_on(x):
    n = k = 0
    while k < 6:
        k = k + 1; n = n + k * int(x[k - 1])  # fmt: skip  # noqa: E702
    return n


def two_looks(x, k):
    r = 1
    if x[k] > 2:
        r = 2
    if x[k] * x[k] > 5:
        r = r + 3
    return r


def adds_two_looks(x):
    n = 2
    for k in range(6):
        n += two_looks(x, k)
    return n


def uses_a_number_that_changes_rarely(x):
    n, m = 1, 0
    for k in range(6):
        m = m + n * two_looks(x, k)
        if x[k] > 4:
            n = n + 1
    return n, m


class Total:
    def __init__(self):
        self.sum = 3

    def add(self, x, k):
        self.sum += two_looks(x, k) * self.weight(x, k)

    def weight(self, x, k):
        return 2 if x[k] + x[0] > 4 else 1


def adds_to_an_attribute(x):
    total = Total()
    for k in range(6):
        total.add(x, k)
    return total.sum


@pytest.mark.parametrize(
    "step",
    [
        *(adds, adds_in_one_line, chooses, calls, packs, compares, counts_on, adds_two_looks),
        *(uses_a_number_that_changes_rarely, adds_to_an_attribute),
    ],
)
def test_a_number_that_is_loaded_before_a_look_is_no_literal_later(step):
    """``n += int(...)`` loads n, a literal in the first round, before the look makes it a counter."""
    same_as_eager(step, lambda: lambda i: (tj.arange(6) + i,), 4)


@pytest.mark.cpu("it reads the limits of native rounds, which GPUs do not have")
def test_launches_of_rounds_are_limited_by_the_naive_engine_only(monkeypatch):
    """It answers interrupts between launches. Others leave a launch after a time slice."""

    def step(x):
        n = 0
        while float(x[n]) > 0:
            n += 1
        return n

    texts = []
    for engine in ("naive", tj.config.engine):
        monkeypatch.setattr(tj.config, "engine", engine)
        f = tj.jit(step, strict=True)
        assert [f(tj.asarray(np.arange(k, -1, -1.0))) for k in (9, 30, 4)] == [9, 30, 4]
        texts.append("".join(path.text for path in f._entries[0].paths))
    limits = [[str(limit) in text for limit in (MAX_ITERATIONS, BranchingLoop.ITERATIONS)] for text in texts]
    assert limits == [[True, False], [False, True]]


@pytest.mark.cpu("it counts launches of rounds, which on GPUs are a launch each")
def test_explain_says_why_rounds_are_a_launch_each():
    def step(x, n, k):
        while math.hypot(float(x.sum()), 0.5) > k:
            x = x * 0.5
        return x

    for body, reason in (
        (draws, "an iteration draws random numbers"),
        (step, "numbers are computed by math.hypot(x, y)"),
    ):
        f = tj.jit(body, strict=True)
        f(tj.full(30, 4e6), 0, 1.0)
        assert f"are a launch each: {reason}" in f.explain()


def test_a_launch_is_a_part_of_very_many_rounds(monkeypatch):
    for kind in (BranchingLoop, SelectingLoop):
        monkeypatch.setattr(kind, "ITERATIONS", 7)
    f = tj.jit(by_difference, strict=True)
    for k in (1.0, 1e-4, 1e-2):
        for scale in (1.0, 1e6):
            x = tj.full(3, scale)
            assert bits(f(x, 0, k)) == bits(by_difference(x, 0, k))


def test_whole_numbers_beyond_floats_are_pythons():
    def step(x, n):
        while float(x.sum()) < n:
            n = n + 1
            x = x * 2.0
        return x, n

    f = tj.jit(step)
    for n in (10, 300, 2**53 + 1, 2**60, 10, 2**70, 300):
        assert bits(f(tj.ones(3), n)) == bits(step(tj.ones(3), n))


def doubles(x, limit):
    n = 0
    while True:
        found = int(x[0])
        if found + found > limit or n > 20:
            return x, n
        x = x * 65536
        n += 1


def negates(x, limit):
    n = 0
    while -int(x[0]) < limit and n < 20:
        x = x * 65536
        n += 1
    return x, n


def sizes(x, limit):
    n = 0
    while abs(int(x[0])) < limit and n < 20:
        x = x * 65536
        n += 1
    return x, n


@pytest.mark.parametrize(("step", "first"), [(doubles, 2**14), (negates, -(2**15)), (sizes, -(2**15))])
def test_whole_numbers_do_not_leave_int64(step, first):
    """2 * 2**62 and -(-2**63) are Python's: the graph ends its rounds before."""
    f = tj.jit(step, strict=True)
    for _ in range(3):
        x, n = f(tj.asarray([first]), 1 << 51)
        assert (n, x.dtype) == (3, np.int64)
    assert f.cache_info().traces == 1


def test_kernels_of_a_function_that_looks():
    """They depend on values; the error says where those of the calls are."""

    @tj.jit
    def step(x):
        return x * 2 if float(x.sum()) > 1 else x

    with pytest.raises(ReplayError) as error:
        step.kernels(tj.ones(3))
    assert not getattr(error.value, "__notes__", [])
    step(tj.ones(3))
    with pytest.raises(ReplayError) as error:
        step.kernels(tj.ones(3))
    assert "`schedules()` has those of the calls" in error.value.__notes__[0]
    names = {kernel.name for schedule in step.schedules() for kernel in schedule.kernels}
    assert names == {"sum", "multiply"}
