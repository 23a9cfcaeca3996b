"""Products of vectors, matrices and tensors, and Einstein's summation, against NumPy."""

import itertools

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.samples import DTYPES, assert_close, laid_out, sample
from tests.frontend.test_functions_arrays import same
from tests.frontend.test_functions_gradients import check
from tests.frontend.test_functions_sorting import traced

F64, I32, BOOL = (np.dtype(name) for name in ("float64", "int32", "bool"))


def eager(function, *arrays, **options):
    return function(*map(tj.asarray, arrays), **options)


def compare(ours, theirs, arrays, calls=(eager, traced), **options):
    """The same dtype, shape and elements as NumPy, in eager code and in a replay."""
    expected = np.asarray(theirs(*arrays, **options))
    for call in calls:
        assert_close(call(ours, *arrays, **options).numpy(), expected, ulps=64, scale=16)


# -- einsum --------------------------------------------------------------------------------------------------

SUMMATIONS = [
    ("i->i", [(4,)]),
    ("i->", [(4,)]),
    ("ij->ji", [(3, 4)]),
    ("ij", [(3, 4)]),
    ("ba", [(3, 4)]),
    ("ii", [(4, 4)]),
    ("ii->i", [(4, 4)]),
    ("iij->j", [(3, 3, 4)]),
    ("iii->i", [(3, 3, 3)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("i...->...", [(2, 3, 4)]),
    ("...", [(2, 3)]),
    ("i,i", [(4,), (4,)]),
    ("i,i->i", [(4,), (4,)]),
    ("i,j->ji", [(4,), (3,)]),
    ("ij,jk", [(3, 4), (4, 2)]),
    ("ij,jk->ki", [(3, 4), (4, 2)]),
    ("ij,ij->", [(3, 4), (3, 4)]),
    ("ij,j->i", [(3, 4), (4,)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 2)]),
    ("bij,kjb->ki", [(2, 3, 4), (3, 4, 2)]),
    ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("ij,kl->", [(3, 4), (2, 3)]),
    ("ijk,jil->kl", [(2, 3, 4), (3, 2, 5)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (4, 2)]),
    ("...ij,...jk", [(5, 1, 3, 4), (2, 4, 2)]),
    ("i...,i...->...", [(3, 2, 4), (3, 4)]),
    ("...,...", [(2, 3), (3,)]),
    ("ij,ij->ij", [(1, 4), (3, 4)]),
    ("ij,jk->ik", [(3, 1), (4, 2)]),
    ("ij,ij->", [(1, 4), (3, 1)]),
    ("ij,jk,kl->il", [(3, 4), (4, 2), (2, 5)]),
    ("ij,jk,kl,lm", [(3, 4), (4, 2), (2, 5), (5, 2)]),
    ("a,ab,abc->abc", [(3,), (3, 4), (3, 4, 2)]),
    ("ab,ab,c->", [(3, 4), (3, 4), (2,)]),
    ("bi,io,bo->", [(4, 3), (3, 2), (4, 2)]),
    ("iij,jk->k", [(3, 3, 4), (4, 2)]),
    ("ij,jk->ik", [(3, 0), (0, 2)]),
    ("i,->i", [(3,), ()]),
    (",->", [(), ()]),
    (" ij , jk -> ik ", [(3, 4), (4, 2)]),
    ("Ab,bA->A", [(3, 4), (4, 3)]),
]


@pytest.mark.parametrize(("text", "shapes"), SUMMATIONS, ids=lambda value: str(value))
def test_einsum(text, shapes):
    rng = np.random.default_rng(1)
    arrays = [sample(rng, s, F64) for s in shapes]
    expected = np.asarray(np.einsum(text, *arrays))
    laid = [laid_out(rng, a) for a in arrays]
    for result in (tj.einsum(text, *laid), traced(lambda *xs: tj.einsum(text, *xs), *arrays)):
        assert_close(result.numpy(), expected, ulps=64, scale=16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_einsum_keeps_dtypes(dtype):
    rng = np.random.default_rng(2)
    a, b, c = (sample(rng, s, dtype) for s in ((3, 4), (4, 2), (2,)))
    for text, arrays in (("ij,jk,k->i", (a, b, c)), ("ij->i", (a,)), ("ij,ij->j", (a, a)), ("i,i", (c, c))):
        got = tj.einsum(text, *map(tj.asarray, arrays))
        assert_close(got.numpy(), np.asarray(np.einsum(text, *arrays)), ulps=16, scale=16)
    mixed = np.einsum("ij,jk->ik", a, b.astype("f8"))
    assert_close(tj.einsum("ij,jk->ik", a, tj.asarray(b.astype("f8"))).numpy(), mixed, ulps=16, scale=16)


def test_einsum_with_lists_of_labels():
    rng = np.random.default_rng(3)
    a, b = sample(rng, (2, 3, 4), F64), sample(rng, (4, 5), F64)
    x, y = tj.asarray(a), tj.asarray(b)
    forms = [
        ((a, [0, 1, 2], b, [2, 3]), (x, [0, 1, 2], y, [2, 3])),
        ((a, [7, 1, 2], b, [2, 3], [3, 1]), (x, [7, 1, 2], y, [2, 3], [3, 1])),
        ((a, [..., 2], b, [2, 3], [3, ...]), (x, [..., 2], y, [2, 3], [3, ...])),
        ((a, (2, 0, 1)), (x, (2, 0, 1))),
    ]
    for theirs, ours in forms:
        assert_close(tj.einsum(*ours).numpy(), np.einsum(*theirs), ulps=64, scale=16)
        assert_close(np.einsum(*ours).numpy(), np.einsum(*theirs), ulps=64, scale=16)


@pytest.mark.parametrize(
    "optimize",
    [True, False, "greedy", "optimal", ("greedy", 1000), ["einsum_path", (0, 1), (0, 1)],
     ["einsum_path", (1, 2), (0, 1)], ["einsum_path", (0, 1, 2)]],
    ids=str,
)  # fmt: skip
def test_einsum_in_any_order(optimize):
    rng = np.random.default_rng(4)
    arrays = [sample(rng, s, F64) for s in ((3, 4), (4, 2), (2, 5))]
    expected = np.einsum("ij,jk,kl->il", *arrays)
    got = np.einsum("ij,jk,kl->il", *map(tj.asarray, arrays), optimize=optimize)
    assert_close(got.numpy(), expected, ulps=64, scale=16)


def test_einsum_options():
    a = np.arange(6, dtype=I32).reshape(2, 3)
    x = tj.asarray(a)
    same(tj.einsum("ij->i", x, dtype=tj.float64, order="K"), np.einsum("ij->i", a, dtype="f8"))
    out = tj.zeros(2, dtype=tj.int32)
    assert np.einsum("ij->i", x, out=out) is out
    same(out, a.sum(1, dtype=I32))
    view = tj.einsum("ji", tj.asarray(a))
    assert view.shape == (3, 2)


def test_einsum_of_a_chain_multiplies_the_small_ones_first():
    """From left to right, the first product would have 10 billion elements."""
    column, row = tj.ones((100_000, 1)), tj.ones((1, 100_000))
    same(tj.einsum("ij,jk,kl->il", column, row, column), np.full((100_000, 1), 1e5, "f4"))


WRONG_SUMMATIONS = [
    (("ij,jk", (2, 3)), "subscripts for 2 operands, but 1"),
    (("ij", (2, 3), (2, 3)), "subscripts for 1 operands, but 2"),
    (("ij,jk", (2, 3), (4, 3)), "label j means extents 3 and 4"),
    (("ii", (2, 3)), "label i means extents 2 and 3"),
    (("ijk", (2, 3)), "labels i j k for an operand of 2 dimensions"),
    (("i", (2, 3)), "labels i for an operand of 2"),
    (("ij->k", (2, 3)), "label k must occur"),
    (("ij->ii", (2, 3)), "label i must occur once"),
    (("i1", (2, 3)), "is no list of letters"),
    (("ij->i->j", (2, 3)), "is no list of letters"),
    (("i...j...", (2, 3)), "is no list of letters"),
    (("...j->j", (2, 3)), "an ellipsis, the result has none"),
]


@pytest.mark.parametrize(("call", "message"), WRONG_SUMMATIONS, ids=lambda value: str(value))
def test_einsum_refuses(call, message):
    text, *shapes = call
    with pytest.raises(tj.TracejitError, match=message) as raised:
        tj.einsum(text, *map(tj.ones, shapes))
    assert "test_functions_products.py" in str(raised.value)
    with pytest.raises(ValueError, match=r"."):
        np.einsum(text, *map(np.ones, shapes))


def test_einsum_refuses_options():
    x = tj.ones((2, 3))
    for options in ({"order": "F"}, {"splat": 1}):
        with pytest.raises(tj.errors.ArgumentError, match=f"option {next(iter(options))}"):
            tj.einsum("ij", x, **options)
    for path in (["einsum_path", (0, 2)], ["einsum_path"], ["einsum_path", (0, 0)]):
        with pytest.raises(tj.errors.ArgumentError, match="path"):
            tj.einsum("ij,ij", x, x, optimize=path)
    with pytest.raises(tj.errors.ArgumentError, match="expected subscripts"):
        tj.einsum()
    with pytest.raises(tj.errors.ArgumentError, match="a list of labels, got int"):
        tj.einsum(x, 3)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [("ii->i", [(3, 3)]), ("ij,jk,kl->il", [(2, 3), (3, 2), (2, 2)]), ("bij,bj->bi", [(2, 2, 3), (2, 3)]),
     ("ij,ij->", [(2, 3), (2, 3)]), ("ij,ij->j", [(1, 3), (2, 3)])],
)  # fmt: skip
def test_gradient_of_einsum(text, shapes, evaluator):
    rng = np.random.default_rng(5)
    check(lambda *xs: tj.einsum(text, *xs), [rng.normal(size=s) for s in shapes], rng)


# -- products of two operands --------------------------------------------------------------------------------

PRODUCTS = [
    (tj.inner, np.inner, [((4,), (4,)), ((2, 3), (5, 3)), ((2, 3), (3,)), ((), (3,)), ((2, 0), (3, 0))]),
    (tj.vdot, np.vdot, [((4,), (4,)), ((2, 3), (3, 2)), ((), ()), ((0,), (0,))]),
    (tj.kron, np.kron, [((2,), (3,)), ((2, 3), (2, 2)), ((2,), (3, 2)), ((2, 1, 2), (3,)), ((), (2, 2))]),
    (tj.matvec, np.matvec, [((2, 3), (3,)), ((4, 2, 3), (3,)), ((2, 3), (4, 3)), ((5, 1, 2, 3), (4, 3))]),
    (tj.vecmat, np.vecmat, [((3,), (3, 2)), ((4, 3), (3, 2)), ((3,), (4, 3, 2)), ((0,), (0, 2))]),
    (tj.cross, np.cross, [((3,), (3,)), ((4, 3), (3,)), ((2, 1, 3), (4, 3))]),
]
CASES = [(*functions, *pair) for *functions, pairs in PRODUCTS for pair in pairs]


@pytest.mark.parametrize(
    ("ours", "theirs", "left", "right"), CASES, ids=lambda v: getattr(v, "__name__", str(v))
)
def test_products(ours, theirs, left, right):
    rng = np.random.default_rng(6)
    for dtypes in ((F64, F64), (I32, F64), (I32, np.dtype("uint8"))):
        a, b = (sample(rng, s, d) for s, d in zip((left, right), dtypes, strict=True))
        compare(ours, theirs, [a, b])
        result = theirs(tj.asarray(a), b)
        assert isinstance(result, tj.NDArray)
        assert_close(result.numpy(), np.asarray(theirs(a, b)), ulps=64, scale=16)


@pytest.mark.parametrize(
    "options",
    [{"axisa": 0}, {"axisc": 0}, {"axis": 0}, {"axisa": 0, "axisb": 1, "axisc": 1}, {"axis": -2}],
    ids=str,
)
def test_cross_along_other_axes(options):
    a = np.random.default_rng(7).normal(size=(3, 3, 3))
    compare(tj.cross, np.cross, [a, a[::-1].copy()], **options)
    assert_close(
        np.cross(tj.asarray(a), a + 1, **options).numpy(), np.cross(a, a + 1, **options), ulps=64, scale=16
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_trace(dtype):
    a = sample(np.random.default_rng(8), (3, 4, 5), dtype)
    for offset, (axis1, axis2) in itertools.product((0, 1, -2, 7, -7), ((0, 1), (2, 0), (-1, -2))):
        expected = np.trace(a, offset, axis1, axis2)
        for array in (tj.asarray(a), laid_out(np.random.default_rng(9), a)):
            assert_close(tj.trace(array, offset, axis1, axis2).numpy(), expected, scale=16)
            assert_close(array.trace(offset, axis1, axis2).numpy(), expected, scale=16)
    assert_close(np.trace(tj.asarray(a), dtype="f8").numpy(), np.trace(a, dtype="f8"), scale=16)
    assert_close(traced(tj.trace, a).numpy(), np.trace(a), scale=16)


def test_gradients_of_products(evaluator):
    rng = np.random.default_rng(10)
    for ours, _, pairs in PRODUCTS:
        for pair in pairs[:2]:
            check(ours, [rng.normal(size=s) for s in pair], rng)
    check(lambda x: tj.trace(x, 1) ** 2, [rng.normal(size=(3, 4))], rng)


WRONG_PRODUCTS = [
    (lambda: tj.inner(tj.ones(3), tj.ones(4)), "inner: vectors of 3 and 4 elements"),
    (lambda: tj.inner(tj.ones((2, 3)), tj.ones((2, 4))), "do not agree along axes"),
    (lambda: tj.vdot(tj.ones((2, 3)), tj.ones(5)), "vdot: vectors of 6 and 5 elements"),
    (lambda: tj.matvec(tj.ones(3), tj.ones(3)), r"matvec: matrices of shape \(3,\)"),
    (lambda: tj.vecmat(tj.ones(()), tj.ones((3, 3))), r"vecmat: matrices .* vectors of shape \(\)"),
    (lambda: tj.cross(tj.ones(2), tj.ones(2)), "cross: vectors of 2 and 2 elements"),
    (lambda: tj.trace(tj.ones(3)), "trace: axis 1 is out of range"),
    (lambda: tj.trace(tj.ones((3, 3)), 0, 1, -1), "trace: axes .* repeat"),
]


@pytest.mark.parametrize(("call", "message"), WRONG_PRODUCTS, ids=lambda v: v if isinstance(v, str) else "")
def test_products_refuse(call, message):
    with pytest.raises(tj.TracejitError, match=message) as raised:
        call()
    assert "test_functions_products.py" in str(raised.value)


# -- matmul of all dtypes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_matmul_of_two_dtypes(left):
    rng = np.random.default_rng(11)
    for right in DTYPES:
        for n, k, m in ((2, 3, 4), (1, 1, 1), (3, 0, 2)):
            a, b = sample(rng, (n, k), left, special=left.kind in "iu"), sample(rng, (k, m), right)
            assert_close((tj.asarray(a) @ tj.asarray(b)).numpy(), a @ b, ulps=64, scale=16)
    a, b = sample(rng, (5, 6), left), sample(rng, (6, 4), right)
    compare(tj.matmul, np.matmul, [a, b])
