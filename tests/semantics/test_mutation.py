"""Promise 1: mutation replays, through every alias and into every container; addresses never change."""

from __future__ import annotations

import collections
import dataclasses
import random
import types

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.compare import Program, check
from tracejit.frontend.signature.slots import Content, content_of, same_items

SEVEN = tj.asarray(np.arange(7, dtype=np.float32))
PLAIN_SEVEN = np.arange(7, dtype=np.float32)


def test_in_place_operators_on_an_argument():
    def make(xp, array):
        w = array([[1.0, 2.0], [3.0, 4.0]])

        def step(w, x):
            w += x
            w *= 0.5
            w -= x[0]
            w /= 2.0
            w **= 2
            return w.sum()

        return Program(step, lambda i: (w, array([[i, 1.0], [2.0, i + 0.5]])), w)

    check(make)


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        slice(1, 3),
        slice(None, None, 2),
        slice(None, None, -1),
        (slice(None), 1),
        (..., slice(1, None)),
        None,
    ],
    ids=str,
)
def test_assignment_through_a_slice(index):
    def make(xp, array):
        w = array(np.arange(12.0).reshape(4, 3))

        def step(w, x):
            w[index] = x
            w[index] += 1.0

        return Program(step, lambda i: (w, array(float(i))), w)

    check(make)


def test_views_made_inside_write_into_their_base():
    def make(xp, array):
        w = array(np.arange(12.0).reshape(3, 4))

        def step(w, x):
            corner = w[1:, 2:]
            row = w[1]
            corner += x
            row[2] = 7.0
            w.T[0] -= 1.0
            w.reshape(-1)[5] = x
            return corner.sum() + row.sum()

        return Program(step, lambda i: (w, array(float(i + 1))), w)

    check(make)


def test_views_made_outside_see_what_happens_inside_and_the_other_way_round():
    def make(xp, array):
        w = array(np.arange(6.0))
        outside = w[2:5]
        flipped = w[::-1]

        def step(w):
            w *= 2.0
            w[3] = 0.5
            return w.sum()

        def arguments(i):
            outside[0] = i  # seen inside
            return (w,)

        return Program(step, arguments, [w, outside, flipped])

    check(make)


def test_a_view_as_argument_writes_into_its_base():
    def make(xp, array):
        base = array(np.arange(10.0))

        def step(part, x):
            part += x
            part[0] = -1.0

        return Program(step, lambda i: (base[i : i + 3], array(float(i))), base)

    check(make, calls=5)  # one trace: the offset of a view is a run-time value


def test_a_strided_and_a_transposed_view_as_argument():
    def make(xp, array):
        base = array(np.arange(24.0).reshape(4, 6))

        def step(part, x):
            part *= x
            return part.sum()

        return Program(step, lambda i: (base.T[i % 2 :: 2, 1:3], array(float(i + 1))), base)

    check(make)


def test_a_closure_is_written():
    def make(xp, array):
        w, velocity = array([1.0, 2.0]), array([0.0, 0.0])

        def step(x):
            velocity[...] = velocity * 0.9 + x
            w[0] -= velocity.sum()

        return Program(step, lambda i: (array([i, 1.0]),), [w, velocity])

    check(make)


def test_a_global_is_written():
    @tj.jit
    def step(x):
        SEVEN[1:3] += x
        return SEVEN.sum()

    before = SEVEN.numpy()
    for i in range(4):
        result = step(tj.asarray([float(i), 1.0]))
        before[1:3] += np.array([i, 1.0], dtype=np.float32)
        np.testing.assert_allclose(SEVEN.numpy(), before)
        assert float(result) == pytest.approx(before.sum())
    assert step.cache_info().traces == 1


class Model:
    def __init__(self, array):
        self.w = array([1.0, 2.0])
        self.state = {"m": array([0.0, 0.0]), "steps": 0}
        self.history = types.SimpleNamespace(last=array([0.0, 0.0]), count=0)
        self.t = 0


def test_attributes_of_self_are_written_and_rebound():
    def make(xp, array):
        model = Model(array)

        def step(self, x, lr):
            self.t += 1
            self.state["m"] = self.state["m"] * 0.9 + x
            self.w -= lr * self.state["m"] / (1 - 0.9**self.t)
            self.history.last = self.w * 1.0
            self.history.count += 2

        return Program(step, lambda i: (model, array([i, 1.0]), 0.1 / (i + 1)), model)

    check(make, calls=6)


def test_an_object_in_a_closure_is_rebound():
    def make(xp, array):
        model = Model(array)

        def step(x):
            model.t += 1
            model.w = model.w + x * model.t

        return Program(step, lambda i: (array([i, 1.0]),), model)

    check(make, calls=6)


def test_dicts_and_lists_among_the_arguments_are_rebound():
    def make(xp, array):
        params = {"w": array([1.0, 2.0]), "layers": [array([3.0]), array([4.0])], "t": 0}

        def step(params, x):
            params["w"] = params["w"] - x
            params["layers"][1] = params["layers"][0] * params["w"].sum()
            params["layers"][0] = params["layers"][1] + 1.0
            params["t"] += 1
            return params["t"]

        return Program(step, lambda i: (params, array([i, 1.0])), params)

    check(make, calls=5)


def test_keys_come_and_go():
    def make(xp, array):
        state = {"a": array([1.0])}

        def step(state, x):
            if "b" in state:
                del state["b"]
            else:
                state["b"] = state["a"] + x
            state["a"] = state["a"] + 1.0

        return Program(step, lambda i: (state, array([float(i)])), state)

    check(make, calls=6, traces=2)


class Full(dict):
    """A dict that others read all the time: "a" is always there."""

    def update(self, *given, **more):
        super().update(*given, **more)
        assert "a" in self

    def clear(self):
        raise AssertionError("others would find nothing")


def test_keys_that_stay_are_always_there():
    """And keys are in the order in which the body leaves them."""

    @tj.jit
    def step(state):
        for key in ("b", "c"):
            if key in state:
                del state[key]
            else:
                state[key] = state["a"] + 1
        if "b" in state:  # "a" moves to the end
            state["a"] = state.pop("a") * 2

    state, expected = Full(a=tj.ones(1)), {"a": 1.0}
    for _ in range(6):
        step(state)
        for key in ("b", "c"):
            if key in expected:
                del expected[key]
            else:
                expected[key] = expected["a"] + 1
        if "b" in expected:
            expected["a"] = expected.pop("a") * 2
        assert [(key, float(x)) for key, x in state.items()] == list(expected.items())
    assert step.cache_info().replays > 0


def test_lists_grow_and_shrink():
    def make(xp, array):
        queue = [array([1.0]), array([2.0])]

        def step(queue, x):
            queue.append(queue.pop(0) + x)

        return Program(step, lambda i: (queue, array([float(i)])), queue)

    check(make)


def test_arrays_are_swapped():
    def make(xp, array):
        pair = {"new": array([1.0]), "old": array([2.0])}

        def step(pair, x):
            pair["new"], pair["old"] = pair["old"], pair["new"]
            pair["new"] += x

        return Program(step, lambda i: (pair, array([float(i)])), pair)

    check(make)


@dataclasses.dataclass
class State:
    w: object
    t: int = 0

    def advance(self, x):
        self.t += 1
        self.w = self.w + x * self.t


def test_a_dataclass_is_rebound():
    def make(xp, array):
        state = State(array([1.0, 2.0]))

        def step(state, x):
            state.advance(x)
            return state

        return Program(step, lambda i: (state, array([i, 1.0])), state)

    check(make, calls=5)


@pytest.mark.cpu("NumPy looks at the memory itself")
def test_the_address_of_a_storage_never_changes():
    w = tj.zeros(100)
    address = w.numpy(copy=False).__array_interface__["data"][0]

    @tj.jit
    def step(w, x):
        w[...] = w.T * 2 + x
        w += w[::-1]

    for i in range(4):
        step(w, tj.ones(100) * i)
        assert w.numpy(copy=False).__array_interface__["data"][0] == address


def test_writing_to_a_numpy_argument_is_refused_with_the_remedy():
    @tj.jit
    def step(x):
        x += 1

    data = np.zeros(3)
    with pytest.raises(ValueError, match=r"tj\.asarray"):
        step(data)
    np.testing.assert_array_equal(data, 0)


def test_a_batch_buffer_may_be_reused_at_once():
    @tj.jit
    def total(x):
        return (x * 2).sum()

    buffer = np.zeros(1000, np.float32)
    results = []
    for i in range(5):
        buffer[...] = i
        results.append(total(buffer))
    assert [float(r) for r in results] == [0.0, 2000.0, 4000.0, 6000.0, 8000.0]
    assert total.cache_info().traces == 1


def test_a_result_that_comes_back_as_argument_is_one_signature():
    """A product with a vector leaves a block of another shape behind the same elements."""

    @tj.jit
    def power(matrix, state):
        state["v"] = matrix @ state["v"]
        state["v"] /= tj.sqrt((state["v"] * state["v"]).sum())

    matrix = np.random.default_rng(0).standard_normal((5, 5))
    state, expected = {"v": tj.asarray(np.ones(5))}, np.ones(5)
    for _ in range(4):
        power(tj.asarray(matrix), state)
        expected = matrix @ expected
        expected /= np.sqrt((expected * expected).sum())
    np.testing.assert_allclose(state["v"].numpy(), expected, rtol=1e-12)
    assert power.cache_info().traces == 1


BROADCASTS = {
    "whole": lambda xp, x: xp.broadcast_to(x, (3, 4)),
    "a row": lambda xp, x: xp.broadcast_to(x, (3, 4))[0],
    "an element": lambda xp, x: xp.broadcast_to(x, (3, 4))[1, 2, ...],
    "same shape": lambda xp, x: xp.broadcast_to(x, (4,)),
    "one row": lambda xp, x: xp.broadcast_to(x, (1, 4)),
    "views of it": lambda xp, x: xp.broadcast_to(x, (3, 4)).T[None, ::2, 1].reshape(-1)[1:],
    "swapped": lambda xp, x: xp.expand_dims(xp.broadcast_to(x, (3, 4)), axis=0).swapaxes(0, 2)[0],
    "without rows": lambda xp, x: xp.squeeze(xp.broadcast_to(x, (1, 4))),
    "a copy": lambda xp, x: xp.broadcast_to(x, (3, 4)).copy()[0],
    "a copy by reshape": lambda xp, x: xp.broadcast_to(x, (3, 4)).reshape(-1)[:2],
    "a sum": lambda xp, x: xp.broadcast_to(x, (3, 4)) + 1.0,
    "several": lambda xp, x: xp.broadcast_arrays(x, xp.ones((3, 1)))[0][0],
    "several of one shape": lambda xp, x: xp.broadcast_arrays(x, xp.ones(4))[0],
}
WRITES = {
    "assign": lambda y: y.__setitem__(..., 5.0),
    "in place": lambda y: y.__iadd__(1.0),
    "mask": lambda y: y.__setitem__(y > 0, 2.0),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", BROADCASTS)
@pytest.mark.parametrize("way", ["inside", "outside", "result", "eager"])
@pytest.mark.filterwarnings("ignore:.*broadcast_arrays")
def test_what_was_broadcast_cannot_be_written_as_in_numpy(view, write, way):
    look, store = BROADCASTS[view], WRITES[write]
    plain = look(np, np.arange(4.0))
    if view == "several":  # NumPy says that it will be read-only
        plain.flags.writeable = False
    x = tj.asarray(np.arange(4.0))
    if way == "inside":
        step = tj.jit(lambda x: store(look(tj, x)))
    elif way == "outside":
        step = tj.jit(store)
        x = look(tj, x)
    elif way == "result":
        step, x = store, tj.jit(lambda x: look(tj, x))(x)
    else:
        step, x = store, look(tj, x)
    if way == "outside":  # a signature of an array that can be written is another one
        step(tj.zeros((*x.shape, 2), dtype=tj.float64)[..., 0])
        step(tj.zeros(x.shape, dtype=tj.float64))
    before = x.tolist()
    for _ in range(2):
        if plain.flags.writeable:
            step(x)
        else:
            with pytest.raises(ValueError, match=r"read-only"):
                store(plain)
            with pytest.raises(tj.errors.ReadOnlyError, match="broadcast"):
                step(x)
            assert x.tolist() == before


@pytest.mark.parametrize("seed", range(40))
def test_the_content_of_a_container_is_put_back(seed):
    """Order, types of equal keys and all; and what stays is never missing."""
    chosen = random.Random(seed)
    keys = [0, 1, 2, 3, True, False, 2.0, "a", "b", None]

    class Watched(dict):
        def pop(self, key, *default):
            assert key not in content
            return super().pop(key, *default)

        def clear(self):
            raise AssertionError("others would find nothing")

    def some():
        return chosen.sample(keys, chosen.randint(0, len(keys)))

    def exactly(container):
        items = container.items() if isinstance(container, dict) else container
        return [(type(i), i) if not isinstance(i, tuple) else (*map(type, i), i) for i in items]

    content = {key: n for n, key in enumerate(some())}
    held = Watched((key, -n) for n, key in enumerate(some()))
    Content(held, "content", "held", "held", dict(held), "held", deep=False).put(content)
    assert exactly(held) == exactly(content)
    for kind in (list, set, collections.deque):
        other, wanted = kind(some()), content_of(kind(some()))
        Content(other, "content", "held", "held", content_of(other), "held", deep=True).put(wanted)
        assert same_items(other, wanted)


def _written(where):
    """A module whose function writes, and never reads, what `where` says."""
    module = types.ModuleType("written")
    module.tj, module.other = tj, types.ModuleType("other")
    text = {
        "a global": "global kept\n    kept",
        "a new global": "global fresh\n    fresh",
        "an attribute of a module": "other.kept",
        "an attribute of a class": "Held.kept",
        "an inherited attribute of a class": "Heir.kept",
        "an attribute of an object": "held.kept",
        "an item": "table['kept']",
    }[where]
    source = f"""
class Held: kept = None
class Heir(Held): pass
kept, held, table = None, Held(), {{}}
def step(x, n):
    {text} = n if n > 2 else 'few' if n > 1 else x * n
    return x
def outer(step):
    return step
def look():
    try:
        return {text.split()[-1]}
    except (AttributeError, KeyError, NameError):
        return 'nothing'
def forget():
    for holder in (globals(), vars(other), vars(held), table):
        holder.pop('kept', None)
        holder.pop('fresh', None)
"""
    exec(source, vars(module))
    return module


WRITTEN = ["a global", "a new global", "an attribute of a module", "an attribute of a class",
           "an inherited attribute of a class", "an attribute of an object", "an item"]  # fmt: skip


@pytest.mark.parametrize("where", WRITTEN)
def test_what_is_only_written_is_written_in_every_call(where):
    ours, theirs = _written(where), _written(where)
    traced, x = tj.jit(ours.step), tj.ones(1)

    def shown(module):
        found = module.look()
        return found.tolist() if isinstance(found, tj.NDArray) else (type(found), found)

    for turn, n in enumerate((1, 2, 3, 3, 2, 1, 4, 1, 2, 3)):
        traced(x, n)
        theirs.step(x, n)
        assert shown(ours) == shown(theirs)
        if turn % 2:
            for module in (ours, theirs):
                module.forget()


def test_a_nonlocal_variable_without_a_value_is_written_in_every_call():
    def world(wrap):
        @wrap
        def step(x, n):
            nonlocal late
            late = n if n > 1 else "one"
            return x

        def forget():
            nonlocal late
            del late

        def look():
            return type(late), late

        if wrap is None:
            late = 0
        return step, look, forget

    (traced, look, forget), (plain, expected, forget_plain) = world(tj.jit), world(lambda step: step)
    for n in (1, 2, 3, 1, 2):
        traced(tj.ones(1), n)
        plain(tj.ones(1), n)
        assert look() == expected()
        forget()
        forget_plain()


MADE = None


def test_objects_of_a_class_that_the_body_defines_are_new_in_every_call():
    def make(x, n):
        global MADE

        class Made:
            scale = n

            def of(self, x):
                return x * self.scale

        MADE = Made()
        MADE.w = x + n
        return x

    step = tj.jit(make)
    for n in (1, 2, 2, 3, 1):
        step(tj.ones(1), n)
        assert (type(MADE.scale), MADE.scale, MADE.w.tolist()) == (int, n, [1 + n])
        assert MADE.of(tj.ones(1)).tolist() == [n]
