"""The text form that is kept: nothing is lost, and nothing else is read."""

import pathlib

import numpy as np
import pytest

from tests.golden import check_golden
from tests.graphs import random_graph
from tests.ops.test_registry import ELEMENTWISE, SAMPLES, operands, type_of
from tracejit.errors import ArgumentError, ShapeError, TracejitError
from tracejit.ir.extents import fit, monomials, parse
from tracejit.ir.graph import Builder, Effect, constant_of
from tracejit.ir.op import OPS
from tracejit.ir.structure import structure
from tracejit.ir.text import parse_graph, write, write_graph
from tracejit.ir.types import HOST, ArrayType, Device
from tracejit.ir.view import View
from tracejit.ops import add, callback, constant, full, fused, gather, update, view
from tracejit.ops.structural import CALLBACKS, keep_callback

F4, I8 = np.dtype("float32"), np.dtype("int64")


def nodes_of(name):
    """Operands and attributes of some nodes of an operator."""
    if name in SAMPLES:
        return [(inputs, attrs) for inputs, attrs, *_ in SAMPLES[name]]
    dtypes = sorted(OPS[name].admits, key=str)
    with np.errstate(all="ignore"):  # samples are beyond the largest half numbers
        return [(operands(OPS[name], dtype, np.random.default_rng(0)), {}) for dtype in dtypes]


def read_back(graph):
    """The graph that the text of `graph` says, after comparing the two."""
    text = write_graph(graph)
    again = parse_graph(text, {})
    assert write_graph(again) == text
    assert [v.type for n in again.nodes for v in n.outputs] == [
        v.type for n in graph.nodes for v in n.outputs
    ]
    assert write_graph(parse_graph(text)) == text  # without typing rules
    return again


@pytest.mark.parametrize("name", sorted({*SAMPLES, *ELEMENTWISE}))
def test_every_operator_comes_back(name):
    builder, results = Builder(), []
    for inputs, attrs in nodes_of(name):
        values = [builder.input(type_of(x)) for x in inputs]
        result = builder.emit(OPS[name], *values, location="a b.py:3", **attrs)
        results += result if isinstance(result, tuple) else (result,)
    read_back(builder.graph(results))


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_come_back(seed):
    graph = random_graph(seed)
    assert structure(read_back(graph), locations=True) == structure(graph, locations=True)


def example():
    """A graph with all kinds of attributes, effects and nested graphs."""
    inner = Builder()
    x = inner.input(ArrayType((2, 3), F4))
    body = inner.graph([inner.emit(add, x, x, location='say "hi".py:1')])
    b = Builder()
    a, n = b.input(ArrayType((2, 3), F4)), b.input(ArrayType((), F4, HOST))
    (two,) = b.emit(fused, a, body=body, kind="map", inplace=((0, 0),))
    turned = b.emit(view, two, location="net.py:7", view=View(2, (3, 2), (-1, 3)))
    seen = b.emit(view, turned, view=View(0, (4, 3), (0, 2), False))
    for value, dtype in [(-0.0, "float32"), (float("nan"), "float64"), (float("-inf"), "float32"),
                         (1e-300, "float64"), (-(2**63), "int64"), (2**64 - 1, "uint64"), (True, "bool"),
                         (1.5 - 2j, "complex64"), (complex("nan"), "complex128")]:  # fmt: skip
        b.emit(constant, **constant_of(value, np.dtype(dtype)))
    b.emit(full, n, shape=(), device=Device("gpu", 1))
    changed = b.emit(
        update, a, b.emit(view, seen, view=View(0, (1, 3), (3, 1))), view=View(3, (1, 3), (3, 1))
    )
    return b.graph([turned, seen, a], [Effect(a, changed)])


def test_text_of_all_kinds_of_attributes():
    read_back(example())
    check_golden(pathlib.Path(__file__).parent / "golden" / "text.txt", write_graph(example()))


def test_a_callback_has_text_as_long_as_its_function_is_kept():
    number = keep_callback(print)
    b = Builder()
    b.emit(callback, b.input(ArrayType((2,), F4)), id=number)
    try:
        read_back(b.graph([]))
    finally:
        del CALLBACKS[number]


def test_attributes_that_are_no_data_are_refused():
    with pytest.raises(ArgumentError, match="type object is not plain data"):
        write((1, object()))


def test_named_extents_are_filled_in():
    text = """graph(%0: float32[batch,2*n + 1]) {
      %1: float32[2*n + 1,batch] = view(%0) [view=0+[2*n + 1,batch]:[1,2*n + 1]]
      %2: float64 = constant() [value=quotient(batch,batch - 1), dtype=float64]
      %3: int64[div(n*n - n,2)] = iota() [size=div(n*n - n,2), device=cpu:0]
      return %1, %3
    }"""
    graph = parse_graph(text, {"batch": 5, "n": 3})
    turned, size = graph.outputs
    assert turned.type.shape == (7, 5)
    assert size.type.shape == (3,)
    assert graph.nodes[1].attrs["value"] == 1.25
    named = write_graph(parse_graph(text))
    assert "float32[2*n + 1,batch] = view" in named
    assert write_graph(parse_graph(named, {"batch": 5, "n": 3})) == write_graph(graph)
    with pytest.raises(ArgumentError, match="n is no extents"):
        parse_graph(text, {"batch": 5})


BROKEN = {
    "graph(%0: float32[3]) { return %1 }": "line 1: expected a value that was defined before",
    "graph(%0: bool[3]) {\n  %1: bool[4] = logical_not(%0)\n return %1 }": r"line 3.*types \['bool\[3\]'\]",
    "graph(%0: float32[3]) {\n  %2: float32[3] = negative(%0)\n return }": "definition of %1",
    "graph(%0: float32[3]) {\n  %1: float32[3] = dance(%0)\n return }": "line 2: expected an operator of",
    "graph(%0: float32[3]) { %1: float32[3] = negative(%0) [axis=1] return }": "attributes of negative",
    "graph(%0: float32[-3]) { return }": "negative extent",
    "graph(%0: float128[3]) { return }": "expected a dtype",
    "graph(%0: float32[3]) { return } graph": "expected the end, found graph",
    "graph(%0: float32[3]) { return": "ends where '}'|ends where a value",
    "graph(%0: float32[3]) { return %0 %0 }": "expected ','",
    "graph(%0: float32[3]) { ; }": "line 1 is no text of a graph",
    "graph(%0: float32[" + "9" * 50 + "]) { return }": "at most 40 digits",
    "": "ends where 'graph'",
}


@pytest.mark.parametrize("text", BROKEN)
def test_text_that_is_not_written_so_is_refused(text):
    with pytest.raises(ArgumentError, match=BROKEN[text]):
        parse_graph(text, {})


def test_typing_rules_are_run():
    text = "graph(%0: float32[3], %1: float32[4]) { %2: float32[3] = add(%0, %1) return %2 }"
    with pytest.raises(ShapeError, match="add got arrays of different shapes"):
        parse_graph(text, {})
    text = "graph(%0: float32[3], %1: int64[2]) { %2: float32[2] = gather(%0, %1) [axis=7] return %2 }"
    with pytest.raises(TracejitError, match="gather along axis 7"):
        parse_graph(text, {})
    assert gather.name == "gather"


def test_polynomials():
    n, batch = parse("n"), parse("batch")
    assert str(n * n * 2 + batch * n + -1) == "batch*n + 2*n*n - 1"
    assert (n * batch).at({"n": 3, "batch": 4}) == 12
    assert str(parse("3 + 2*n - n")) == "n + 3"
    points = [{"batch": b, "n": k} for b, k in [(2, 3), (5, 7), (11, 2), (3, 13), (17, 5), (7, 11), (1, 1),
                                               (13, 4), (6, 9), (10, 8)]]  # fmt: skip
    cube = [p["batch"] * p["n"] ** 2 - 3 for p in points]
    assert str(fit(points, cube, monomials(["batch", "n"]))) == "batch*n*n - 3"
    assert fit(points, [p["n"] // 2 for p in points], monomials(["batch", "n"])) is None
    with pytest.raises(ShapeError, match="not an integer for n=3"):
        (n * parse("m") * parse("1") + 0).at({"n": 3, "m": 1}) and fit(
            [{"n": 0}, {"n": 2}], [0, 1], [(), ("n",)]
        ).at({"n": 3})


@pytest.mark.parametrize("text", ["", "n m", "2*", "n*n", "-", "quotient", "2.5", "n+*2"])
def test_extents_that_cannot_be_read(text):
    with pytest.raises(ArgumentError, match="extent"):
        parse(text)
