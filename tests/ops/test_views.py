"""Views and updates are adjoint to each other, for random views of every kind the IR can express."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Builder
from tracejit.ir.types import ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.ops import update, view
from tracejit.ops.symbolic import pull_back

F64 = np.dtype("float64")
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def affine_views(draw):
    """A base shape and the composition of a few random steps on it."""
    base = draw(shapes)
    seen = View.of_shape(base)
    for _ in range(draw(st.integers(0, 5))):
        rank = len(seen.shape)
        step = draw(
            st.sampled_from(["permute", "slice", "flip", "expand", "repeat", "select", "split", "merge"])
        )
        axis = draw(st.integers(0, rank - 1)) if rank else 0
        if step == "permute":
            seen = seen.permute(draw(st.permutations(range(rank))))
        elif step == "expand" and rank < 5:
            seen = seen.expand(axis)
        elif not rank:
            continue
        elif step == "slice":
            bounds = st.none() | st.integers(-6, 6)
            stride = draw(st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]))
            seen = seen.slice_axis(axis, draw(bounds), draw(bounds), stride)
        elif step == "flip":
            seen = seen.slice_axis(axis, None, None, -1)
        elif step == "repeat" and seen.shape[axis] == 1:
            seen = seen.broadcast((*seen.shape[:axis], draw(st.integers(0, 3)), *seen.shape[axis + 1 :]))
        elif step == "select" and seen.shape[axis]:
            seen = seen.select(axis, draw(st.integers(0, seen.shape[axis] - 1)))
        elif step == "split" and seen.shape[axis] == 4:
            seen = seen.reshape((*seen.shape[:axis], 2, 2, *seen.shape[axis + 1 :])) or seen
        elif step == "merge":
            seen = seen.reshape((seen.size,)) or seen
    return base, seen


@st.composite
def windows(draw):
    """A base shape and a view whose strides may overlap in any way."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    strides = tuple(draw(st.integers(-3, 3)) for _ in shape)
    low, high = View(0, shape, strides).span()
    return (high - low + draw(st.integers(0, 2)),), View(-low, shape, strides)


def adjoint(op, inputs, ct, **attrs):
    """(op(*inputs), gradients of <ct, op(*inputs)>)."""
    builder = Builder()
    values = [builder.input(ArrayType(x.shape, x.dtype)) for x in inputs]
    output = builder.emit(op, *values, **attrs)
    gradients = pull_back(builder, builder.nodes[-1], [builder.input(output.type)])
    results, _ = evaluate(verify(builder.graph([output, *gradients])), [*inputs, ct])
    return results[0], results[1:]


def integers(shape, seed):
    """Whole numbers as floats, so that sums in any order are equal."""
    return np.random.default_rng(seed).integers(-50, 50, shape).astype(F64)


def oracle_gradient(base, seen, ct):
    """<ct, x.view> differentiated by adding up, element by element."""
    expected = np.zeros(math.prod(base))
    np.add.at(expected, seen.read(np.arange(math.prod(base))).astype(np.int64), ct)
    return expected.reshape(base)


@given(affine_views() | windows())
@settings(max_examples=400, deadline=None)
def test_gradient_of_view_adds_up_repeated_elements(case):
    base, seen = case
    x, ct = integers(base, 1), integers(seen.shape, 2)
    y, (gradient,) = adjoint(view, [x], ct, view=seen)
    np.testing.assert_array_equal(y, seen.read(x))
    np.testing.assert_array_equal(gradient, oracle_gradient(base, seen, ct))


@given(affine_views())
@settings(max_examples=150, deadline=None)
def test_gradient_of_update_splits_the_cotangent(case):
    base, seen = case
    if seen.overlaps_itself():
        return
    old, new, ct = integers(base, 1), integers(seen.shape, 2), integers(base, 3)
    y, (to_old, to_new) = adjoint(update, [old, new], ct, view=seen)
    np.testing.assert_array_equal(seen.read(y), new)
    kept = oracle_gradient(base, seen, np.ones(seen.shape)) == 0
    np.testing.assert_array_equal(y[kept], old[kept])
    np.testing.assert_array_equal(to_old, np.where(kept, ct, 0))
    np.testing.assert_array_equal(to_new, seen.read(ct))


def gradient_operators(base, seen):
    builder = Builder()
    builder.emit(view, builder.input(ArrayType(base, F64)), view=seen)
    node = builder.nodes[-1]
    pull_back(builder, node, [builder.input(node.output.type)])
    return [n.op.name for n in builder.nodes[1:]]


def test_gradients_of_common_views_stay_views():
    whole = View.of_shape((4, 6))
    assert gradient_operators((4, 6), whole.permute((1, 0))) == ["view"]
    assert gradient_operators((4, 6), whole.reshape((2, 12))) == ["view"]
    assert gradient_operators((4, 6), whole.slice_axis(0, None, None, -1)) == ["view"]
    assert gradient_operators((1, 6), View.of_shape((1, 6)).broadcast((4, 6))) == ["sum", "view"]
    assert gradient_operators((6,), View.of_shape((6,)).broadcast((4, 6))) == ["sum"]
    assert gradient_operators((4, 6), whole.slice_axis(1, 0, 3)) == ["constant", "full", "update"]
    assert gradient_operators((24,), View(0, (6, 4), (1, 6))) == ["view", "view"]
    assert "scatter_add" in gradient_operators((5,), View(0, (3, 3), (1, 1)))
