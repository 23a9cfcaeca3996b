"""Numbers of Python's and NumPy's that become elements: their values, and those that do not fit."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.frontend.recording import eager

HERE = r"test_numbers_in_arrays\.py:\d+"
WIDE = (1 << 53) - 1
BIG = (1 << 62) + 1


@pytest.fixture(params=["at once", "recorded"], autouse=True)
def way(request, monkeypatch):
    tj.wait_all()
    if request.param == "recorded":
        monkeypatch.setattr(eager, "SMALL", -1)


@pytest.mark.parametrize("make", [tj.asarray, tj.array])
@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (0.1, "float64"),
        ([0.1, 0.2], "float64"),
        ([[0.1], [WIDE]], "float64"),
        ((WIDE, 0.5), "float64"),
        ([16777217.0, 1.5], "int64"),
        (16777217.0, "int64"),
        ([2**70, 1], "float64"),
        ([0.5, 2], "bool"),
        (-1.5, "int8"),
        (BIG, "int64"),
    ],
)
def test_a_dtype_is_that_of_the_numbers(make, data, dtype):
    wanted = np.asarray(data, dtype)
    assert np.asarray(make(data, dtype=dtype)).tobytes() == wanted.tobytes()
    traced = tj.jit(lambda: make(data, dtype=dtype))
    for _ in range(2):
        assert np.asarray(traced()).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("join", [tj.asarray, tj.stack])
def test_numbers_beside_arrays_have_the_common_dtype(join):
    x = tj.asarray(1.0, dtype="float64")
    for function in (lambda x: join([x, 0.1, 2]), tj.jit(lambda x: join([x, 0.1, 2]))):
        for _ in range(2):
            assert function(x).tolist() == [1.0, 0.1, 2.0]
    assert join([tj.asarray(1.0), 0.1]).dtype == "float32"
    assert join([tj.asarray(BIG), 3]).tolist() == [BIG, 3]


def test_traced_numbers_keep_their_digits():
    @tj.jit
    def make(x, n):
        return (
            tj.asarray(x, dtype="float64"),
            tj.asarray([x, n], dtype="float64"),
            tj.asarray([[x], [n]]),
            tj.asarray([x, n], dtype="int64"),
            tj.stack([tj.asarray(2.0, dtype="float64"), x]),
        )

    for x, n in ((0.1, WIDE), (0.2, 3)):
        a, b, c, d, e = make(x, n)
        assert (a.tolist(), b.tolist(), d.tolist(), e.tolist()) == (x, [x, n], [0, n], [2.0, x])
        assert c.dtype == "float32"


def pending():
    """Something else that waits to be computed."""
    x = tj.asarray([1.0, 2.0], dtype="float32")
    return x.exp() if hasattr(x, "exp") else tj.exp(x)


@pytest.mark.parametrize(
    "store",
    [
        lambda x: x.__setitem__(0, np.float64(0.5)),
        lambda x: x.__setitem__(slice(None), np.float64(0.5)),
        lambda x: x.__setitem__(0, np.float32(0.5)),
        lambda x: x.__setitem__(0, 0.5),
    ],
)
def test_floats_are_truncated(store):
    other = pending()
    x = tj.asarray([3, 4])
    wanted = np.asarray([3, 4])
    store(x)
    store(wanted)
    assert x.tolist() == wanted.tolist()
    np.testing.assert_allclose(other.numpy(), np.exp([1, 2]), rtol=1e-6)
    assert tj.full(2, np.float64(2.5), dtype="int64").tolist() == [2, 2]
    assert tj.full(2, 2.5, dtype="int8").tolist() == [2, 2]
    assert tj.full(2, 0.5, dtype="bool").tolist() == [True, True]


REFUSED = [
    lambda x: tj.ones(2) * 10**400,
    lambda x: tj.ones(2) < 10**400,
    lambda x: 10**400 - tj.ones(2, dtype="float64"),
    lambda x: tj.full(2, 10**400, dtype="float32"),
    lambda x: x.__setitem__(0, 10**400),
    lambda x: x.__setitem__(0, float("nan")),
    lambda x: x.__setitem__(slice(None), float("inf")),
    lambda x: x.__setitem__(0, np.float64(1e300)),
    lambda x: x.__setitem__(0, 2.0**63),
    lambda x: tj.full(2, float("nan"), dtype="int64"),
    lambda x: tj.full(2, -1.5, dtype="uint8"),
    lambda x: tj.asarray(float("nan"), dtype="int32"),
    lambda x: tj.asarray([float("nan")], dtype="int32"),
    lambda x: tj.asarray([1e10], dtype="int32"),
    lambda x: tj.asarray([300], dtype="uint8"),
    lambda x: tj.asarray([x[0], 300], dtype="uint8"),
    lambda x: tj.asarray([x[0], float("nan")], dtype="int64"),
]


@pytest.mark.parametrize("wrong", REFUSED)
def test_numbers_that_do_not_fit_are_refused_alone(wrong):
    other, x = pending(), tj.asarray([3, 4])
    with pytest.raises(tj.errors.DTypeError, match=HERE):
        wrong(x)
    assert x.tolist() == [3, 4]
    np.testing.assert_allclose(other.numpy(), np.exp([1, 2]), rtol=1e-6)
    with pytest.raises(tj.errors.DTypeError, match=HERE):
        tj.jit(wrong)(x)


def test_a_traced_number_that_does_not_fit_is_refused():
    @tj.jit
    def store(x, value):
        x[0] = value

    x = tj.asarray([3, 4])
    store(x, 1.5)
    store(x, 2.5)
    assert x.tolist() == [2, 4]
    for value in (float("nan"), float("inf"), 1e30):
        with pytest.raises(tj.errors.DTypeError, match="does not fit into int64"):
            store(x, value)
    assert x.tolist() == [2, 4]
    assert tj.full(2, 2.0**63, dtype="uint64").tolist() == [1 << 63] * 2


def test_what_holds_no_numbers_is_named():
    for data, what in ((None, "NoneType"), ({1}, "set"), ((i for i in (1, 2)), "generator")):
        with pytest.raises(tj.errors.ArgumentError, match=rf"got {what} data[\s\S]*{HERE}"):
            tj.asarray(data)
    with pytest.raises(tj.errors.DTypeError, match="asarray: the number 1180591620717411303424"):
        tj.asarray(2**70)
    with pytest.raises(tj.errors.ShapeError, match="zeros: the shape"):
        tj.zeros(-1)


def test_masked_arrays_are_refused():
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    for use in (tj.asarray, lambda m: tj.ones(2) + m, lambda m: tj.ones(2).__setitem__(slice(None), m)):
        with pytest.raises(tj.errors.ArgumentError, match="mask"):
            use(masked)


@pytest.mark.parametrize("odd", [np.ones(3, np.longdouble), np.array(["a"])], ids=["longdouble", "strings"])
def test_what_a_traced_function_cannot_take_is_told_on_the_callers_line(odd):
    with pytest.raises(tj.errors.ArgumentError, match=r"not supported(?s:.*)test_numbers_in_arrays\.py:\d+"):
        tj.jit(lambda x: x + 1)(odd)
