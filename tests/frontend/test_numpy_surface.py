"""NumPy's namespace, and what of it there is here: a name without a counterpart stands here with its reason.

So a name that is added, here or to NumPy, is noticed.
"""

import inspect

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.test_functions_quantiles import agrees, close
from tracejit.frontend.arrays.interop import BUILTINS

REASONS = {
    "files are read and written by tj.load and tj.save, or by NumPy": (
        "fromfile fromregex genfromtxt loadtxt savetxt savez savez_compressed fromstring memmap"
    ),
    "text of arrays is NumPy's: np.array2string(x), str(x)": (
        "array2string array_repr array_str base_repr binary_repr format_float_positional get_printoptions "
        "format_float_scientific printoptions set_printoptions typename mintypecode"
    ),
    "arrays hold no text, dates, records or objects": (
        "busday_count busday_offset datetime_as_string datetime_data is_busday isnat busdaycalendar "
        "datetime64 timedelta64 str_ bytes_ object_ void character flexible record recarray rec char strings "
        "frompyfunc"
    ),
    "there are no floating-point errors to report: nan and infinity stay in arrays": (
        "errstate geterr geterrcall seterr seterrcall getbufsize setbufsize"
    ),
    "dtypes are NumPy's; arrays hold tj.float32 and the like": (
        "byte ubyte short ushort intc uintc int_ uint long ulong longlong ulonglong intp uintp half single "
        "double longdouble csingle cdouble clongdouble float128 complex256 number inexact integer "
        "floating generic complexfloating signedinteger unsignedinteger dtype dtypes sctypeDict typecodes "
        "ScalarType True_ False_ little_endian"
    ),
    "matrices do not exist: arrays of two dimensions and @": "asmatrix bmat matrix",
    "iterators over elements run in Python: use array functions, or x.flat": (
        "broadcast flatiter iterable ndenumerate nditer nested_iters"
    ),
    "Python functions of elements: write them with array functions, or use tj.callback": "vectorize ufunc",
    "memory is the package's own: nothing asks for its alignment or order": "require",
    "modules and tools of NumPy": (
        "core ctypeslib emath exceptions f2py get_include info lib ma polynomial poly1d show_config "
        "show_runtime test testing typing"
    ),
}
"""Why there is no counterpart -> names."""

METHODS = {
    "memory is the package's own; tj.from_dlpack and x.numpy(copy=False) share it": (
        "base ctypes data flags setflags byteswap"
    ),
    "no records: x.view(dtype) reads bits": "getfield setfield",
    "arrays cannot change their number of elements; tj.resize makes another one": "resize",
    "files are written by tj.save": "dump dumps tofile",
}


def named(reasons):
    return {name: reason for reason, names in reasons.items() for name in names.split()}


def test_every_name_of_numpy_is_here_or_has_a_reason():
    reasons = named(REASONS)
    missing = {name for name in np.__all__ if not hasattr(tj, name)}
    assert missing - set(reasons) == set(), "names of NumPy without a counterpart or a reason"
    assert {name for name in reasons if hasattr(tj, name)} == set(), "names with a reason that are here"


def test_every_method_of_numpy_is_here_or_has_a_reason():
    reasons = named(METHODS)
    public = {name for name in dir(np.ndarray) if not name.startswith("__")}
    assert {name for name in public if not hasattr(tj.NDArray, name)} == set(reasons)


WITHOUT_EFFECT = {"out", "like", "subok", "order", "casting"}
"""Keywords of which `out` is for all functions (see `interop`), and the others say what memory is like."""

OTHERWISE = {"isin": {"kind"}, "array": {"ndmax"}, "load": None, "save": None, "where": {"x", "y"}}


def test_functions_take_numpys_keywords():
    for name in sorted(np.__all__):
        theirs, ours = getattr(np, name), getattr(tj, name, None)
        if ours is None or isinstance(theirs, type | np.ufunc) or isinstance(ours, type):
            continue
        if not callable(theirs) or OTHERWISE.get(name, ()) is None:
            continue
        given = inspect.signature(BUILTINS.get(theirs, theirs)).parameters.values()
        known = inspect.signature(ours).parameters.values()
        if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in known):
            continue
        optional = {p.name.removeprefix("a_").lower() for p in given if p.default is not p.empty}
        names = {p.name.lower() for p in known} | {"m"}  # tri and eye: m is their second argument
        missing = optional - names - WITHOUT_EFFECT - OTHERWISE.get(name, set())
        assert not missing, (name, missing)


# -- what is left after the families -------------------------------------------------------------------------

X = np.random.default_rng(0).integers(-3, 4, (3, 4))


def test_functions_applied_to_parts():
    for function in (lambda v: v.max(), lambda v: v * 2, lambda v: v[:, None] * v):
        for axis in (0, 1, -2):
            ours = tj.apply_along_axis(function, axis, tj.asarray(X))
            close(ours, np.apply_along_axis(function, axis, X))
    traced = tj.jit(lambda x: np.apply_along_axis(lambda v: v.sum(), 0, x), strict=True)
    for _ in range(2):
        close(traced(tj.asarray(X)), X.sum(0))
    close(tj.apply_over_axes(tj.sum, tj.asarray(X), [0, 1]), np.apply_over_axes(np.sum, X, [0, 1]))
    with pytest.raises(tj.errors.ShapeError, match="no lines"):
        tj.apply_along_axis(tj.max, 0, tj.ones((2, 0)))


def test_choose():
    index, arrays = np.array([[0, 1], [2, 0]]), [np.array([1, 2]), np.full((2, 2), 7.5), np.array([[3], [4]])]
    step = tj.jit(lambda i, arrays: tj.choose(i, arrays), strict=True)
    for _ in range(2):
        close(step(tj.asarray(index), [tj.asarray(a) for a in arrays]), np.choose(index, arrays))
    close(tj.asarray(index - 1).choose(arrays, "clip"), np.choose(index - 1, arrays, mode="clip"))
    close(np.choose(tj.asarray(index + 4), arrays, mode="wrap"), np.choose(index + 4, arrays, mode="wrap"))
    with pytest.raises(tj.errors.OutOfBoundsError, match=r"test_numpy_surface"):
        tj.choose(tj.asarray([3]), arrays).wait()


def test_zeros_are_trimmed():
    for x in (np.array([0, 0, 1, 0, 2, 0]), np.zeros(3), np.pad(np.eye(2), 2)):
        for trim in ("fb", "f", "b"):
            agrees("trim_zeros", x, trim, traces=False)
    agrees("trim_zeros", np.pad(np.eye(2), 2), axis=1, traces=False)


@pytest.mark.parametrize("bitorder", ["big", "little"])
def test_bits(bitorder):
    bits = np.random.default_rng(1).random((5, 11)) < 0.5
    for axis in (None, 0, 1):
        agrees("packbits", bits, axis, bitorder, traces=axis == 0)
        for count in (None, 5, -3, 100):
            data = np.arange(6, dtype="uint8").reshape(2, 3) * 37
            agrees(
                "unpackbits", data, axis=axis, count=count, bitorder=bitorder, traces=count == 5 and axis == 0
            )
    with pytest.raises(tj.errors.DTypeError, match="packbits"):
        tj.packbits(tj.ones(3))
    with pytest.raises(tj.errors.DTypeError, match="unpackbits"):
        tj.unpackbits(tj.asarray([1]))


def test_bessel_function():
    agrees("i0", np.array([0, 0.1, -1, 3, 7.75, 8, 30, 200, 700]), tolerance=1e-13)
    agrees("i0", np.arange(4), traces=False)
    slope = tj.grad(lambda x: tj.i0(x))(tj.asarray(1.5, dtype=tj.float64))
    np.testing.assert_allclose(slope.item(), 0.9816664285779075, rtol=1e-13)  # I1(1.5)


def test_complex_numbers_are_sorted():
    for x in (np.array([2 + 1j, 1, 2 - 1j]), X, X.astype("int8"), X.astype("float32")):
        agrees("sort_complex", x, traces=x.dtype == np.int8)


def test_polynomials_are_fitted_divided_and_solved():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=9), rng.normal(size=(9, 2))
    agrees("polyfit", x, y, 3, traces=False, tolerance=1e-9)
    agrees("polyfit", x, y[:, 0], 2, w=np.abs(y[:, 1]), tolerance=1e-9)
    for cov in (True, "unscaled"):
        agrees("polyfit", x, y[:, 0], 2, cov=cov, traces=False, tolerance=1e-9)
    for u, v in ((rng.normal(size=5), rng.normal(size=3)), (np.ones(2), np.ones(3))):
        agrees("polydiv", u, v, traces=False)
    for p in (np.array([1, -6, 11, -6.0]), np.array([0, 0, 2.0, 4, 0]), np.zeros(3)):
        found = tj.roots(tj.asarray(p)).numpy()
        np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(np.roots(p)), atol=1e-9)
    agrees("poly", np.array([1.0, 2, -3]))
    agrees("poly", rng.normal(size=(3, 3)), traces=False, tolerance=1e-9)


def test_dtypes_and_memory():
    x = tj.ones((2, 3))
    assert tj.promote_types("int8", "uint8") == np.int16
    assert tj.issubdtype(x.dtype, np.floating)
    assert tj.min_scalar_type(tj.asarray(200)) == np.uint8
    assert tj.min_scalar_type(x) == np.float32
    assert tj.common_type(x, np.ones(2, int)) is np.common_type(np.ones(2, "f4"), np.ones(2, int))
    assert tj.isscalar(2.0)
    assert not tj.isscalar(x[0, 0])
    assert tj.isfortran(x.T)
    assert not tj.isfortran(x)
    assert tj.shares_memory(x[:, 1:], x[:, :2])
    assert not np.shares_memory(x[0], x[1])
    assert np.may_share_memory(x[:, 0], x[:, 1])
    assert not tj.may_share_memory(x, tj.ones(2))
    assert x.tobytes("F") == np.ones((2, 3), "f4").tobytes() == x.tobytes()
    assert tj.index_exp[1:, ::2] == np.index_exp[1:, ::2]
    close(x.cumsum(1), np.ones((2, 3), "f4").cumsum(1))
    close((x * 2).cumprod(axis=0), (np.ones((2, 3), "f4") * 2).cumprod(0))
    a = np.ones((4, 4))
    assert np.einsum_path("ij,jk,kl", *[tj.asarray(a)] * 3)[0] == np.einsum_path("ij,jk,kl", a, a, a)[0]


def test_arrays_from_buffers_and_iterables():
    close(tj.frombuffer(b"\1\0\2\0\3\0", "int16", offset=2), np.array([2, 3], "int16"))
    close(tj.fromiter((k * k for k in range(9)), "float64", 4), np.array([0, 1, 4, 9.0]))
    with pytest.raises(tj.errors.ShapeError, match="2 numbers, not 3"):
        tj.fromiter([1, 2], int, 3)
    with pytest.raises(tj.errors.ArgumentError, match=r"infinite numbers or nan(?s:.*)test_numpy_surface"):
        tj.asarray_chkfinite([1.0, np.inf])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tj.choose([0], []), tj.errors.ArgumentError, "no arrays to choose from"),
        (lambda: tj.trim_zeros([0], "x"), tj.errors.ArgumentError, "trim is made of"),
        (lambda: tj.packbits([1], bitorder="odd"), tj.errors.ArgumentError, "bitorder is"),
        (lambda: tj.i0([1j]), tj.errors.DTypeError, "not defined for complex64"),
        (lambda: tj.polyfit([1, 2], [1, 2], 3), tj.errors.ArgumentError, "through 2 points"),
        (lambda: tj.polyfit([1, 2], [1], 1), tj.errors.ShapeError, "do not fit"),
        (lambda: tj.polyfit([1, 2], [1, 2], 1, full=True), tj.errors.ArgumentError, "tj.linalg.lstsq"),
        (lambda: tj.polyfit([1, 2], [1, 2], 1, cov=True), tj.errors.ArgumentError, "more than 2 points"),
        (lambda: tj.poly(tj.ones((2, 3))), tj.errors.ShapeError, "square matrix"),
        (lambda: tj.polydiv([], [1]), tj.errors.ArgumentError, "at least one"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert __file__ in str(caught.value)


KINDS = [
    "bool",
    "int8",
    "uint16",
    "int32",
    "float32",
    "float64",
    "uint64",
    "complex64",
    "complex128",
    "float16",
]


def test_bits_are_seen_as_another_dtype(evaluator):
    data = np.random.default_rng(5).bytes(64)
    for given in KINDS:
        a = np.frombuffer(data, "uint8").astype("bool").view("bool") if given == "bool" else None
        a = np.frombuffer(data, given) if a is None else a
        a = a.reshape(2, -1)
        for wanted in KINDS[1:]:
            got = tj.asarray(a).view(wanted)
            assert got.numpy().tobytes() == a.view(wanted).tobytes(), (given, wanted)
            assert (got.dtype, got.shape) == (a.view(wanted).dtype, a.view(wanted).shape)
    assert tj.asarray([2, 0], dtype=tj.uint8).view(bool).tolist() == [True, False]


def test_views_of_bits_in_traces_and_what_they_refuse():
    x = tj.asarray(np.random.default_rng(6).normal(size=(3, 4)))
    flipped = tj.jit(lambda x: (x.view(tj.uint64) ^ (1 << 63)).view(tj.float64).view(np.int16), strict=True)
    for _ in range(2):
        np.testing.assert_array_equal(flipped(x).numpy(), (-x.numpy()).view(np.int16))
    same = x.view()
    same[0] = 0
    assert float(x[0, 1]) == 0
    with pytest.raises(tj.errors.ArgumentError, match="bits of numbers have no gradient"):
        tj.grad(lambda x: x.view(tj.int64).view(tj.float64).sum() + x.view(tj.float32).sum())(x)
    np.testing.assert_array_equal(tj.vmap(lambda x: x.view(tj.int64))(x).numpy(), x.numpy().view("int64"))
    with pytest.raises(tj.errors.ReadOnlyError):
        x.view(tj.int64)[0] = 1
    with pytest.raises(
        tj.errors.ShapeError, match=r"view: the last axis of an array float64\[3\](?s:.*)surface"
    ):
        x[:, 0].view(tj.complex128)
    with pytest.raises(tj.errors.DTypeError, match=r"view(?s:.*)test_numpy_surface"):
        x.view("S8")
    with pytest.raises(tj.errors.ShapeError):
        tj.asarray(1.0).view(tj.uint8)
    with pytest.raises(tj.errors.TracejitError, match=r"view(?s:.*)test_numpy_surface"):
        x.view(-1)
