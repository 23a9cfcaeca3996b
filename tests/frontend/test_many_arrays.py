"""Calls with many arrays, which a replay checks in loops."""

from __future__ import annotations

import numpy as np
import pytest

import tracejit as tj
from tracejit.frontend.signature import many

COUNT = 2 * many.MANY


def arrays(dtype=np.float32, count=COUNT):
    return [tj.asarray(np.full(3, k, dtype)) for k in range(count)]


@pytest.fixture
def doubled():
    """A traced function that has one entry, of `COUNT` arrays of float32[3]."""

    @tj.jit
    def doubled(xs):
        for x in xs:
            x *= 2
        return xs[1] + xs[-1]

    given = arrays()
    doubled(given)
    assert float(doubled(given)[0]) == 4 * COUNT
    assert doubled.cache_info().replays == 1
    return doubled


def changed(position, make):
    given = arrays()
    given[position] = make(given[position])
    return given


@pytest.mark.parametrize("position", [0, COUNT // 2, COUNT - 1])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: tj.asarray(np.ones(3)),
        lambda x: tj.asarray(np.ones(4, np.float32))[:3],
        lambda x: x[::-1],
        lambda x: tj.asarray(np.ones(1, np.float32)),
        lambda x: 2.0,
    ],
)
def test_one_array_of_another_kind_is_another_signature(doubled, position, make):
    given = changed(position, make)
    expected = [np.asarray(x) * 2 for x in given]
    doubled(given)
    assert doubled.cache_info().traces == 2
    for found, wanted in zip(given, expected, strict=True):
        if isinstance(found, tj.NDArray):
            np.testing.assert_array_equal(found, wanted)


def test_arrays_that_become_one_or_share_memory_are_another_signature(doubled):
    given = arrays()
    given[2] = given[7]
    doubled(given)
    assert doubled.cache_info().traces == 2
    np.testing.assert_array_equal(given[2], [4 * 7] * 3)
    memory = np.arange(3, dtype=np.float32)
    given = arrays()
    given[3], given[9] = (tj.from_dlpack(memory) for _ in range(2))
    doubled(given)
    tj.wait_all()
    np.testing.assert_array_equal(memory, [0, 4, 8])


def test_arrays_that_are_being_computed(doubled):
    given = [x + 1 for x in arrays()]
    doubled(given)
    assert doubled.cache_info().traces == 1
    np.testing.assert_array_equal(given[5], [12] * 3)


def test_a_list_that_is_longer_and_one_that_is_shorter(doubled):
    for count in (COUNT + 1, COUNT - 1):
        given = arrays(count=count)
        doubled(given)
        np.testing.assert_array_equal(given[-1], [2 * (count - 1)] * 3)


def test_windows_lie_between_whole_arrays():
    @tj.jit
    def total(xs):
        return sum(xs[1:], xs[0])

    base = tj.asarray(np.arange(6, dtype=np.float32))
    for start in (0, 2):
        given = arrays()
        given[many.MANY] = base[start : start + 3]
        expected = sum(range(COUNT)) - many.MANY + np.arange(start, start + 3)
        np.testing.assert_array_equal(total(given), expected)
    assert total.cache_info().traces == 1


def test_arrays_of_lists_tuples_and_dicts_are_given_back_and_moved():
    @tj.jit(strict=True)
    def turn(first, second, third):
        for x, y, z in zip(first, second, third.values(), strict=True):
            x += y * z
        kept = first[3]
        first[:] = first[1:]
        third["k0"], third["k1"] = third["k1"], third["k0"]
        return kept, third["k5"], second[COUNT - 1]

    def given():
        return arrays(), tuple(arrays()), {f"k{k}": x for k, x in enumerate(arrays())}

    for _ in range(3):
        first, second, third = given()
        before, swapped = list(first), list(third.values())[:2]
        kept, fifth, last = turn(first, second, third)
        assert kept is before[3]
        assert fifth is third["k5"]
        assert last is second[-1]
        assert all(x is y for x, y in zip(first, before[1:], strict=True))
        assert third["k0"] is swapped[1]
        assert third["k1"] is swapped[0]
        np.testing.assert_array_equal(np.stack(before)[:, 0], [k + k * k for k in range(COUNT)])
    assert turn.cache_info().traces == 1


def test_arrays_have_names_and_reasons(doubled):
    names = doubled.entry_for(arrays()).names
    assert names[5] == "xs[5]"
    doubled(changed(3, lambda x: tj.asarray(np.ones(3))))
    assert "xs[3]: float32[3] -> float64[3]" in doubled.explain()


def test_the_replay_function_does_not_grow_with_the_number_of_arrays():
    @tj.jit
    def update(params, grads):
        tj.optim.sgd(params, grads, 0.1)

    texts = []
    for count in (COUNT, 4 * COUNT):
        given = arrays(count=count), arrays(count=count)
        update(*given)
        update(*given)
        texts.append(update.entry_for(*given).text)
    assert update.cache_info().replays == 2
    assert len(texts[1]) < len(texts[0]) + 20
