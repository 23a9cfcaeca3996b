"""Every elementwise function the operators declare, against NumPy and SciPy: values, dtypes, shapes."""

import operator
import re

import numpy as np
import pytest
import scipy.special

import tracejit as tj
from tests.frontend.samples import DTYPES, FLOATS, assert_close, laid_out, sample
from tracejit.frontend.arrays.functions import UFUNCS
from tracejit.frontend.arrays.functions.elementwise import FUNCTIONS
from tracejit.ir.op import OPS, Trait

ORACLES = {function.__name__: ufunc for ufunc, function in UFUNCS.items()} | {
    "round": np.rint,
    "erf": scipy.special.erf,
    "sigmoid": scipy.special.expit,
}
COMPLEX = {"complex", "real", "imag", "conj"}
"""Functions of complex numbers have tests of their own: tests/frontend/test_complex.py."""
PUBLIC = sorted(op.name for op in OPS.values() if op.arity and op.promotion and op.name not in COMPLEX)
SHIFTS = ("bitwise_left_shift", "bitwise_right_shift")


def arity(name):
    return OPS[name].arity


def reference(name, *operands):
    """NumPy's result; operators it has no name for are computed in float64."""
    with np.errstate(all="ignore"):
        if name in ("erf", "sigmoid"):
            dtype = np.sqrt(operands[0]).dtype
            return ORACLES[name](operands[0].astype(np.float64)).astype(dtype)
        if name == "round" and operands[0].dtype.kind != "f":
            return np.round(operands[0])
        return np.asarray(ORACLES[name](*operands))


def operands_for(name, rng, shapes, dtypes):
    arrays = [sample(rng, s, d, special=True) for s, d in zip(shapes, dtypes, strict=True)]
    if name == "pow" and all(d.kind in "bui" for d in dtypes):
        arrays[1] = np.abs(arrays[1].astype(np.int64) % 7).astype(dtypes[1])
    return arrays


def accepts(name, *operands):
    """Whether NumPy takes operands of these dtypes."""
    try:
        reference(name, *operands)
    except TypeError:
        return False
    return not (name == "round" and operands[0].dtype.kind == "b")


def check(name, run, rng, shapes, dtypes):
    arrays = operands_for(name, rng, shapes, dtypes)
    if not accepts(name, *arrays):
        with pytest.raises(TypeError, match=name):
            FUNCTIONS[name](*map(tj.asarray, arrays))
        return
    got = run(FUNCTIONS[name], *(laid_out(rng, a) for a in arrays))
    expected = reference(name, *arrays)
    if Trait.EXACT in OPS[name].traits:
        assert got.dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(got, expected)
    else:
        assert_close(got, expected)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_dtype(name, evaluator):
    rng = np.random.default_rng(1)
    for dtype in DTYPES:
        check(name, lambda f, *a: f(*a).numpy(), rng, [(3, 5)] * arity(name), [dtype] * arity(name))


@pytest.mark.parametrize("name", [n for n in PUBLIC if arity(n) == 2])
def test_every_pair_of_dtypes(name, evaluator):
    rng = np.random.default_rng(2)
    for first in DTYPES:
        for second in DTYPES:
            check(name, lambda f, *a: f(*a).numpy(), rng, [(7,), (7,)], [first, second])


SHAPE_PAIRS = [((), ()), ((4,), ()), ((0,), (1,)), ((3, 1), (1, 4)), ((2, 3, 4), (3, 1)), ((5,), (2, 1, 5))]


@pytest.mark.parametrize("name", PUBLIC)
def test_shapes_and_layouts(name, evaluator):
    rng = np.random.default_rng(3)
    for shapes in SHAPE_PAIRS:
        for dtype in (np.dtype("float64"), np.dtype("int32"), np.dtype("bool")):
            check(name, lambda f, *a: f(*a).numpy(), rng, shapes[: arity(name)], [dtype] * arity(name))


@pytest.mark.parametrize("name", PUBLIC)
def test_all_modes(name, run):
    rng = np.random.default_rng(4)
    admits = OPS[name].admits
    dtype = next(d for d in (*FLOATS, np.dtype("int32"), np.dtype("bool")) if d in admits)
    check(name, run, rng, [(6, 1), (1, 33)][: arity(name)], [dtype] * arity(name))


@pytest.mark.parametrize("name", [n for n in PUBLIC if arity(n) == 2])
def test_python_numbers_are_weak(name, evaluator):
    rng = np.random.default_rng(5)
    for dtype in DTYPES:
        array = operands_for(name, rng, [(9,), (9,)], [dtype, dtype])[0]
        for number in (2, 2.5, True):
            if not accepts(name, array, number):
                with pytest.raises(TypeError, match=name):
                    FUNCTIONS[name](tj.asarray(array), number)
                continue
            got = FUNCTIONS[name](tj.asarray(array), number).numpy()
            assert_close(got, reference(name, array, number))


def test_comparisons_with_numbers_out_of_range(evaluator):
    for number in (-1, 300, 2**70, -(2**70)):
        array = np.array([0, 1, 255], np.uint8)
        for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
            np.testing.assert_array_equal(compare(tj.asarray(array), number).numpy(), compare(array, number))
            np.testing.assert_array_equal(compare(number, tj.asarray(array)).numpy(), compare(number, array))


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(
        tj.errors.DTypeError, match=r"300 does not fit into uint8(?s:.*)test_functions_elementwise"
    ):
        tj.asarray(np.uint8([1])) + 300
    with pytest.raises(tj.errors.DTypeError, match="-1"):
        tj.asarray(np.uint8([1])) * -1


def test_integers_to_negative_powers_are_refused():
    with pytest.raises(tj.errors.ArgumentError, match="negative power -2"):
        tj.asarray([1, 2]) ** -2


WITH_A_NUMBER = (
    lambda x, number: (x * number, number * x, np.multiply(number, x), x // number),
    lambda x, number: tj.where(x > 0, x, tj.maximum(number, x).clip(-number, number)),
    lambda x, number: x.astype(tj.complex64) + number,
)


@pytest.mark.parametrize("number", [np.float64(2.5), np.sqrt(2), np.mean([1.0, 2.0])])
def test_a_float64_scalar_of_numpys_is_as_weak_as_a_float(number, run):
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    for program in WITH_A_NUMBER:
        result = run(lambda x: program(x, number), tj.asarray(x))  # noqa: B023
        expected = run(lambda x: program(x, float(number)), tj.asarray(x))  # noqa: B023
        for mine, theirs in zip(tj.tree.leaves(result), tj.tree.leaves(expected), strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)


def test_a_float64_scalar_alone_is_double(run):
    number = np.float64(0.1)
    for program in (lambda: tj.sin(number), lambda: tj.full((2,), number), lambda: tj.maximum(number, 0.5)):
        assert run(program).dtype == np.float64
    assert run(lambda: tj.add(number, 1j)).dtype == np.complex128
    assert run(lambda: tj.add(1.0, 1j)) == np.complex64(1 + 1j)


def test_a_float64_scalar_is_weak_where_numpy_computes_at_once():
    x = tj.ones(2)
    for result in (x * np.float64(2), np.float64(2) * x, x + np.sqrt(2)):
        assert result.dtype == np.float32
        assert result._storage.pending is None
    x *= np.float64(0.5)
    x[0] = np.float64(0.1)
    assert x.tolist() == [np.float32(0.1), 0.5]
    assert (tj.asarray([1, 2]) * np.float64(0.5)).dtype == np.float64


def test_a_float64_scalar_as_argument_or_captured_is_weak():
    @tj.jit
    def step(x, rate):
        return x * rate

    x = tj.ones(3)
    for rate in (np.float64(0.5), np.float64(0.25)):
        result = step(x, rate)
        assert result.dtype == np.float32
        assert result.tolist() == [rate] * 3
    assert step.cache_info().traces == 1


def test_other_scalars_and_arrays_of_numpys_are_strong(evaluator):
    x = tj.ones(2)
    assert (x * np.array(2.0)).dtype == np.float64
    assert (x * tj.asarray(np.float64(2))).dtype == np.float64
    assert (x.astype(tj.int8) * np.int64(2)).dtype == np.int64
    assert (tj.ones(2, dtype=tj.int16) * np.float32(2)).dtype == np.float32
    assert (x * np.complex128(2)).dtype == np.complex128
    assert tj.asarray(np.float64(2.5)).dtype == tj.asarray([np.float64(2.5)]).dtype == np.float64
    assert (x * 2.0).dtype == np.float32


def test_explain_names_what_widened():
    @tj.jit
    def step(x, factor):
        return x * factor

    step(tj.ones(3), np.array(2.0))
    assert re.search(r"astype widened float32 to float64 at .*test_functions_elementwise", step.explain())
    step = tj.jit(step.__wrapped__)
    step(tj.ones(3), np.float64(2.0))
    assert "widened" not in step.explain()


def test_numbers_alone(evaluator):
    assert tj.add(1, 2).numpy() == 3
    assert tj.add(1, 2).dtype == np.int64
    assert tj.sin(1.0).dtype == np.float32
    assert tj.add(True, False).dtype == np.bool_


def test_errors_name_the_users_line():
    with pytest.raises(
        ValueError, match=r"add: shapes \(2,\) and \(3,\)(?s:.*)test_functions_elementwise.py"
    ):
        tj.ones(2) + tj.ones(3)
    with pytest.raises(TypeError, match="add: expected an array or a number, got str"):
        tj.add(tj.ones(2), "x")
    with pytest.raises(TypeError, match="not defined for float32"):
        tj.ones(2) & tj.ones(2)


def test_where_clip_positive_round(run):
    rng = np.random.default_rng(6)
    x = sample(rng, (4, 5), np.float32, special=True)
    y = sample(rng, (5,), np.int16)
    np.testing.assert_array_equal(
        run(lambda x, y: tj.where(x > 0, x, y), *map(tj.asarray, (x, y))), np.where(x > 0, x, y)
    )
    np.testing.assert_array_equal(
        run(lambda x: tj.clip(x, -1, 1.5), tj.asarray(x)), np.clip(x, np.float32(-1), np.float32(1.5))
    )
    np.testing.assert_array_equal(run(lambda y: tj.clip(y, min=0), tj.asarray(y)), np.clip(y, 0, None))
    np.testing.assert_array_equal(run(tj.positive, tj.asarray(y)), y)
    with np.errstate(all="ignore"):
        assert_close(run(lambda x: tj.round(x, 2), tj.asarray(x[:, :2])), np.round(x[:, :2], 2))


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "ge", "eq", "ne"]
)
def test_operators_with_numpy_arrays_on_either_side(name, evaluator):
    apply = getattr(operator, name)
    rng = np.random.default_rng(7)
    a, b = rng.uniform(0.5, 3, (2, 6))
    for left, right in ((tj.asarray(a), b), (a, tj.asarray(b)), (tj.asarray(a), tj.asarray(b))):
        result = apply(left, right)
        assert isinstance(result, tj.NDArray)
        np.testing.assert_allclose(result.numpy(), apply(a, b), rtol=1e-14)


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "ipow", "ifloordiv", "imod"])
def test_in_place_operators_are_seen_through_views(name, evaluator):
    apply = getattr(operator, name)
    expected = np.arange(1.0, 9.0).reshape(2, 4)
    x = tj.asarray(expected.copy())
    row, same = x[1], x
    x = apply(x, 2)
    assert x is same
    expected = apply(expected, 2)
    np.testing.assert_array_equal(row.numpy(), expected[1])


def test_in_place_operators_keep_the_dtype():
    x = tj.asarray([1, 2])
    with pytest.raises(TypeError, match="in-place divide"):
        x /= 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_half_as_an_exponent_is_the_square_root_everywhere(dtype):
    numbers = np.array([4, -np.inf, -0.0, 0, np.inf, -1, np.nan], dtype)
    with np.errstate(invalid="ignore"):
        x, expected = tj.asarray(numbers), np.sqrt(numbers)
    step = tj.jit(lambda v, p: v**p)
    step(x, 2.0)
    for got in (x**0.5, tj.jit(lambda v: v**0.5)(x), step(x, 0.5)):
        np.testing.assert_array_equal(got.numpy(), expected)
        np.testing.assert_array_equal(np.signbit(got.numpy()[[2, 3]]), [True, False])


@pytest.mark.parametrize(("low", "high"), [(-1, 100), (2, 300), (-1, 300), (-(2**70), 2**70)])
def test_clip_takes_limits_beyond_the_dtype(run, low, high):
    x = np.array([1, 2, 200], np.uint8)
    got = run(lambda x: tj.clip(x, low, high), tj.asarray(x))
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, np.clip(x.astype(int), max(low, 0), min(high, 255)))


def test_clip_refuses_limits_that_leave_nothing():
    for low, high in ((300, None), (None, -1)):
        with pytest.raises(tj.errors.DTypeError, match="does not fit into uint8"):
            tj.clip(tj.ones(3, "uint8"), low, high)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "uint16", "int32", "int64", "float32", "float64"])
def test_rint_gives_floats(dtype, run):
    x = np.array([0, 1, 2]).astype(dtype)
    got = run(np.rint, tj.asarray(x))
    assert got.dtype == np.result_type(np.rint(x).dtype, np.float32)
    np.testing.assert_array_equal(got, np.rint(x))
