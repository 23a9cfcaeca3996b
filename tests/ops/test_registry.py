"""Every registered operator against NumPy, central differences and its own typing rule.

Elementwise functions are found in the registry and need one line in `DOMAINS`; all other operators need
samples in `SAMPLES`. An operator that is registered and stands in neither fails here.
"""

import math

import ml_dtypes
import numpy as np
import pytest
import scipy.signal
import scipy.special

from tracejit.errors import DeviceError, DTypeError, OutOfBoundsError, ShapeError, TracejitError
from tracejit.ir.evaluate import evaluate, evaluate_node
from tracejit.ir.graph import Builder, Effect
from tracejit.ir.op import OPS, Trait
from tracejit.ir.types import CPU, DTYPES, HALVES, HOST, ArrayType, Device, is_floating, is_inexact
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.kernels import c_functions
from tracejit.ops import add, multiply, negative
from tracejit.ops import sum as sum_op
from tracejit.ops.c_library import C_FUNCTIONS
from tracejit.ops.communicate import BETWEEN_RANKS
from tracejit.ops.structural import CALLBACKS, keep_callback
from tracejit.ops.symbolic import Sym, building, number, pull_back

F64, F32, I64, BOOL = (np.dtype(name) for name in ("float64", "float32", "int64", "bool"))

REAL, POSITIVE = (-3.0, 3.0), (0.2, 3.0)
# Where functions are smooth enough to compare their gradients with differences: one interval for each
# operand; none for functions of integers.
INTERVALS = [
    ("abs asinh atan ceil cos cosh erf exp exp2 expm1 floor isfinite isinf isnan", [REAL]),
    ("negative round sigmoid sign signbit sin sinh square tanh trunc", [REAL]),
    ("log log10 log2 reciprocal sqrt", [POSITIVE]),
    ("acos asin atanh log1p", [(-0.9, 0.9)]),
    ("tan", [(-1.2, 1.2)]),
    ("acosh", [(1.1, 4.0)]),
    ("add copysign equal greater greater_equal hypot less less_equal logaddexp", [REAL, REAL]),
    ("maximum minimum multiply nextafter not_equal subtract", [REAL, REAL]),
    ("atan2 divide floor_divide", [REAL, POSITIVE]),
    ("remainder", [REAL, (1.5, 1.9)]),
    ("pow", [POSITIVE, REAL]),
    ("bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor", []),
    ("logical_and logical_not logical_or logical_xor", []),
    ("complex conj imag real", []),
]
DOMAINS = {name: intervals for names, intervals in INTERVALS for name in names.split()}

ORACLES = {
    "sigmoid": scipy.special.expit,
    "erf": scipy.special.erf,
    "complex": lambda x, y: np.stack([x, y], -1).view(f"complex{16 * x.itemsize}")[..., 0],
}

COMPLEX = frozenset(d for d in DTYPES if d.kind == "c")
WITHOUT_COMPLEX = {"less", "less_equal", "greater", "greater_equal", "maximum", "minimum"}
"""NumPy orders complex numbers by their parts; the array API leaves them without an order, and so do we."""

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.inf, -np.inf, np.nan, 1e-300, -1e-40, 1e30, 88.8, -104.0]

ELEMENTWISE = sorted(name for name, op in OPS.items() if op.arity)
PARTS = {"complex", "real", "imag", "conj"}
"""Their gradients are complex numbers: see tests/frontend/test_complex.py."""
FACTORIZATIONS = {
    "cholesky",
    "solve",
    "inv",
    "slogdet",
    "qr",
    "svd",
    "singular_values",
    "eigh",
    "eigenvalues_hermitian",
}
"""Several results, or gradients along symmetric matrices: see tests/frontend/test_linalg.py."""
TRANSFORMS = {"fft", "rfft", "irfft"}
"""Complex numbers: see tests/frontend/test_fft.py."""
REFUSING = {"bitcast", "without_gradient"}
BETWEEN = {op.name for op in BETWEEN_RANKS}
"""Operators of several processes: see tests/distributed."""
ELSEWHERE = PARTS | FACTORIZATIONS | TRANSFORMS | BETWEEN | REFUSING
DIFFERENTIABLE = sorted(name for name, op in OPS.items() if op.gradient is not None and name not in ELSEWHERE)


# ---- small tools


def known(x):
    """What NumPy's assertions know the nans of: bfloat16 as float32."""
    x = np.asarray(x)
    return x.astype(F32) if x.dtype == "bfloat16" else x


def assert_equal(result, expected):
    np.testing.assert_array_equal(known(result), known(expected))


def assert_close(result, expected, **tolerances):
    np.testing.assert_allclose(known(result), known(expected), **tolerances)


def type_of(x):
    """Arrays live on the CPU; NumPy scalars stand for numbers on the host."""
    return ArrayType(x.shape, x.dtype, HOST if isinstance(x, np.generic) else CPU)


def run(op, inputs, attrs):
    """The outputs of one node, through the builder, the verifier and the evaluator."""
    builder = Builder()
    values = [builder.input(type_of(x)) for x in inputs]
    result = builder.emit(op, *values, **attrs)
    results = result if isinstance(result, tuple) else (result,)
    return evaluate(verify(builder.graph(results)), inputs)[0]


def reverse(builder, nodes, output, cotangent, wrt):
    """Reverse mode in its simplest form: the cotangents of `wrt`, zero where there are none."""
    total = {output: cotangent}
    for node in reversed(nodes):
        known = [total.get(v) for v in node.outputs]
        if any(ct is not None for ct in known):
            for value, ct in zip(node.inputs, pull_back(builder, node, known), strict=True):
                if ct is not None:
                    total[value] = builder.emit(add, total[value], ct) if value in total else ct
    with building(builder):
        return [
            total[v] if v in total else number(0, v.type.dtype).full(v.type.shape, v.type.device).value
            for v in wrt
        ]


def weighted(builder, value, weights):
    """The number <weights, value>, 0-d."""
    return builder.emit(sum_op, builder.emit(multiply, value, weights), axes=tuple(range(value.type.ndim)))


def floats(inputs):
    return [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and x.dtype.kind == "f"]


def derivative_graph(op, inputs, attrs, order):
    """A graph of all inputs, then the weights; its outputs are the last value and its gradients.

    Order 1: the value is <w, op(x)>. Order 2: the value is the sum over inputs of <u_i, d<w, op(x)>/dx_i>.
    """
    builder = Builder()
    values = [builder.input(type_of(x)) for x in inputs]
    wrt = [values[i] for i in floats(inputs)]
    results = builder.emit(op, *values, **attrs)
    loss = weigh_all(builder, results if isinstance(results, tuple) else (results,))
    for step in range(order):
        with building(builder):
            one = number(1, loss.type.dtype).full((), loss.type.device).value
        gradients = reverse(builder, list(builder.nodes), loss, one, wrt)
        if step == order - 1:
            return verify(builder.graph([loss, *gradients])), len(builder.inputs) - len(inputs)
        loss = weigh_all(builder, gradients)
    raise AssertionError


def weigh_all(builder, values):
    """The sum of <w_i, value_i>, the weights as inputs."""
    loss, *terms = [weighted(builder, v, builder.input(v.type)) for v in values]
    for term in terms:
        loss = builder.emit(add, loss, term)
    return loss


def check_derivative(op, inputs, attrs, rng, order, tolerance):
    """Compare the gradients at `inputs` with central differences of the value, all in float64."""
    graph, extra = derivative_graph(op, inputs, attrs, order)
    weights = [rng.uniform(0.5, 1.5, v.type.shape) for v in graph.inputs[len(graph.inputs) - extra :]]

    def value(arrays):
        return float(evaluate(graph, [*arrays, *weights])[0][0])

    gradients = evaluate(graph, [*inputs, *weights])[0][1:]
    for gradient, i in zip(gradients, floats(inputs), strict=True):
        expected = np.zeros(inputs[i].shape)
        for position in np.ndindex(inputs[i].shape):
            h = 1e-5
            sides = []
            for signed in (h, -h):
                moved = [np.array(x) if k == i else x for k, x in enumerate(inputs)]
                moved[i][position] += signed
                sides.append(value(moved))
            expected[position] = (sides[0] - sides[1]) / (2 * h)
        assert_close(gradient, expected, rtol=tolerance, atol=tolerance)


def matrix_samples():
    """Samples of the factorizations, in a batch of matrices."""
    a = np.random.default_rng(8).normal(size=(2, 3, 3))
    positive = a @ a.mT + 3 * np.eye(3)
    tall = np.random.default_rng(9).normal(size=(2, 4, 3))
    return {
        "cholesky": [([positive], {}, [np.linalg.cholesky(positive)])],
        "solve": [([a, tall[:, :3]], {}, [np.linalg.solve(a, tall[:, :3])])],
        "inv": [([a], {}, [np.linalg.inv(a)])],
        "slogdet": [([a], {}, list(np.linalg.slogdet(a)))],
        "qr": [([tall], {"complete": False}, list(np.linalg.qr(tall)))],
        "svd": [([tall], {"full": full}, list(np.linalg.svd(tall, full))) for full in (False, True)],
        "singular_values": [([tall], {}, [np.linalg.svd(tall, compute_uv=False)])],
        "eigh": [([positive], {"upper": part == "U"}, list(np.linalg.eigh(positive, part))) for part in "LU"],
        "eigenvalues_hermitian": [([positive], {"upper": False}, [np.linalg.eigvalsh(positive)])],
        "eig": [([a + 0j], {}, list(np.linalg.eig(a + 0j)))],
    }


# ---- elementwise functions


def operands(op, dtype, rng, size=64):
    """Random operands over the whole range of `dtype`, with special values in all pairs for floats."""
    if is_floating(dtype):
        special = np.array(SPECIAL)
        grid = np.meshgrid(*[special] * op.arity, indexing="ij")
        rest = [rng.normal(size=size) * 10.0 ** rng.integers(-6, 6, size) for _ in grid]
        return [np.concatenate([g.reshape(-1), r]).astype(dtype) for g, r in zip(grid, rest, strict=True)]
    if dtype.kind == "c":
        parts = rng.normal(size=(op.arity, size, 2)) * 10.0 ** rng.integers(-4, 4, (op.arity, size, 2))
        return list(parts.view(np.complex128)[..., 0].astype(dtype))
    if dtype == BOOL:
        return [rng.integers(0, 2, size).astype(bool) for _ in range(op.arity)]
    info = np.iinfo(dtype)
    arrays = [rng.integers(info.min, info.max, size, dtype, endpoint=True) for _ in range(op.arity)]
    for array in arrays:
        array[:10] = rng.choice(np.array([0, 1, info.min, info.max, 2], dtype), 10)
    if op.name in ("bitwise_left_shift", "bitwise_right_shift"):
        arrays[1] %= np.array(2 * dtype.itemsize * 8 if dtype.itemsize < 8 else 100, dtype)
    if op.name == "pow":
        arrays[1] = np.abs(arrays[1] % np.array(7, dtype))
    return arrays


def in_double(oracle, arrays):
    """What an oracle that does not know half numbers says, rounded to their dtype."""
    return oracle(*(x.astype(F64) for x in arrays)).astype(arrays[0].dtype)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_function_equals_numpy(name):
    op, rng = OPS[name], np.random.default_rng(len(name))
    oracle = ORACLES.get(name) or getattr(np, name)
    for dtype in DTYPES:
        if dtype not in op.admits:
            continue
        with np.errstate(all="ignore"):
            arrays = operands(op, dtype, rng)
            expected = in_double(oracle, arrays) if name in ORACLES and dtype in HALVES else oracle(*arrays)
            (result,) = run(op, arrays, {})
        assert result.dtype == expected.dtype
        if name in ORACLES:
            assert_close(result, expected, rtol=4 * ml_dtypes.finfo(dtype).eps, atol=1e-40)
        else:
            assert_equal(result, expected)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_function_admits_what_numpy_computes_in_one_dtype(name):
    op = OPS[name]
    if op.promotion == "bool":
        assert op.admits == {BOOL}
        return
    if op.admits <= COMPLEX:
        assert op.admits == COMPLEX
        return
    if not isinstance(op.evaluate, np.ufunc):
        assert op.admits >= {F32, F64}
        return
    native = set()
    for dtype in DTYPES:
        try:
            loop = op.evaluate.resolve_dtypes((*[dtype] * op.arity, None))
        except TypeError:
            continue
        if set(loop[:-1]) == {dtype} and (loop[-1] in (dtype, BOOL) or name == "abs"):
            native.add(dtype)
    if op.name in WITHOUT_COMPLEX:
        native -= COMPLEX
    assert op.admits == native


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_function_takes_numbers_next_to_arrays(name):
    op, rng = OPS[name], np.random.default_rng(1)
    dtype = next(d for d in (F64, BOOL, I64, np.dtype("complex128")) if d in op.admits)
    array = np.abs(rng.normal(size=(2, 3)) * 3).astype(dtype)
    scalars = [dtype.type(1) for _ in range(op.arity)]
    for position in range(op.arity):
        mixed = [array if i == position else s for i, s in enumerate(scalars)]
        with np.errstate(all="ignore"):
            expected = op.evaluate(*np.broadcast_arrays(*mixed))
            assert_equal(run(op, mixed, {})[0], expected)
    inferred = op.infer(*(ArrayType((), dtype, HOST) for _ in scalars))
    assert inferred.on_host
    assert inferred.shape == ()


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_function_works_element_by_element(name):
    op, rng = OPS[name], np.random.default_rng(2)
    for dtype in sorted(op.admits, key=str):
        with np.errstate(over="ignore"):
            arrays = operands(op, dtype, rng)
        order = rng.permutation(arrays[0].size)
        with np.errstate(all="ignore"):
            whole, moved = op.evaluate(*arrays), op.evaluate(*(a[order] for a in arrays))
        if not is_inexact(dtype):
            assert_equal(moved, whole[order])
        else:
            assert_close(moved, whole[order], rtol=1e-2 if dtype in HALVES else 1e-6)
        if Trait.COMMUTATIVE in op.traits:
            with np.errstate(all="ignore"):
                turned = op.evaluate(*arrays[::-1])
            if dtype.kind == "c":  # NumPy's products round one of their parts less
                assert_close(turned, whole, rtol=1e-6)
            else:
                assert_equal(turned, whole)
    assert Trait.ELEMENTWISE in op.traits
    assert op.kernel == name
    assert op.doc.endswith(".")


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_typing_errors_name_the_operator(name):
    op = OPS[name]
    dtype = sorted(op.admits, key=str)[0]
    good = ArrayType((2, 3), dtype)
    with pytest.raises(TracejitError, match=f"^{name} takes"):
        op.infer(*[good] * (op.arity + 1))
    for other in set(DTYPES) - op.admits:
        with pytest.raises(DTypeError, match=rf"^{name} is not defined for {other}, only for .*; cast"):
            op.infer(*[ArrayType((2, 3), other)] * op.arity)
    if op.arity == 2:
        with pytest.raises(ShapeError, match=rf"^{name} got arrays of different shapes: .*\[2,3\], .*\[3\]"):
            op.infer(good, ArrayType((3,), dtype))
        with pytest.raises(DeviceError, match=f"^{name} got arrays on cpu:0 and gpu:0"):
            op.infer(good, ArrayType((2, 3), dtype, Device("gpu")))
        other = np.dtype("int8") if dtype != "int8" else np.dtype("int16")
        with pytest.raises(DTypeError, match=f"^{name} needs operands of one dtype"):
            op.infer(good, ArrayType((2, 3), other))


# ---- all other operators


def ints(*values):
    return np.array(values, np.int64)


def image_samples(rng):
    """Samples of convolutions and pooling; tests/ops/test_images.py has the oracles of their gradients."""
    x, w, y = (rng.normal(size=s) for s in [(1, 1, 3, 4), (2, 1, 2, 2), (1, 2, 2, 3)])
    plain = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    wide = {"stride": (2, 1), "padding": ((1, 0), (0, 2)), "dilation": (1, 2), "groups": 2}
    x2, w2, y2 = (rng.normal(size=s) for s in [(2, 2, 3, 3), (4, 1, 2, 2), (2, 4, 2, 3)])
    pairs = {"window": (2, 2), "stride": (1, 2), "padding": ((0, 1), (1, 0))}
    pooled = rng.normal(size=(1, 1, 3, 2))
    correlated = np.stack([scipy.signal.correlate2d(x[0, 0], k[0], "valid") for k in w])[None]
    windows = np.pad(x, ((0, 0), (0, 0), (0, 1), (1, 0)), constant_values=-np.inf)
    largest = [[windows[0, 0, i : i + 2, j : j + 2].max() for j in (0, 2)] for i in range(3)]
    zeros = np.where(np.isinf(windows), 0, windows)
    means = [[zeros[0, 0, i : i + 2, j : j + 2].mean() for j in (0, 2)] for i in range(3)]
    input_gradient, weight_gradient = "conv2d_input_gradient", "conv2d_weight_gradient"
    return {
        "conv2d": [([x, w], plain, [correlated]), ([x2, w2], wide, None)],
        input_gradient: [
            ([y, w], plain | {"extents": (3, 4)}, None),
            ([y2, w2], wide | {"extents": (3, 3)}, None),
        ],
        weight_gradient: [
            ([x, y], plain | {"window": (2, 2)}, None),
            ([x2, y2], wide | {"window": (2, 2)}, None),
        ],
        "conv2d_weight_sums": [
            (
                [x2, y2],
                wide | {"window": (2, 2), "rows": rows},
                [sums_of_rows(x2, y2, rows, wide | {"window": (2, 2)})],
            )
            for rows in (1, 2, 99)
        ],
        **winograd_samples(rng),
        "max_pool": [([x], pairs, [np.array([[largest]])])],
        "max_pool_gradient": [([x, pooled], pairs, None)],
        "max_pool_select": [
            ([x, x], pairs, [np.array([[largest]])]),
            ([x, -x], pairs, [-np.array([[largest]])]),
        ],
        "average_pool": [([x], pairs, [np.array([[means]])])],
        "average_pool_gradient": [([pooled], pairs | {"extents": (3, 4)}, None)],
    }


def sums_of_rows(x, y, rows, attrs):
    """The gradients to a weight from some rows of places at a time, over all images in order."""
    found = []
    lines = [(n, i) for n in range(y.shape[0]) for i in range(y.shape[2])]
    for start in range(0, len(lines), rows):
        some = np.zeros_like(y)
        for n, i in lines[start : start + rows]:
            some[n, :, i] = y[n, :, i]
        found.append(OPS["conv2d_weight_gradient"].evaluate(x, some, **attrs))
    return np.stack(found)


def winograd_samples(rng):
    """The parts of a convolution by tiles, of integers in float64, in slivers of 32 filters."""
    shapes = ((2, 3, 5, 4), (2, 40, 5, 3), (40, 3, 3, 3))
    x, y, w = (rng.integers(-4, 5, shape).astype(F64) for shape in shapes)
    padding = ((1, 1), (1, 0))
    plain = {"stride": (1, 1), "padding": padding, "dilation": (1, 1), "groups": 1}
    back = {"padding": ((1, 1), (1, 2))}
    straight, turned, wide, narrow = (
        OPS["winograd_weights"].evaluate(w, x, transposed=flag, stride=stride)
        for stride in (1, 2)
        for flag in (False, True)
    )
    image = OPS["conv2d_input_gradient"].evaluate(y, w, extents=(5, 4), **plain)
    of_two = plain | {"stride": (2, 2), "padding": ((1, 1), (1, 1))}
    small = rng.integers(-4, 5, (2, 40, 3, 2)).astype(F64)
    two = {"padding": of_two["padding"], "stride": 2}
    smaller = OPS["conv2d_input_gradient"].evaluate(small, w, extents=(5, 4), **of_two)
    gradients = [
        (OPS["conv2d_weight_gradient"].evaluate(x, ct, window=(3, 3), **attrs), ct, more)
        for ct, attrs, more in ((y, plain, {"padding": padding, "stride": 1}), (small, of_two, two))
    ]
    return {
        "winograd_weights": [
            ([w, x], {"transposed": flag, "stride": stride}, None)
            for flag in (False, True)
            for stride in (1, 2)
        ],
        "winograd_conv2d": [
            (
                [x, straight],
                {"padding": padding, "filters": 40, "stride": 1},
                [OPS["conv2d"].evaluate(x, w, **plain)],
            ),
            ([y, turned], back | {"filters": 3, "stride": 1}, [image]),
            ([x, wide], two | {"filters": 40}, [OPS["conv2d"].evaluate(x, w, **of_two)]),
        ],
        "winograd_input_gradient": [
            (
                [small, narrow],
                {"padding": of_two["padding"], "extents": (5, 4), "filters": 3},
                [smaller],
            )
        ],
        "winograd_weight_sums": [([x, ct], more, None) for _, ct, more in gradients],
        "winograd_weight_gradient": [
            (
                [OPS["winograd_weight_sums"].evaluate(x, ct, **more)],
                {"filters": 40, "stride": more["stride"]},
                [weight],
            )
            for weight, ct, more in gradients
        ],
    }


def samples(rng):
    """name -> list of (inputs, attributes, expected outputs)."""
    x, y, z = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 4)), rng.normal(size=(3, 4))
    mask, index = x > 0.3, ints(2, 0, 2)
    bits = np.array([[True, False, False], [True, True, True]])
    small = rng.integers(-9, 9, (2, 3, 4)).astype(np.int8)
    window, columns = View(1, (4, 3), (2, 1)), View.of_shape((3, 4)).slice_axis(1, 1, 3)
    grid = ints(2, 1, 0, 2).reshape(2, 2)
    updated = z.copy()
    updated[:, 1:3] = z[:, :2]
    spread = np.zeros((2, 5, 4))
    np.add.at(spread, (slice(None), index), x)
    squares = Builder()
    inner = squares.input(ArrayType((3, 4), F64))
    body = squares.graph([squares.emit(multiply, inner, inner), squares.emit(add, inner, inner)])
    negated, doubled = (branch(op, inner.type, count) for op, count in ((negative, 1), (add, 2)))
    adding = Builder()
    total, part = adding.input(inner.type), adding.input(inner.type)
    rounds = adding.graph([], [Effect(total, adding.emit(add, total, part))])
    seen = keep_callback(lambda *arrays: None)

    running = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}

    def reduced(function, data=x, pieced=None):
        cases = [
            ([data], {"axes": axes, "pieces": 0}, [np.asarray(function(data, axis=axes, dtype=data.dtype))])
            for axes in ((), (0,), (2,), (0, 1), (0, 2), (0, 1, 2))
        ]
        rows = data.transpose(1, 0, 2).reshape(3, 8)
        runs = [function(rows[:, i : i + 3], axis=1, dtype=data.dtype) for i in (0, 3, 6)]
        return [*cases, ([data], {"axes": (0, 2), "pieces": 3}, [np.stack(runs, 1)])]

    def untyped(function):
        return lambda data, axis, dtype: function(data, axis=axis).astype(dtype) if axis != () else data

    def logical(function):
        runs = np.stack([function(bits[:, :2], axis=1), function(bits[:, 2:], axis=1)], 1)
        return [
            ([bits], {"axes": (1,), "pieces": 0}, [function(bits, axis=1)]),
            ([bits], {"axes": (0, 1), "pieces": 0}, [function(bits)]),
            ([bits], {"axes": (1,), "pieces": 2}, [runs]),
        ]

    return {
        "where": [
            ([mask, x, y], {}, [np.where(mask, x, y)]),
            ([mask, x, np.float64(2)], {}, [np.where(mask, x, 2.0)]),
            ([np.bool_(True), x, y], {}, [x]),
        ],
        "astype": [
            ([x.astype(a) if is_floating(a) else np.abs(x * 3).astype(a)], {"dtype": b}, None)
            for a in DTYPES
            for b in DTYPES
            if not (is_floating(a) and b.kind == "u") and not (a.kind == "c" and b.kind not in "cb")
        ]
        + [([x], {"dtype": F32}, [x.astype("f")])],
        "bitcast": [
            ([np.arange(-6, 6).astype(a).reshape(3, 4)], {"dtype": b}, None)
            for a in DTYPES
            for b in DTYPES
            if a.itemsize == b.itemsize and a.kind not in "bc" and b.kind not in "bc"
        ],
        "copy": [([x], {}, [x])],
        "rounded": [([x], {}, [x])],
        "stop_gradient": [([x], {}, [x])],
        "without_gradient": [([x], {"reason": "it is drawn"}, [x])],
        "after": [([mask, x], {}, [x]), ([mask, np.float64(2)], {}, [np.full(mask.shape, 2.0)])],
        "copy_to": [([x], {"device": Device("cpu", 1)}, [x])],
        "constant": [([], {"value": 2.5, "dtype": F32}, [np.float32(2.5)])],
        "full": [([np.int8(3)], {"shape": (2, 2), "device": CPU}, [np.full((2, 2), 3, np.int8)])],
        "iota": [([], {"size": 4, "device": CPU}, [ints(0, 1, 2, 3)])],
        "empty": [([], {"shape": (2, 0), "dtype": BOOL, "device": CPU}, [np.zeros((2, 0), bool)])],
        "view": [
            ([z], {"view": View.of_shape((3, 4)).permute((1, 0))}, [z.T]),
            ([z], {"view": window}, [np.lib.stride_tricks.sliding_window_view(z.reshape(-1)[1:], 3)[:8:2]]),
            ([z], {"view": View(0, (2, 3, 4), (0, 4, 1))}, [np.stack([z, z])]),
            ([z], {"view": View(11, (2, 6), (-6, -1))}, [z.reshape(-1)[::-1].reshape(2, 6)]),
            ([z], {"view": View(2, (0, 3), (1, 1))}, [np.zeros((0, 3))]),
        ],
        "update": [([z, z[:, :2].copy()], {"view": columns}, [updated])],
        "gather": [
            ([z, index], {"axis": 0}, [z[index]]),
            ([z, ints(3, 1)], {"axis": 1}, [z[:, [3, 1]]]),
            ([x, grid], {"axis": 1}, [x[:, grid]]),
            ([z, np.asarray(ints(1)[0])], {"axis": 0}, [z[1]]),
        ],
        "scatter": [
            ([z, z[::-1][: index.size].copy(), index], {"axis": 0}, None),
            ([z, z[:, :2] + 1, ints(3, 1)], {"axis": 1}, None),
            ([z, z[0] + 1, np.asarray(ints(1)[0])], {"axis": 0}, None),
        ],
        "scatter_add": [
            ([x, index], {"axis": 1, "extent": 5}, [spread]),
            ([x, grid[:, :1].repeat(3, 1)], {"axis": 0, "extent": 3}, None),
            ([z, np.zeros((), np.int64)], {"axis": 1, "extent": 2}, None),
        ],
        "check_index": [([ints(-1, 2, -3)], {"extent": 3, "axis": 0}, [ints(2, 2, 0)])],
        "sum": reduced(np.sum) + reduced(np.sum, small),
        "prod": reduced(np.prod) + reduced(np.prod, small),
        "max": reduced(untyped(np.max)) + reduced(untyped(np.max), small),
        "min": reduced(untyped(np.min)) + reduced(untyped(np.min), small),
        "any": logical(np.any),
        "all": logical(np.all),
        "argmax": [([small], {"axis": axis}, [np.argmax(small, axis)]) for axis in range(3)],
        "argmin": [([small], {"axis": axis}, [np.argmin(small, axis)]) for axis in range(3)],
        **{
            f"cumulative_{name}": [
                ([data], {"axis": axis}, [ufunc.accumulate(data, axis, dtype=data.dtype)])
                for axis in range(3)
                for data in (x, small)
            ]
            for name, ufunc in running.items()
        },
        "gcd": [
            ([small, small.T.copy().reshape(small.shape)], {}, [np.gcd(small, small.T.reshape(small.shape))])
        ],
        **matrix_samples(),
        "fft": [
            ([z], {"axes": axes, "inverse": False}, [np.fft.fftn(z, axes=axes)])
            for z in [x + 1j * x[::-1]]
            for axes in ((0,), (1, 2))
        ],
        "rfft": [([x], {"axis": axis}, [np.fft.rfft(x, axis=axis)]) for axis in range(3)],
        "irfft": [
            ([x + 0j], {"axis": 2, "size": n}, [np.fft.irfft(x, n, norm="forward")])
            for n in (2 * x.shape[2] - 2, 2 * x.shape[2] - 1)
        ],
        "sort": [([data], {"axis": axis}, [np.sort(data, axis)]) for axis in range(3) for data in (x, small)],
        "argsort": [
            ([data], {"axis": axis}, [np.argsort(data, axis, stable=True)])
            for axis in range(3)
            for data in (x, small)
        ],
        "search_sorted": [
            ([np.sort(z[0]), x], {"side": side}, [np.searchsorted(np.sort(z[0]), x, side)])
            for side in ("left", "right")
        ],
        "matmul": [
            ([z, z.T.copy()], {}, [z @ z.T]),
            ([x, y.transpose(0, 2, 1).copy()], {}, [np.einsum("bik,bjk->bij", x, y)]),
            ([small, small.transpose(0, 2, 1).copy()], {}, None),
            ([np.ones((2, 0)), np.ones((0, 3))], {}, [np.zeros((2, 3))]),
        ],
        "random_bits": [([np.uint64(7), np.uint64(3), ints(1, 2)], {"dtype": np.dtype("uint32")}, None)],
        "fused": [([z], {"body": body, "kind": "map", "inplace": ()}, [z * z, z + z])],
        "loop": [
            (
                [np.int64(2), z, x],
                {"body": rounds, "moves": ((0, 0), (0, 12)), "rounds": 2},
                [(z + x[0]) + x[1]],
            )
        ],
        "case": [
            ([np.asarray(True), z], {"branches": (negated, doubled)}, [z + z]),
            ([np.asarray(False), z], {"branches": (negated, doubled)}, [-z]),
            ([np.asarray(2), z], {"branches": (doubled, doubled, negated)}, [-z]),
        ],
        "callback": [([z], {"id": seen}, [])],
        **image_samples(rng),
        **attention_samples(rng),
    }


def branch(op, type, count):
    """A graph that applies `op` to `count` times its only input."""
    builder = Builder()
    x = builder.input(type)
    return builder.graph([builder.emit(op, *[x] * count)])


def c_samples():
    """Python's functions of numbers in the interval where all of them are defined, and of other numbers."""
    samples = {}
    for name, op in C_FUNCTIONS.items():
        x = np.array([[0.1, 0.5], [0.75, 0.9]]) + (name == "acosh")
        operands = [x] if name in c_functions.UNARY else [x, x[::-1]]
        wanted = [getattr(math, name)(*each) for each in zip(*(x.ravel() for x in operands), strict=True)]
        samples[op.name] = [
            (operands, {}, [np.reshape(wanted, x.shape)]),
            ([np.full(2, -np.inf)] * len(operands), {}, None),
        ]
    return samples


def attention_samples(rng):
    """Two matrices of queries that share one of keys, and one for each."""
    q, k, v, ct = (rng.normal(size=s) for s in [(2, 3, 2), (1, 3, 2), (1, 3, 1), (2, 3, 1)])
    log_sums, along = rng.normal(size=(2, 2, 3))
    options = [{"scale": 0.7, "causal": causal} for causal in (False, True)]
    weights = scipy.special.softmax(0.7 * q @ k[0].T, -1)
    expected = [weights @ v[0], scipy.special.logsumexp(0.7 * q @ k[0].T, -1)]
    each, shared = rng.normal(size=(2, 3, 3)), rng.normal(size=(1, 1, 3))
    scores = 0.7 * q @ k[0].T + each
    masked = [scipy.special.softmax(scores, -1) @ v[0], scipy.special.logsumexp(scores, -1)]
    operands = [q, k, v, log_sums, along, ct]
    return {
        "attention": [
            ([q, k, v], options[0], expected),
            ([q[:1], k, v], options[1], None),
            ([q, k, v, each], options[0], masked),
            ([q, k, v, shared], options[1] | {"spread": 2}, None),
            ([q, k, v, each], options[0] | {"nan": True, "cut": True}, masked),
        ],
        "attention_gradient": [
            *((operands, {**some, "parts": 1}, None) for some in options),
            ([*operands, each], options[1] | {"parts": 1}, None),
            ([*operands, shared], options[0] | {"parts": 1, "spread": 2}, None),
            ([*operands, each], options[0] | {"parts": 1, "nan": True, "cut": True}, None),
        ],
    }


SAMPLES = samples(np.random.default_rng(0)) | c_samples()


@pytest.mark.parametrize("name", sorted(OPS.keys() - BETWEEN))
def test_operator_has_samples(name):
    assert (name in DOMAINS) != (name in SAMPLES), (
        f"declare {name} in DOMAINS (elementwise functions) or SAMPLES"
    )
    assert (name in DOMAINS) == (name in ELEMENTWISE)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_operator_equals_numpy(name):
    for inputs, attrs, expected in SAMPLES[name]:
        results = run(OPS[name], inputs, attrs)
        if expected is None:
            continue
        assert len(results) == len(expected)
        for result, wanted in zip(results, expected, strict=True):
            assert result.dtype == wanted.dtype
            if Trait.EXACT in OPS[name].traits:
                assert_equal(result, wanted)
            else:
                assert_close(result, wanted, rtol=1e-13)


def test_casts_equal_numpy():
    for (x,), attrs, _ in SAMPLES["astype"]:
        assert_equal(run(OPS["astype"], [x], attrs)[0], x.astype(attrs["dtype"]))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all"])
@pytest.mark.parametrize("length", [0, 1, 5, 12])
@pytest.mark.parametrize("pieces", [1, 2, 4, 7])
def test_combined_pieces_give_the_reduction(name, length, pieces):
    op = OPS[name]
    for dtype in sorted(op.admits, key=str):
        x = np.random.default_rng(length).integers(0, 2, (2, length)).astype(dtype)
        (parts,) = run(op, [x], {"axes": (1,), "pieces": pieces})
        assert parts.shape == (2, pieces)
        (whole,) = run(op, [parts], {"axes": (1,)})
        if length:
            assert_equal(whole, run(op, [x], {"axes": (1,)})[0])


REFUSED = [
    ("where", ["int64[2]", "float32[2]", "float32[2]"], {}, "where needs a bool condition"),
    ("where", ["bool[2]", "float32[2]", "float64[2]"], {}, "where needs operands of one dtype"),
    ("where", ["bool[2]", "float32[2]", "float32[3]"], {}, "where got arrays of different shapes"),
    ("astype", ["int64[2]"], {"dtype": np.dtype("S2")}, "astype is not defined for"),
    ("bitcast", ["int64[2]"], {"dtype": F32}, "which has another size"),
    ("bitcast", ["bool[2]"], {"dtype": np.dtype("int8")}, "bitcast is not defined for bool"),
    ("copy", ["float32"], {}, "copy needs an array"),
    ("after", ["float32[2]", "float32[2]"], {}, "after needs a bool mark"),
    ("full", ["float32[1]"], {"shape": (2,), "device": CPU}, "full needs a number on the host"),
    ("full", ["float32"], {"shape": (-1,), "device": CPU}, "extents are non-negative"),
    ("full", ["float32"], {"shape": (2,), "device": HOST}, "full creates an array"),
    ("constant", [], {"value": "one", "dtype": F32}, "constant needs a Python number, got str"),
    ("view", ["float32[3]"], {"view": View(1, (3,), (1,))}, "view .* selects elements 1 to 3 of float32"),
    ("view", ["float32"], {"view": View(0, (1,), (0,))}, "view needs an array"),
    ("update", ["float32[3]", "float32[2]"], {"view": View(0, (3,), (1,))}, "update .* expects the shape"),
    ("update", ["float32[3]", "float32[3]"], {"view": View(0, (3,), (0,))}, "update .* elements overlap"),
    (
        "update",
        ["float32[3]", "int64[3]"],
        {"view": View(0, (3,), (1,))},
        "update needs operands of one dtype",
    ),
    ("sort", ["float32[3]"], {"axis": 1}, "sort along axis 1 of .*: expected an axis from 0 to 0"),
    ("argsort", ["float32[3]"], {"axis": -1}, "argsort along axis -1 of"),
    ("gcd", ["int32[3]", "int32[2]"], {}, "gcd needs operands of one shape"),
    *[
        (op.name, ["float32[3]"] * (1 + (name in c_functions.BINARY)), {}, f"{op.name} is not defined for")
        for name, op in C_FUNCTIONS.items()
    ],
    *[
        (name, ["float32[2,3]"], attrs, f"{called} needs square matrices")
        for name, called, attrs in [
            ("cholesky", "cholesky", {}),
            ("inv", "inv", {}),
            ("slogdet", "slogdet", {}),
            ("eig", "eig", {}),
            ("eigh", "eigh", {"upper": False}),
            ("eigenvalues_hermitian", "eigh", {"upper": False}),
        ]
    ],
    ("qr", ["float32[3]"], {"complete": False}, "qr needs a matrix"),
    ("svd", ["float32[3]"], {"full": False}, "svd needs a matrix"),
    ("singular_values", ["float32[3]"], {}, "svd needs a matrix"),
    ("solve", ["float32[3,3]", "float32[2,3]"], {}, "matrices and right sides need equal rows"),
    ("fft", ["complex64[3]"], {"axes": (1,), "inverse": False}, "fft along axis 1 of"),
    ("rfft", ["float32[0]"], {"axis": 0}, "rfft along axis 0 of .*: there are no elements"),
    ("irfft", ["complex64[3]"], {"axis": 0, "size": 7}, "7 numbers have 4 coefficients"),
    ("search_sorted", ["float32[3]", "int32[2]"], {"side": "left"}, "search_sorted needs operands of one"),
    ("search_sorted", ["float32[3,1]", "float32[2]"], {"side": "left"}, "search_sorted needs a sorted array"),
    ("search_sorted", ["float32[3]", "float32[2]"], {"side": "up"}, 'side is "left" or "right"'),
    ("gather", ["float32[3]", "int32[2]"], {"axis": 0}, "gather needs an int64 index"),
    ("gather", ["float32[3]", "int64[2]"], {"axis": 1}, "gather along axis 1"),
    ("scatter", ["float32[3]", "float32[3]", "int64[2]"], {"axis": 0}, "scatter at axis 0 of"),
    ("scatter", ["float32[3]", "float64[2]", "int64[2]"], {"axis": 0}, "scatter"),
    ("scatter_add", ["float32[3]", "int64[2]"], {"axis": 0, "extent": 4}, "scatter_add at axis 0 expects"),
    ("scatter_add", ["bool[3]", "int64[3]"], {"axis": 0, "extent": 4}, "scatter_add is not defined for bool"),
    ("check_index", ["int32[3]"], {"axis": 0, "extent": 4}, "check_index needs an int64 index"),
    ("sum", ["bool[3]"], {"axes": (0,)}, "sum is not defined for bool"),
    ("sum", ["float32[3]"], {"axes": (1,)}, "sum over axes"),
    ("sum", ["float32[3,3]"], {"axes": (1, 0)}, "sum over axes .* sorted"),
    ("sum", ["float32[3]"], {"axes": (0,), "pieces": -1}, "sum into -1 pieces"),
    ("max", ["float32[0,2]"], {"axes": (0,)}, "max over axes .* no elements"),
    ("any", ["int64[3]"], {"axes": (0,)}, "any is not defined for int64"),
    ("argmax", ["float32[2,0]"], {"axis": 1}, "argmax along axis 1 .* no elements"),
    ("argmin", ["float32[2]"], {"axis": -1}, "argmin along axis -1"),
    ("cumulative_sum", ["float32[2]"], {"axis": 1}, "cumulative_sum along axis 1"),
    ("cumulative_prod", ["float32[2]"], {"axis": -1}, "cumulative_prod along axis -1"),
    ("cumulative_min", ["bool[2]"], {"axis": 0}, "cumulative_min is not defined for bool"),
    ("cumulative_max", ["complex64[2]"], {"axis": 0}, "cumulative_max is not defined for complex64"),
    ("matmul", ["float32[2,3]", "float32[2,3]"], {}, r"matmul .*last extent of the first \(3\)"),
    ("matmul", ["float32[3]", "float32[3,2]"], {}, "matmul needs at least two dimensions"),
    ("matmul", ["float32[4,2,3]", "float32[1,3,2]"], {}, "matmul .*batch"),
    ("matmul", ["float32[2,3]", "float64[3,2]"], {}, "matmul needs operands of one dtype"),
    ("random_bits", ["uint64", "uint64", "uint64[3]"], {"dtype": np.dtype("uint32")}, "int64 index"),
    (
        "random_bits",
        ["uint64", "uint64[2]", "int64[3]"],
        {"dtype": np.dtype("uint32")},
        "arrays like the index",
    ),
    ("random_bits", ["uint64", "uint64", "int64[3]"], {"dtype": F32}, "uint32 or uint64"),
    ("copy_to", ["float32[3]"], {"device": HOST}, "copy_to moves arrays between devices"),
    ("callback", ["float32[3]"], {"id": -1}, "callback -1 is unknown"),
    ("iota", [], {"size": -1, "device": CPU}, "iota got the shape"),
    ("empty", [], {"shape": (1,), "dtype": F32, "device": HOST}, "empty creates an array"),
    ("fused", ["float32[3]"], {"body": SAMPLES["fused"][0][1]["body"]}, "fused got float32"),
    (
        "loop",
        ["float64[3,4]"] * 2,
        {**SAMPLES["loop"][0][1], "rounds": 3},
        "loop: the count must be an int64 number",
    ),
    ("case", ["float32[]", "float64[3,4]"], SAMPLES["case"][0][1], "a single bool or int64"),
    ("case", ["bool[]", "float64[3]"], SAMPLES["case"][0][1], "a branch takes"),
    ("case", ["bool[]", "float64[3,4]"], SAMPLES["case"][2][1], "between 2 branches, not 3"),
    ("rounded", [], {}, "rounded takes 1 operand, got 0"),
    ("stop_gradient", [], {}, "stop_gradient takes 1 operand, got 0"),
    ("without_gradient", [], {"reason": ""}, "without_gradient takes 1 operand, got 0"),
    ("prod", ["bool[3]"], {"axes": (0,)}, "prod is not defined for bool"),
    ("min", ["int8[3]"], {"axes": (0, 0)}, "min over axes"),
    ("all", ["bool[3]", "bool[3]"], {"axes": ()}, "all takes 1 operand"),
]


PLAIN = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
POOL = {"window": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0))}
INPUT_GRADIENT, WEIGHT_GRADIENT = "conv2d_input_gradient", "conv2d_weight_gradient"
WEIGHT_SUMS = "conv2d_weight_sums"
NONE = ((0, 0), (0, 0))
ROWS, SCALE, GRADIENT = "float32[2,3,2]", {"scale": 1.0, "causal": False}, "attention_gradient"
IMAGE, KERNEL, RESULT = "float32[1,2,5,5]", "float32[3,2,3,3]", "float32[1,3,3,3]"
REFUSED += [
    ("conv2d", [IMAGE, "float32[3,1,3,3]"], PLAIN, r"the input needs groups \* 1 = 1 channels"),
    ("conv2d", [IMAGE, KERNEL], PLAIN | {"dilation": (3, 1)}, "window is larger than the padded input"),
    ("conv2d", [IMAGE, KERNEL], PLAIN | {"stride": (0, 1)}, "stride .* must be two positive"),
    ("conv2d", [IMAGE, KERNEL], PLAIN | {"padding": ((0, 0), (-1, 0))}, "padding .* none negative"),
    ("conv2d", [IMAGE, KERNEL], PLAIN | {"groups": 0}, "groups must be a positive integer, got 0"),
    ("conv2d", [IMAGE, "float32[3,2,3]"], PLAIN, "conv2d needs arrays of four dimensions"),
    ("conv2d", [IMAGE, "float64[3,2,3,3]"], PLAIN, "conv2d needs operands of one dtype"),
    ("conv2d", ["int64[1,2,5,5]", KERNEL], PLAIN, "conv2d is not defined for int64"),
    (INPUT_GRADIENT, [RESULT, KERNEL], PLAIN | {"extents": (6, 5)}, r"of shape \(1, 3, 4, 3\)"),
    (WEIGHT_GRADIENT, [IMAGE, RESULT], PLAIN | {"window": (2, 3)}, r"of shape \(1, 3, 4, 3\)"),
    (WEIGHT_SUMS, [IMAGE, RESULT], PLAIN | {"window": (2, 3), "rows": 1}, r"of shape \(1, 3, 4, 3\)"),
    (WEIGHT_SUMS, [IMAGE, RESULT], PLAIN | {"window": (3, 3), "rows": 0}, "rows must be a positive"),
    ("winograd_weights", ["float32[3,2,3,2]", IMAGE], {"transposed": False, "stride": 1}, "windows of 3 x 3"),
    ("winograd_weights", [KERNEL, IMAGE], {"transposed": False, "stride": 3}, "stride must be 1 or 2, got 3"),
    ("attention", [ROWS, ROWS, "float32[2,4,2]"], SCALE, "values as many rows as keys"),
    ("attention", [ROWS, "float32[2,0,2]", "float32[2,0,2]"], SCALE, "three dimensions, none empty"),
    ("attention", [ROWS] * 3 + ["float32[2,1,2]"], SCALE, "got the mask float32"),
    ("attention", [ROWS] * 3 + ["float32[2,1,3]"], SCALE | {"spread": 2}, "with spread 2"),
    (GRADIENT, [ROWS] * 3 + ["float32[2,4]"] * 2 + [ROWS], SCALE | {"parts": 1}, "shapes of results for"),
    (GRADIENT, [ROWS] * 3 + ["float32[2,3]"] * 2 + [ROWS], SCALE | {"parts": 4}, "4 parts of 3 keys"),
    (
        "winograd_weights",
        ["float16[3,2,3,3]"] * 2,
        {"transposed": False, "stride": 1},
        "not defined for float16",
    ),
    (
        "winograd_conv2d",
        [IMAGE, "float32[1,16,3,64]"],
        {"padding": NONE, "filters": 3, "stride": 1},
        "weights of 3 filters",
    ),
    (
        "winograd_conv2d",
        [IMAGE, "float32[1,16,2,64]"],
        {"padding": NONE, "filters": 3, "stride": 2},
        "transformed weights",
    ),
    (
        "winograd_input_gradient",
        [RESULT, "float32[1,25,3,64]"],
        {"padding": ((1, 1), (1, 1)), "extents": (7, 6), "filters": 2},
        r"of shape \(1, 3, 4, 3\)",
    ),
    (
        "winograd_input_gradient",
        [RESULT, "float32[1,25,3,64]"],
        {"padding": ((0, 2), (1, 1)), "extents": (6, 6), "filters": 2},
        "padding before the images must be 1",
    ),
    (
        "winograd_conv2d",
        ["float32[1,2,2,5]", "float32[1,16,2,64]"],
        {"padding": NONE, "filters": 3, "stride": 1},
        "window is larger than the padded input",
    ),
    ("winograd_weight_sums", [IMAGE, IMAGE], {"padding": NONE, "stride": 1}, r"of shape \(1, 2, 3, 3\)"),
    (
        "winograd_weight_gradient",
        ["float32[1,1,16,2,64]"],
        {"filters": 65, "stride": 1},
        "sums of 65 filters",
    ),
    ("max_pool", ["float32[1,2,3,1]"], POOL, "max_pool .* window .* is larger than the padded array"),
    ("max_pool", [IMAGE], POOL | {"padding": ((2, 0), (0, 0))}, "padding .* must be smaller than the window"),
    ("max_pool", [IMAGE], POOL | {"window": (2, 0)}, "window .* must be two positive integers"),
    ("max_pool_gradient", [IMAGE, RESULT], POOL, r"max_pool_gradient got .* of shape \(1, 2, 2, 2\)"),
    ("max_pool_select", [IMAGE, RESULT], POOL, "max_pool_select got arrays of different shapes"),
    ("average_pool", ["bool[1,2,5,5]"], POOL, "average_pool is not defined for bool"),
    ("average_pool_gradient", [RESULT], POOL | {"extents": (9, 6)}, r"of shape \(1, 3, 4, 3\)"),
]


def parse(text):
    dtype, _, shape = text.partition("[")
    if not shape:
        return ArrayType((), np.dtype(dtype), HOST)
    return ArrayType(tuple(int(n) for n in shape[:-1].split(",") if n), np.dtype(dtype))


@pytest.mark.parametrize(("name", "types", "attrs", "message"), REFUSED)
def test_typing_rule_refuses(name, types, attrs, message):
    with pytest.raises(TracejitError, match=message):
        OPS[name].infer(*map(parse, types), **attrs)


def test_every_other_operator_refuses_something():
    assert {name for name, *_ in REFUSED} == set(SAMPLES)


def test_index_out_of_range_is_reported_with_its_line():
    builder = Builder()
    index = builder.input(ArrayType((2,), I64))
    builder.emit(OPS["check_index"], index, location="user.py:7", extent=3, axis=1)
    with pytest.raises(
        OutOfBoundsError, match=r"(?s)index -4 is out of bounds for axis 1 .* 3; .*at user.py:7"
    ):
        evaluate_node(builder.nodes[0], [ints(0, -4)])


def test_callback_sees_the_arrays():
    seen = []
    number_of = keep_callback(seen.append)
    run(OPS["callback"], [np.arange(3.0)], {"id": number_of})
    del CALLBACKS[number_of]
    assert_equal(seen[0], np.arange(3.0))


# ---- gradients


def gradient_inputs(name, rng):
    """(inputs, attributes) at which `name` is smooth."""
    if name in DOMAINS:
        assert DOMAINS[name], f"{name} has a gradient but no domain"
        yield [rng.uniform(low, high, (2, 3)) for low, high in DOMAINS[name]], {}
        return
    for inputs, attrs, _ in SAMPLES[name]:
        if floats(inputs) and not attrs.get("pieces") and attrs.get("dtype", F64) == F64:
            yield inputs, attrs


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_equals_central_differences(name):
    rng = np.random.default_rng(3)
    cases = list(gradient_inputs(name, rng))
    assert cases
    for inputs, attrs in cases:
        if inputs[floats(inputs)[0]].dtype == F64:
            check_derivative(OPS[name], inputs, attrs, rng, order=1, tolerance=1e-7)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_second_derivative_equals_central_differences(name):
    rng = np.random.default_rng(4)
    for inputs, attrs in gradient_inputs(name, rng):
        if inputs[floats(inputs)[0]].dtype == F64 and sum(inputs[i].size for i in floats(inputs)) <= 40:
            check_derivative(OPS[name], inputs, attrs, rng, order=2, tolerance=1e-6)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_keeps_float32(name):
    rng = np.random.default_rng(5)
    inputs, attrs = next(gradient_inputs(name, rng))
    inputs = [x.astype(F32) if x.dtype == F64 else x for x in inputs]
    graph, extra = derivative_graph(OPS[name], inputs, attrs, 1)
    weights = [rng.uniform(0.5, 1.5, v.type.shape) for v in graph.inputs[len(graph.inputs) - extra :]]
    wide, _ = derivative_graph(OPS[name], [x.astype(F64) if x.dtype == F32 else x for x in inputs], attrs, 1)
    for narrow, exact in zip(
        evaluate(graph, [*inputs, *weights])[0], evaluate(wide, [*inputs, *weights])[0], strict=True
    ):
        assert_close(narrow, exact, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if n in ELEMENTWISE and OPS[n].arity == 2])
@pytest.mark.parametrize("position", [0, 1])
def test_gradient_next_to_a_number(name, position):
    op, rng = OPS[name], np.random.default_rng(6)
    inputs = [rng.uniform(low, high, (5,)) for low, high in DOMAINS[name]]
    inputs[position] = np.float64(DOMAINS[name][position][1] * 0.6)
    check_derivative(op, inputs, {}, rng, order=1, tolerance=1e-7)
    graph, _ = derivative_graph(op, inputs, {}, 2)
    for node in graph.nodes:
        if Trait.ELEMENTWISE in node.op.traits:
            assert not all(v.type.on_host for v in node.inputs), f"{node.op.name} computes from numbers alone"


def gradient_at(name, *arrays, attrs=None, literal=None):
    """The gradients of sum(op(*arrays)); `literal`, if given, is the second operand as a constant."""
    builder = Builder()
    values = [builder.input(type_of(x)) for x in arrays]
    operands = list(values)
    if literal is not None:
        with building(builder):
            operands.append(number(literal, arrays[0].dtype).value)
    output = builder.emit(OPS[name], *operands, **(attrs or {}))
    with building(builder):
        ones = number(1, output.type.dtype).full(output.type.shape, output.type.device).value
    wrt = [values[i] for i in floats(arrays)]
    gradients = reverse(builder, list(builder.nodes), output, ones, wrt)
    return [g.tolist() for g in evaluate(builder.graph(gradients), arrays)[0]]


def np_(*values):
    return np.array(values, float)


def test_gradient_conventions():
    inf = math.inf
    assert gradient_at("abs", np_(0, -2, 3)) == [[0, -1, 1]]
    assert gradient_at("maximum", np_(1, 1, 2), np_(1, 2, 1)) == [[0.5, 0, 1], [0.5, 1, 0]]
    assert gradient_at("minimum", np_(1, 1, 2), np_(1, 2, 1)) == [[0.5, 1, 0], [0.5, 0, 1]]
    assert gradient_at("hypot", np_(0, 3), np_(0, 4)) == [[0, 0.6], [0, 0.8]]
    assert gradient_at("copysign", np_(-2, 2), np_(1, 1))[0] == [-1, 1]
    assert gradient_at("logaddexp", np_(inf, -inf, -inf, 0), np_(inf, -inf, 0, inf)) == [
        [0.5, 0.5, 0, 0],
        [0.5, 0.5, 1, 1],
    ]
    assert gradient_at("max", np_(1, 3, 3), attrs={"axes": (0,)}) == [[0, 0.5, 0.5]]
    assert gradient_at("min", np_(1, 1, 3), attrs={"axes": (0,)}) == [[0.5, 0.5, 0]]
    assert gradient_at("rounded", np_(1, 2)) == [[1, 1]]
    assert gradient_at("stop_gradient", np_(1, 2)) == [[0, 0]]
    assert gradient_at("floor", np_(1.5)) == [[0]]


def test_what_has_no_gradient_says_why():
    with pytest.raises(TracejitError, match=r"it is drawn; put tj\.stop_gradient"):
        gradient_at("without_gradient", np.ones(2), attrs={"reason": "it is drawn"})


def test_gradient_of_pow_is_safe_at_zero():
    zero = np.array([0.0, 0.0, 0.0, 0.0, -2.0])
    exponents = np.array([0.0, 1.0, 2.0, 0.5, 3.0])
    assert gradient_at("pow", zero[:4], exponents[:4])[0] == [0, 1, 0, math.inf]
    assert gradient_at("pow", zero[1:4], exponents[1:4])[1] == [0, 0, 0]
    assert gradient_at("pow", zero[4:], np.float64(3))[0] == [12]
    for exponent, expected in [
        (0, [0, 0]),
        (1, [1, 1]),
        (2, [0, -4]),
        (3, [0, 12]),
        (-1, [-math.inf, -0.25]),
    ]:
        assert gradient_at("pow", np.array([0.0, -2.0]), literal=exponent) == [expected]


def test_literal_exponents_need_no_power():
    graph = Builder()
    x = graph.input(ArrayType((3,), F64))
    with building(graph):
        y = (Sym(x) ** 2).value
    reverse(graph, list(graph.nodes), y, x, [x])
    assert [n.op.name for n in graph.nodes].count("pow") == 1


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradients_of_prod_with_zeros(zeros):
    rng = np.random.default_rng(7)
    x = rng.uniform(0.5, 2, (2, 5, 2))
    x[0, :zeros, 1] = 0
    for order in (1, 2):
        check_derivative(OPS["prod"], [x], {"axes": (0, 1)}, rng, order, 1e-5)
        check_derivative(OPS["prod"], [x[0]], {"axes": (0,)}, rng, order, 1e-5)
