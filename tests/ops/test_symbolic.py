"""Symbolic values: what the operators and methods append to the ambient builder."""

import numpy as np
import pytest

import tracejit.ops
from tracejit.errors import DTypeError, VerificationError
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Builder
from tracejit.ir.op import OPS, Op
from tracejit.ir.types import CPU, HOST, ArrayType
from tracejit.ops import add, multiply, sin, where
from tracejit.ops.symbolic import Operator, Sym, building, dense, full_like, literal, number, pull_back

F32, F64 = np.dtype("float32"), np.dtype("float64")


def symbols(builder, *shapes, dtype=F64):
    return [Sym(builder.input(ArrayType(shape, dtype))) for shape in shapes]


@pytest.mark.parametrize(
    ("rule", "oracle"),
    [
        (lambda x, y: x + y * 2 - 1, lambda x, y: x + y * 2 - 1),
        (lambda x, y: 1 - x / y, lambda x, y: 1 - x / y),
        (lambda x, y: 3 / -x, lambda x, y: 3 / -x),
        (lambda x, y: 2 + 3 * x**2, lambda x, y: 2 + 3 * x**2),
        (lambda x, y: where(x < y, x, 0), lambda x, y: np.where(x < y, x, 0)),
        (lambda x, y: where(x >= 0.5, 1, y), lambda x, y: np.where(x >= 0.5, 1, y)),
        (lambda x, y: where(x > y, 1, -y), lambda x, y: np.where(x > y, 1, -y)),
        (lambda x, y: (x <= y).astype(F64), lambda x, y: (x <= y) * 1.0),
        (lambda x, y: x @ y.mT, lambda x, y: x @ y.T),
        (lambda x, y: x.sum((1, 0)), lambda x, y: x.sum()),
        (lambda x, y: x.sum(()), lambda x, y: x),
        (lambda x, y: x.sum((0,)).spread((0,), (5, 3)), lambda x, y: np.tile(x.sum(0), (5, 1))),
        (lambda x, y: x.reshape((3, 2)).flip(1), lambda x, y: x.reshape(3, 2)[:, ::-1]),
        (lambda x, y: x.permute((1, 0)), lambda x, y: x.T),
        (lambda x, y: full_like(x, 4), lambda x, y: np.full(x.shape, 4.0)),
        (lambda x, y: sin(x), lambda x, y: np.sin(x)),
    ],
)
def test_symbolic_expressions_mean_what_numpy_means(rule, oracle):
    builder = Builder()
    x, y = symbols(builder, (2, 3), (2, 3))
    with building(builder):
        result = rule(x, y)
    arrays = list(np.random.default_rng(0).uniform(0.1, 1, (2, 2, 3)))
    np.testing.assert_allclose(evaluate(builder.graph([result.value]), arrays)[0][0], oracle(*arrays))


def test_numbers_take_the_dtype_of_the_operand():
    builder = Builder()
    (x,) = symbols(builder, (2,), dtype=F32)
    with building(builder, "user.py:3"):
        y = 0.1 * x
    constant, product = builder.nodes
    assert constant.attrs == {"value": float(np.float32(0.1)), "dtype": F32}
    assert constant.output.type.on_host
    assert (product.op, product.location) == (multiply, "user.py:3")
    assert y.dtype == F32


def test_views_that_change_nothing_emit_nothing():
    builder = Builder()
    (x,) = symbols(builder, (2, 3))
    with building(builder):
        assert x.reshape((2, 3)) is x
        assert x.astype(F64) is x
        assert x.permute((0, 1)) is x
    assert builder.nodes == []


def test_scopes_nest_and_end():
    outer, inner = Builder(), Builder()
    (x,), (y,) = symbols(outer, (2,)), symbols(inner, (2,))
    with building(outer):
        with building(inner):
            add(y, y)
        add(x, x)
    assert (len(outer.nodes), len(inner.nodes)) == (1, 1)
    with pytest.raises(VerificationError, match="inside `with building"):
        add(x, x)


def test_literal_and_dense():
    builder = Builder()
    (x,) = symbols(builder, (2,))
    runtime = Sym(builder.input(ArrayType((), F64, HOST)))
    with building(builder):
        three = number(3, F64)
        assert literal(three) == 3.0
        assert literal(runtime) is None
        assert literal(x) is None
        assert dense(x, x) is x
        spread = dense(runtime, x)
        with pytest.raises(VerificationError, match="which dtype 3 has"):
            number(3, None)
    assert spread.type == ArrayType((2,), F64, CPU)


def test_type_errors_carry_the_location():
    builder = Builder()
    (x,), (y,) = symbols(builder, (2,)), symbols(builder, (2,), dtype=F32)
    with building(builder, "user.py:9"), pytest.raises(DTypeError, match=r"(?s)add needs .*at user.py:9"):
        add(x, y)


def test_pull_back_refuses_a_wrong_rule():
    wrong = Op("wrong", lambda x: x, np.copy, lambda node, cts: [cts[0].sum((0,))])
    builder = Builder()
    (x,) = symbols(builder, (2,))
    builder.emit(wrong, x.value)
    with pytest.raises(VerificationError, match=r"gradient rule of wrong returns float64\[\] for an input"):
        pull_back(builder, builder.nodes[0], [x.value])
    assert pull_back(
        builder, builder.nodes[0].__class__(OPS["floor"], (x.value,), (x.value,)), [x.value]
    ) == [None]


def test_all_operators_can_be_applied_and_are_found_by_name():
    for name, op in OPS.items():
        assert isinstance(op, Operator)
        assert getattr(tracejit.ops, name) is op
    with pytest.raises(AttributeError, match="no operator 'sinus'"):
        _ = tracejit.ops.sinus
