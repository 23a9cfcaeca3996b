"""Traced functions in objects that are copied or pickled."""

import copy
import pickle

import pytest

import tracejit as tj


class Net:
    """Traces a method of itself when it is made, and has one that is traced in the class."""

    def __init__(self, scale):
        self.w = tj.asarray([scale])
        self.fast = tj.jit(self.forward, strict=True)

    def forward(self, x):
        self.w += 1
        return x * self.w

    @tj.jit
    def twice(self, x):
        return x * self.w * 2


@tj.jit
def tripled(x):
    return x * 3


def halved(x):
    return x / 2


HALVED = tj.jit(halved)
COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda value: pickle.loads(pickle.dumps(value))}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("called", [False, True])
def test_a_traced_method_of_a_copy_belongs_to_the_copy(name, called):
    net, x = Net(2.0), tj.ones(1)
    net.fast.label = "a label"
    if called:
        assert net.fast(x).tolist() == [3]
        assert net.twice(x).tolist() == [6]
    before = net.w.tolist()
    other = COPIES[name](net)
    other.w = tj.asarray([10.0])
    assert [other.fast(x).tolist(), other.fast(x).tolist()] == [[11], [12]]
    assert other.twice(x).tolist() == [24]
    assert other.fast.cache_info().replays == 1
    assert other.fast.label == "a label"
    assert other.fast.__wrapped__.__self__ is other
    assert net.w.tolist() == before
    assert net.fast(x).tolist() == [before[0] + 1]
    with pytest.raises(tj.errors.ReplayError):
        other.fast(Looking())


class Looking:
    """Something whose product with an array cannot be replayed."""

    def __mul__(self, other):
        return other.tolist()[0]


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_the_method_brings_its_object_along(name):
    net = Net(2.0)
    fast = COPIES[name](net.fast)
    owner = fast.__wrapped__.__self__
    assert owner is not net
    assert owner.fast is fast
    assert fast(tj.ones(1)).tolist() == owner.w.tolist() == [3]
    assert net.w.tolist() == [2]


@pytest.mark.parametrize("name", COPIES)
def test_a_traced_function_is_its_own_copy(name):
    for function in (tripled, Net.twice):
        assert COPIES[name](function) is copy.copy(function) is function
    assert COPIES[name]({"f": tripled, "g": [tripled]}) == {"f": tripled, "g": [tripled]}
    assert COPIES[name](HALVED)(tj.ones(1)).tolist() == [0.5]
    assert COPIES[name](Net(4.0).twice)(tj.ones(1)).tolist() == [8]


def test_a_function_without_a_name_of_its_own_is_not_pickled():
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(tj.jit(lambda x: x))
