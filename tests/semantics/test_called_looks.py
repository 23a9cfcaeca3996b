"""Looks at values in functions and methods that a traced body calls: loops around them replay.

Solvers, line searches and environments are written so: a helper computes a norm, a method says whether to go
on, an object counts its steps. Each program is compared with eager code bit for bit, with how often it was
recorded. What hides the state of a loop (C code that calls the function which looks) must not become one.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import functools
import heapq
import importlib
import inspect
import json.decoder
import pkgutil
import statistics
import sys
import tempfile
import threading
import types

import numpy as np
import pytest

import tracejit as tj
from tracejit.frontend.python.bytecode import codes, is_generator
from tracejit.frontend.python.code_positions import call_at
from tracejit.frontend.python.kinds import OURS, OWNER, USERS, treat_like_users
from tracejit.frontend.python.stack import pending, stack_steps
from tracejit.frontend.recording.look_loops import states
from tracejit.frontend.recording.look_loops.state_graph import StateGraph, Transition

CALLS = 8


def arrays(seed: int = 1, size: int = 6):
    rng = np.random.default_rng(seed)
    return [tj.asarray((rng.normal(size=size) * 4).astype(np.float32)) for _ in range(CALLS)]


def bits(tree):
    return [
        (str(leaf.dtype), leaf.shape, leaf.numpy().tobytes())
        if isinstance(leaf, tj.NDArray)
        else (type(leaf).__name__, repr(leaf))
        for leaf in tj.tree.leaves(tree)
    ]


def same_as_eager(body, calls, most=1):
    """All calls give the bits of eager ones; after at most so many recordings they replay."""
    function = tj.jit(body)
    for arguments in calls:
        assert bits(function(*arguments)) == bits(body(*arguments)), function.explain()
    info = function.cache_info()
    assert info.traces <= most, function.explain()
    assert info.replays == len(calls) - info.traces
    return function


def norm(r):
    return float(tj.sqrt((r * r).sum()))


def is_small(r, limit):
    return (r * r).sum() < limit * limit


def converged(r, limit):
    return norm(r) < limit


# -- helpers -------------------------------------------------------------------------------------------------


def test_a_helper_gives_a_number():
    def body(x):
        n = 0
        while norm(x) > 1.0:
            x = x * 0.75
            n += 1
        return x, n

    same_as_eager(body, [(x,) for x in arrays()])


def test_a_helper_gives_a_truth():
    def body(x):
        while not is_small(x, 1.0):
            x = x * 0.75
        return x

    function = same_as_eager(body, [(x,) for x in arrays()])
    assert "one launch" in function.explain()


def test_a_helper_calls_a_helper():
    def body(x, limit):
        while not converged(x, limit):
            x = x * 0.75
        return x

    same_as_eager(body, [(x, 1.0) for x in arrays()])


def test_helpers_in_both_branches():
    def largest(u, v):
        return max(float(u), float(v))

    namespace = {"__name__": "helpers", "largest": largest}
    exec(
        "def shrink(x):\n"
        "    while largest(x[0], x[1]) > 0.5:\n"
        "        x = x * 0.5 if largest(x[2], x[3]) > 1.0 else x - 0.25\n"
        "    return x\n",
        namespace,
    )
    same_as_eager(namespace["shrink"], [(abs(x),) for x in arrays()], most=CALLS - 1)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@decorated
def total(x):
    return float(abs(x).sum())


@tj.jit
def traced_total(x):
    return float(abs(x).sum())


@pytest.mark.parametrize("helper", [total, traced_total], ids=["decorated", "traced"])
def test_a_wrapped_helper(helper):
    def body(x):
        while helper(x) > 1.0:
            x = x * 0.75
        return x

    same_as_eager(body, [(x,) for x in arrays()])


def halved(x, depth):
    if depth == 0 or norm(x) < 1.0:
        return x
    return halved(x * 0.5, depth - 1)


def test_a_helper_calls_itself():
    same_as_eager(lambda x: halved(x, 10), [(x,) for x in arrays()], most=CALLS - 1)


# -- objects -------------------------------------------------------------------------------------------------


class Solver:
    def __init__(self, matrix, limit):
        self.matrix, self.limit, self.rounds = matrix, limit, 0

    def residual(self, b, x):
        return b - self.matrix @ x

    def is_done(self, r):
        return float(abs(r).max()) < self.limit

    def step(self, x, r):
        self.rounds += 1
        return x + 0.25 * r

    def solve(self, b, x):
        r = self.residual(b, x)
        while not self.is_done(r):
            x = self.step(x, r)
            r = self.residual(b, x)
        return x


def test_a_solver_as_an_object():
    rng = np.random.default_rng(0)
    q = rng.normal(size=(8, 8))
    matrix = tj.asarray((np.eye(8) + q @ q.T / 16).astype(np.float32))
    eager, traced = Solver(matrix, 1e-3), Solver(matrix, 1e-3)
    function = tj.jit(Solver.solve)
    for _ in range(CALLS):
        b = tj.asarray(rng.normal(size=8).astype(np.float32))
        assert bits(function(traced, b, tj.zeros(8))) == bits(eager.solve(b, tj.zeros(8)))
        assert traced.rounds == eager.rounds
    assert function.cache_info().traces == 1, function.explain()


class Environment:
    def __init__(self):
        self.place, self.steps = tj.zeros(2), 0

    def reset(self, x):
        self.place, self.steps = x[:2] * 1.0, 0

    def step(self, action):
        self.place = self.place + 0.125 * action
        self.steps += 1
        cost = (self.place * self.place).sum()
        return self.place, -cost, bool(cost < 0.25)


def test_a_rollout_counts_in_its_environment():
    environment = Environment()

    def rollout(x, most):
        environment.reset(x)
        reward, done, place = 0.0, False, environment.place
        while not done and environment.steps < most:
            place, gained, done = environment.step(-place)
            reward = reward + gained
        return reward, place, environment.steps

    same_as_eager(rollout, [(x, 20) for x in arrays()], most=2)


def episode(environment, x, most):
    environment.reset(x)
    reward, place, last = 0.0, environment.place, -1
    for k in range(most):
        place, gained, done = environment.step(-place)
        reward = reward + gained
        last = k
        if done:
            break
    return reward, place, last


def test_a_called_function_loops_over_a_range():
    environment = Environment()

    def body(x):
        return episode(environment, x, 20)

    same_as_eager(body, [(x,) for x in arrays()], most=2)


def first_above(x, limit):
    count = 0
    for v in x:
        if v > limit:
            return v, count
        count += 1
    return limit, count


def test_a_called_function_loops_over_an_array():
    def body(x):
        return first_above(x, 3.0), first_above(-x, 0.5)

    same_as_eager(body, [(x,) for x in arrays(size=20)], most=6)


def test_an_attribute_is_added_to_while_its_old_value_is_loaded():
    class Counts:
        n = 0

    counts = Counts()

    def body(x):
        counts.n = 0
        k = 0
        while float(x[k]) > 0.5 and k < 5:
            counts.n += int(x[k] * 3.0)
            counts.n = counts.n + 1
            k += 1
        return counts.n, k

    same_as_eager(body, [(abs(x),) for x in arrays()], most=CALLS - 2)


@dataclasses.dataclass
class State:
    x: tj.NDArray
    n: int


def test_a_dataclass_is_updated_in_place():
    def body(state):
        while norm(state.x) > 1.0:
            state.x = state.x * 0.75
            state.n += 1
        return state

    function = tj.jit(body)
    for x in arrays():
        given, expected = function(State(x, 0)), body(State(x, 0))
        assert bits([given.x, given.n]) == bits([expected.x, expected.n])
    assert function.cache_info().traces == 1, function.explain()


class Bracket:
    def __init__(self, low, high):
        self.low, self.high = low, high

    def width(self):
        return float(self.high - self.low)


def test_each_round_makes_an_object():
    def root(c):
        bracket = Bracket(c * 0.0, c * 1.0 + 1.0)
        while bracket.width() > 1e-3:
            middle = (bracket.low + bracket.high) * 0.5
            bracket = Bracket(bracket.low, middle) if middle * middle > c else Bracket(middle, bracket.high)
        return bracket.low

    same_as_eager(root, [(abs(x[0]),) for x in arrays()], most=CALLS - 2)


# -- state that is hidden ------------------------------------------------------------------------------------


def key_of(v):
    return float(v)


def is_positive(v):
    return bool(v > 0)


def test_c_code_that_calls_a_helper_is_no_loop():
    def body(x):
        parts = [x[k] for k in range(4)]
        ordered = sorted(parts, key=key_of)
        chosen = list(filter(is_positive, parts))
        reduced = functools.reduce(lambda u, v: u if key_of(u) > key_of(v) else v, parts)
        return ordered, len(chosen), reduced, max(parts, key=key_of)

    function = tj.jit(body)
    for x in arrays():
        assert bits(function(x)) == bits(body(x))


def heap(x):
    values = [x[k] for k in range(6)]
    heapq.heapify(values)
    return [heapq.heappop(values) for _ in range(3)]


def inserted(x):
    values = []
    for k in range(5):
        bisect.insort(values, x[k])
    return values


def grown(x):
    total = x.sum() * 0
    while max(total, x[0], x[1]) < 9.0:
        total = total + abs(x[1]) + 1
    return total


@pytest.mark.parametrize(
    "body",
    [
        heap,
        inserted,
        grown,
        lambda x: sorted([x[k] for k in range(5)]),
        lambda x: min([x[k] for k in range(6)]),
        lambda x: (max(x[0], x[1], x[2], x[3]), min(x[0], x[1])),
        lambda x: (x[0] in [x[3], x[1] - 1, x[2] + 1], [x[1] - 1, x[2] + 1, x[4], x[0]].index(x[0])),
        lambda x: ([x[0], x[1], x[2]] == [x[0], x[1], x[3] - 1], [x[0], x[1]] < [x[0], x[2]]),
        lambda x: (any([x[0] > 0, x[1] > 1, x[2] > 2]), all([x[0] > 0, x[1] > 1, x[2] > 2])),
        lambda x: list(filter(None, [x[0] > 0, x[1] > 1, x[2] > 2])),
        lambda x: sum(map(bool, [x[0] > 0, x[1] > 1, x[2] > 2])),
    ],
    ids=["heap", "insort", "while", "sorted", "min", "max", "in", "equal", "any", "filter", "map"],
)
def test_c_code_that_looks_several_times_is_no_loop(body):
    """Its looks are at one place, and what it has done so far is not to be seen."""
    function, rng = tj.jit(body), np.random.default_rng(3)
    for _ in range(16):
        x = tj.asarray((rng.permutation(6) - rng.integers(0, 4)).astype(np.float32))
        assert bits(function(x)) == bits(body(x))


def test_what_a_comprehension_has_collected_counts():
    def body(x):
        return [1 if float(x[k]) > 0 else 0 for k in range(6)], [is_positive(x[k]) for k in range(6)]

    function = tj.jit(body)
    for x in arrays():
        assert bits(function(x)) == bits(body(x))


def values_of(x):
    for k in range(4):
        yield float(x[k])


def test_a_generator_that_looks_is_no_loop():
    def body(x):
        total, seen = 0.0, []
        for v in values_of(x):
            total += v
            seen.append(v > 0)
        return total, seen

    function = tj.jit(body)
    for x in arrays():
        assert bits(function(x)) == bits(body(x))


def test_objects_of_c_code_count():
    def body(x):
        recent = collections.deque(maxlen=3)
        n = 0
        while norm(x) > 1.0:
            recent.append(n % 3)
            n = len(recent) + sum(recent)
            x = x * 0.5
        return x, list(recent), n

    function = tj.jit(body)
    for x in arrays():
        assert bits(function(x)) == bits(body(x))


def test_a_temporary_behind_a_branch_counts():
    def pair(u, v, w):
        return u * 2 if isinstance(u, tj.NDArray) else v * 3, w

    def body(x):
        k, y = 0, x * 1.0
        while k < 4:
            y, w = pair(y if k % 2 else 1.0, 1.0 if k % 2 else y, float(y.sum()) > 0)
            k += 1 if w else 2
        return y, k

    function = tj.jit(body)
    for x in arrays():
        assert bits(function(x)) == bits(body(x))


def rate(k):
    return 2.0 if k > 3 else 0.25


def test_a_number_that_a_branch_has_left_on_the_stack_counts():
    def conditional(x):
        k = 0
        while k < 8:
            x = x * ((2.0 if k > 3 else 0.25) * float(x.max()))
            k += 1
        return x

    def called(x):
        k = 0
        while k < 8:
            x = x * (rate(k) * float(x.max()))
            k += 1
        return x

    def taken(x):
        rates = [2.0, 0.5, 0.25, 1.5, 3.0, 0.125]
        k = 0
        while k < 6:
            x = x * (rates.pop() * float(x.max()))
            rates.append(1.0)
            rates.pop()
            k += 1
        return x

    for body in (conditional, called, taken):
        function = tj.jit(body)
        for x in arrays():
            x = x / abs(x).max()
            assert bits(function(x)) == bits(body(x))


def every_third(x):
    k = 0
    while k < 9:
        if float(x.sum()) > 0.1:
            x = x * ((2.0 if k % 3 == 0 else 0.25) * float(x.max()))
        k += 1
    return x


def once(x):
    k = 0
    while k < 4:
        if float(x[k]) > 0:
            x = x * ((0.5 if k == 2 else 0.25) * float(x.max()))
        if x.sum() > (0.1 if k == 1 else 0.2):
            x = x + 0.5
        k += 1
    return x


@pytest.mark.parametrize("body", [every_third, once])
def test_a_literal_that_a_branch_chose_belongs_to_the_round(body):
    """It is on the stack while the next value is looked at, and in no variable."""
    function, rng = tj.jit(body), np.random.default_rng(0)
    for _ in range(24):
        x = tj.asarray(rng.normal(size=6).astype(np.float32))
        assert bits(function(x)) == bits(body(x))


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __enter__(self):
        return self

    def __exit__(self, *_):
        Scaled.last = self.factor


def test_what_a_with_statement_leaves_counts():
    def body(x):
        k = 0
        while k < 6:
            with Scaled(2.0 if k > 3 else 0.25):
                x = x * 0.5 if float(x.max()) > 0.1 else x * 1.5
            x = x * Scaled.last
            k += 1
        return x

    function = tj.jit(body)
    for x in arrays():
        assert bits(function(x)) == bits(body(x))


TABLE = {"norm": norm}


def test_a_helper_in_a_table_is_itself():
    def body(x):
        return TABLE["norm"](x) * (2.0 if TABLE["norm"] is norm else 3.0)

    function = tj.jit(body)
    for x in arrays():
        assert bits(function(x)) == bits(body(x))


def test_a_state_with_two_transitions_of_the_same_answers_is_unknown():
    state = states.State((), (), ())

    def transition(start, end, segment):
        return Transition(start, end, state, state, [], None, (segment, ("question",), (), ()))

    graph = StateGraph([], None)
    graph.state_ids, graph.states = [0, 1, 0, 1], [state] * 4
    first, second = transition(0, 1, "segment"), transition(1, 0, "segment")
    for each in first, second, transition(0, 1, "segment"):
        graph._add_transition(each)
    known = {start: [*transitions.values()] for start, transitions in graph.transitions.items()}
    assert known == {0: [first], 1: [second]}
    graph._add_transition(transition(1, 0, "other segment"))
    assert graph.state_ids == [0, None, 0, None]
    assert graph.transitions == {0: {}, 1: {}}, "a transition leads to an unknown state"


@pytest.mark.parametrize("module", [dataclasses, inspect, functools, json.decoder, statistics, tempfile])
def test_stacks_of_any_code_are_read(module):
    """Whatever the code, the depth of its stack is that of the interpreter, and what is on it has a kind."""
    functions = [each for each in vars(module).values() if isinstance(each, types.FunctionType)]
    found = []
    for code in (code for function in functions for code in codes(function.__code__)):
        for step in () if is_generator(code) else stack_steps(code):  # they are no part of a state
            call_at(code, step.instruction.offset)
            found.append(pending(code, step.instruction.offset))
            assert step.before is None or 0 <= step.before <= code.co_stacksize
    assert {(0, 0), (0, 1), None} <= set(found)
    assert min(min(each) for each in found if each is not None) == 0


# -- copies of helpers ---------------------------------------------------------------------------------------


def test_a_helper_is_itself_where_it_is_compared():
    def body(x, function):
        return float(x.sum()) * (2.0 if function is norm else 3.0) + norm(x)

    function = tj.jit(body)
    for x in arrays():
        assert bits(function(x, norm)) == bits(body(x, norm))
        assert bits(function(x, total)) == bits(body(x, total))


def test_helpers_are_themselves_again():
    original, method = norm, Solver.__dict__["is_done"]

    def failing(x):
        if norm(x) > 0:
            raise KeyError("stop")
        return x

    with pytest.raises(KeyError):
        tj.jit(failing)(arrays()[0])
    test_a_solver_as_an_object()
    assert norm is original
    assert Solver.__dict__["is_done"] is method


def number_or(x, other):
    return float(x) if isinstance(x, tj.NDArray) else float(other)


def test_other_threads_may_call_a_helper_meanwhile():
    stop, wrong = threading.Event(), []

    def outside():
        while not stop.is_set():
            if number_or(1.5, 1) != 1.0 or number_or(tj.ones(()), 2) != 1.0 or norm(tj.ones(4)) != 2.0:
                wrong.append(1)

    def body(x):
        while number_or(x.sum(), 1.0) > 1.0:
            x = x * 0.5
        return x

    thread = threading.Thread(target=outside)
    thread.start()
    try:
        for _ in range(5):
            same_as_eager(body, [(abs(x),) for x in arrays()])
    finally:
        stop.set()
        thread.join()
    assert not wrong


def test_strict_functions_may_look_in_helpers():
    @tj.jit(strict=True)
    def body(x):
        while norm(x) > 1.0:
            x = x * 0.75
        return x

    for x in arrays():
        body(x)
    assert body.cache_info().traces == 1


def test_a_module_is_the_users_whatever_its_name(monkeypatch):
    """Constructors that Python generates for named tuples are in modules of such names, which none loads."""
    monkeypatch.setitem(sys.modules, "namedtuple_helpers", types.ModuleType("namedtuple_helpers"))
    assert OWNER["namedtuple_helpers"] == USERS
    assert OWNER["namedtuple_Point"] == OURS


@pytest.mark.parametrize("package", ["tracejit.nn.modules", "tracejit.kvstore"])
def test_modules_that_access_attributes_of_users_count_as_user_code(package):
    root = importlib.import_module(package)
    names = [package, *(f"{package}.{each.name}" for each in pkgutil.iter_modules(root.__path__))]
    assert {OWNER[importlib.import_module(name).__name__] for name in names} == {USERS}


def test_a_module_counts_as_user_code_also_if_it_was_asked_for_before():
    assert OWNER["tracejit.imported_late"] == OURS
    try:
        treat_like_users("tracejit.imported_late")
        assert OWNER["tracejit.imported_late"] == USERS
    finally:
        del OWNER["tracejit.imported_late"]
    assert [OWNER[f"tracejit.optim.{name}"] for name in ("adaptive", "descent")] == [USERS, OURS]
