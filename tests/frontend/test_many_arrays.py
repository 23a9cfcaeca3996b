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
