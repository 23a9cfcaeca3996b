"""Every operator's batching rule against a loop over examples, each computed by the operator's meaning."""

import itertools
import math

import numpy as np
import pytest

from tests.ops.test_registry import SAMPLES, type_of
from tracejit.errors import ArgumentError
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Builder
from tracejit.ir.op import OPS, Trait
from tracejit.ir.types import BFLOAT16, CPU, ArrayType
from tracejit.ir.verify import verify
from tracejit.ops.batching import batch, maps, rule_of

SIZE = 3
REFUSED = {
    "fused": "compiled",
    "loop": "compiled",
    "case": "compiled",
    "callback": "each example separately",
    **dict.fromkeys((name for name in OPS if name.startswith("winograd_")), "compiled"),
    "conv2d_weight_sums": "compiled",
    **dict.fromkeys(("constant", "empty", "full", "iota"), "numbers"),
}
"""Operators that cannot be batched, or of which no operand is mapped."""


def another(x, rng):
    """An array like `x`, as another example of it: the same elements, in another place."""
    return rng.permutation(x.reshape(-1)).reshape(x.shape) if x.dtype.kind != "f" else x * rng.uniform(0.9, 1)


def examples_of(name, x, position, rng):
    """A few operands like `x`, one for each example."""
    if name in ("cholesky", "eigh", "eigenvalues_hermitian", "search_sorted") and position == 0:
        return [x, 2 * x, 3 * x] if x.dtype.kind in "fc" else [x, x, x]
    return [x, *(another(x, rng) for _ in range(SIZE - 1))]


def close(name, result, expected):
    op = OPS[name]
    assert result.dtype == expected.dtype
    if result.dtype == BFLOAT16:  # NumPy does not know that its nan are nan
        result, expected = result.astype(np.float32), expected.astype(np.float32)
    if Trait.EXACT in op.traits and result.dtype.kind != "c":
        np.testing.assert_array_equal(result, expected)
    else:
        single = result.dtype in (np.float32, np.complex64)
        np.testing.assert_allclose(
            result, expected, rtol=2e-4 if single else 1e-9, atol=1e-5 if single else 1e-9
        )


@pytest.mark.parametrize("name", sorted(OPS))
def test_operator_has_a_batching_rule(name):
    """A new operator needs one: see `tracejit.ops.batching`."""
    assert rule_of(OPS[name]) is not None


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - set(REFUSED)))
def test_batch_is_a_loop_over_examples(name):
    op, rng = OPS[name], np.random.default_rng(5)
    for inputs, attrs, *_ in SAMPLES[name]:
        arrays = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray)]
        for mapped in itertools.chain.from_iterable(
            itertools.combinations(arrays, n) for n in range(1, len(arrays) + 1)
        ):
            given = [
                examples_of(name, x, i, rng) if i in mapped else [x] * SIZE for i, x in enumerate(inputs)
            ]
            check(op, given, mapped, attrs)


def check(op, given, mapped, attrs):
    wanted = []
    for example in zip(*given, strict=True):
        with np.errstate(all="ignore"):
            result = op.evaluate(*example, **attrs)
        wanted.append(result if isinstance(result, tuple) else (result,))
    flags = [i in mapped for i in range(len(given))]
    whole = [np.stack(xs) if flag else xs[0] for xs, flag in zip(given, flags, strict=True)]
    results = batched(op, [xs[0] for xs in given], whole, flags, attrs, SIZE)
    for result, expected in zip(results, zip(*wanted, strict=True), strict=True):
        close(op.name, result, np.stack(expected) if maps(op, flags) else np.asarray(expected[0]))


def batched(op, example, whole, flags, attrs, size):
    """The operator on a batch, by its rule."""
    one = Builder()
    one.emit(op, *[one.input(type_of(x)) for x in example], **attrs)
    builder = Builder()
    values = [builder.input(type_of(x)) for x in whole]
    results = batch(builder, one.nodes[-1], values, flags, size)
    for result, value in zip(results, one.nodes[-1].outputs, strict=True):
        lead = (size,) if maps(op, flags) else ()
        assert result.type == ArrayType((*lead, *value.type.shape), value.type.dtype, value.type.device)
    return evaluate(verify(builder.graph(results)), whole)[0]


@pytest.mark.parametrize("name", ["sum", "matmul", "sort", "conv2d", "gather", "svd"])
def test_no_examples_give_empty_arrays(name):
    for inputs, attrs, *_ in SAMPLES[name]:
        whole = [np.empty((0, *x.shape), x.dtype) for x in inputs]
        for result in batched(OPS[name], inputs, whole, [True] * len(inputs), attrs, 0):
            assert result.shape[0] == 0


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refusals_say_why(name):
    with pytest.raises(ArgumentError, match=REFUSED[name]):
        rule_of(OPS[name])(None)


@pytest.mark.parametrize(("mapped", "products"), [((0,), 1), ((1,), 1), ((0, 1), SIZE)])
def test_products_with_one_matrix_are_one_product(mapped, products):
    """Rows, or columns, of all examples stand in one matrix, also within a batch of matrices."""
    shapes = [(4, 5, 6), (4, 6, 7)]
    builder, one = Builder(), Builder()
    flags = [i in mapped for i in range(2)]
    f32 = np.dtype("float32")
    one.emit(OPS["matmul"], *[one.input(ArrayType(s, f32, CPU)) for s in shapes])
    values = [
        builder.input(ArrayType(((SIZE,) if m else ()) + s, f32, CPU))
        for s, m in zip(shapes, flags, strict=True)
    ]
    batch(builder, one.nodes[0], values, flags, SIZE)
    (product,) = [node for node in builder.nodes if node.op.name == "matmul"]
    assert math.prod(product.output.type.shape[:-2]) == 4 * products
