"""`tracejit.numpy`: NumPy's names, defaults and signatures, against NumPy itself."""

import numpy
import pytest

import tracejit as tj
import tracejit.numpy as np
from tests.frontend.samples import same_tree

DATA = numpy.arange(6.0).reshape(2, 3)

PROGRAMS = {
    "filled": lambda np: (
        np.zeros(3),
        np.ones((2, 2), np.int8),
        np.full(2, 2.5),
        np.full(2, 1),
        np.full(1, 2j),
    ),
    "ranges": lambda np: (
        np.arange(3),
        np.arange(0, 1, 0.25),
        np.arange(4, dtype=float),
        np.arange(1, 5, 2, int),
    ),
    "spaced": lambda np: (
        np.linspace(0, 1, 3),
        np.logspace(0, 2, 3),
        np.geomspace(1, 8, 4),
        np.linspace(0, 1j, 2),
    ),
    "matrices": lambda np: (np.eye(2, 3, 1), np.eye(N=2), np.identity(2), np.tri(2, 3), np.diag([1.0, 2.0])),
    "data": lambda np: (np.array([1, 2.5]), np.asarray(2.5), np.array([[1], [2]]), np.array([]), np.array(3)),
    "like": lambda np: (np.zeros_like([1.0]), np.ones_like(DATA), np.full_like(DATA, 7, dtype=int)),
    "sums": lambda np: (
        np.sum(np.array(DATA), 0),
        np.mean(DATA, axis=1),
        np.sum([1.0, 2.0]),
        np.prod((2, 3)),
    ),
    "lists": lambda np: (
        np.maximum([1, 5], 3),
        np.dot(np.array(DATA), [1, 2, 3]),
        np.sqrt([4.0]),
        np.sqrt(2.0),
    ),
    "joined": lambda np: (np.concatenate([np.array(DATA), [[1, 2, 3]]]), np.stack(([1, 2], [3, 4]), axis=1)),
    "grids": lambda np: (
        np.mgrid[0:2, 0:2],
        np.mgrid[0:1:3j],
        np.meshgrid([1, 2], [3.0]),
        np.indices((2, 2)),
    ),
    "ufuncs": lambda np: (
        np.add.reduce(np.array(DATA), axis=1),
        np.multiply.outer([1, 2], [3, 4]),
        np.maximum.accumulate([1, 3, 2]),
        np.add.reduce([[1, 2], [3, 4]]),
        np.divmod([5, 7], 3),
    ),
    "spaces": lambda np: (np.linalg.norm([3.0, 4.0]), np.fft.fft([1, 2, 3]), np.fft.fftfreq(4)),
    "windows": lambda np: (np.hanning(5), np.kaiser(4, 2.0)),
    "einsum": lambda np: np.einsum("ij,j->i", np.array(DATA), [1, 2, 3]),
    "read": lambda np: np.fromiter(range(3), float),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_dtypes_are_numpys(name):
    same_tree(PROGRAMS[name](np), PROGRAMS[name](numpy))


def test_out_and_at_write_in_place():
    def program(np):
        x, out = np.array(DATA), np.empty((2, 3))
        assert np.add(x, 1, out) is out
        sums = np.zeros(3)
        assert np.sum(x, axis=0, out=sums) is sums
        np.exp(x, out=x)
        np.add.at(sums, [0, 0, 2], 1.0)
        return x, out, sums

    same_tree(program(np), program(numpy))


def test_functions_of_numbers_give_numbers():
    for number in (np.sqrt(2.0), np.sin(1), np.prod((2, 3)), np.max([1, 2]), np.float64(3), np.pi):
        assert not isinstance(number, tj.NDArray)
    assert range(np.prod((2, 3))) == range(6)
    assert np.newaxis is None
    assert np.float32 is numpy.float32


def test_arrays_are_ours_and_tj_keeps_its_defaults():
    assert isinstance(np.zeros(2), tj.NDArray)
    assert isinstance(np.zeros(2), np.ndarray)
    assert isinstance(np.multiply([1], [2]), tj.NDArray)
    assert not isinstance(numpy.zeros(2), np.ndarray)
    assert np.ndarray((2, 3), np.int8).dtype == numpy.int8
    assert tj.zeros(2).dtype == tj.linspace(0, 1, 2).dtype == tj.asarray([0.5]).dtype == numpy.float32


def test_random_numbers_are_double():
    np.random.seed(3)
    first = np.random.rand(2, 3)
    np.random.seed(3)
    assert (np.random.random((2, 3)) == first).all()
    assert (
        first.dtype == np.random.normal(1.0, 2.0, size=4).dtype == np.random.randn(2).dtype == numpy.float64
    )
    assert np.random.randint(5, size=9).dtype == numpy.int64
    assert np.random.uniform(5.0, 6.0) > 4


def test_names_that_are_not_there():
    with pytest.raises(AttributeError, match=r"module 'tracejit.numpy' has no attribute 'memmap'"):
        np.memmap  # noqa: B018
    with pytest.raises(TypeError, match="does not take casting"):
        np.concatenate([np.zeros(1)], casting="unsafe")
    assert {"zeros", "add", "mgrid", "linalg", "random", "float32", "pi"} <= set(dir(np))
    for name in dir(np):
        assert getattr(np, name, np) is not np, name


def test_inside_a_trace():
    @tj.jit
    def step(n, rate):
        x = np.zeros((n, 2))
        x[:, 0] = np.arange(n)
        x[:, 1] = np.linspace(0, rate, n)
        return np.sum(x, axis=0, out=np.empty(2)) * rate, np.array([rate, 1.0]), np.full(2, rate)

    for rate in (2.0, 4.0, 0.5):
        same_tree(step(3, rate), ([3 * rate, 1.5 * rate * rate], [rate, 1.0], [rate, rate]))
    assert step.cache_info()[:2] == (1, 2)
