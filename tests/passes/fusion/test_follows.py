"""What joins a kernel without analysis: an analysis comes to the same result, and nothing is left out."""

import math

import numpy as np
import pytest

import tracejit as tj
from tests.graphs import fuse
from tests.thorough import some
from tracejit import ops
from tracejit.ir.graph import Builder
from tracejit.ir.structure import copied
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View
from tracejit.loopnest.analysis import computed
from tracejit.loopnest.build import _Tracer
from tracejit.loopnest.layout import layouts
from tracejit.passes.driver import clean
from tracejit.passes.fusion import fuse as fusion

pytestmark = pytest.mark.usefixtures("nothing_known")

SHAPES = [(6, 5), (4, 4), (1, 5), (5, 1), (3, 1, 3), (2, 3, 4), (3, 3, 3), (1, 1)]


def softmax(x, axis):
    e = tj.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def normalised(x, axis):
    centred = x - x.mean(axis=axis, keepdims=True)
    return centred / tj.sqrt((centred * centred).mean(axis=axis, keepdims=True) + 1e-5)


def gradient_of_softmax(x, axis):
    return tj.grad(lambda x: (softmax(x, axis) * x).sum())(x)


def gradient_of_normalised(x, axis):
    return tj.grad(lambda x: (normalised(x, axis) ** 2).sum())(x)


def several_results(x, axis):
    low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
    scaled = (x - low) / (high - low + 1)
    return scaled, low * 2, scaled.sum(axis=axis), tj.tanh(high) + scaled


def transposed(x, axis):
    total = x.sum(axis=axis, keepdims=True)
    return (x - total) + (total.mT if x.shape[-2:] in ((4, 4), (3, 3), (1, 1)) else total)


def flattened(x, axis):
    total = x.sum(axis=axis)
    return x - x.max(axis=axis, keepdims=True), tj.exp(total).reshape(-1) + 1


def with_positions(x, axis):
    return x.argmax(axis=axis, keepdims=True) + x, (x - x.max(axis=axis, keepdims=True)).sum(axis=axis)


def stored_in_parts(x, axis):
    """Operators between the stores of an array, and readers of the array before and after them."""
    y, n = tj.exp(x) * 2, x.shape[0]
    out = tj.zeros((2 * n, *x.shape[1:]))
    before = out[:n] + y
    out[:n] = y
    z = tj.tanh(y) + before
    out[n:] = z * y
    return out, z - y, out[:n] * z, (y + z).sum(axis=axis)


FUNCTIONS = [
    softmax, normalised, gradient_of_softmax, gradient_of_normalised, several_results, transposed, flattened,
    with_positions, stored_in_parts,
]  # fmt: skip


def graph_of(function, shape, axis):
    return clean(tj.jit(lambda x: function(x, axis)).graph(tj.spec(shape, tj.float32)))


def sizes(domain):
    return math.prod(domain.kept), bool(domain.reduced), math.prod(domain.reduced)


@pytest.mark.parametrize("shape", some(SHAPES, 3), ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_analysis_agrees(function, shape, monkeypatch):
    follows, seen = fusion._Fuser.follows, []

    def checked(self, group, node, origins):
        found = follows(self, group, node, origins)
        if found:
            body = copied(self.body(fusion.merged_nodes([group], node)))
            assert sizes(fusion.open_domain(body, computed(body))) == sizes(group.domain)
            seen.append(node.op.name)
        return found

    for axis in [*range(len(shape)), tuple(range(len(shape)))]:
        if isinstance(axis, tuple) and function is with_positions:
            continue
        graph = graph_of(function, shape, axis)
        with monkeypatch.context() as patch:
            patch.setattr(fusion._Fuser, "follows", lambda self, group, node, origins: False)
            analysed = str(fuse(graph))
        with monkeypatch.context() as patch:
            patch.setattr(fusion._Fuser, "follows", checked)
            assert str(fuse(graph)) == analysed
    if shape == (6, 5):
        assert seen


def test_softmax_takes_no_analysis_while_it_grows(monkeypatch, nothing_known):
    graph, asked = graph_of(softmax, (6, 5), 1), []
    nothing_known()
    monkeypatch.setattr(fusion, "computed", lambda body: asked.append(body) or computed(body))
    fuse(graph)
    assert not asked


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("shape", [(2, 6, 5), (1, 6, 5), (2, 1, 5), (2, 6, 1), (1, 1, 1), (0, 3, 2)], ids=str)
def test_reductions_that_no_epilogue_can_take_are_refused_at_once(shape, axis, monkeypatch):
    def products(x, w):
        y = x @ w
        z = tj.where(y > 0, y, 0)
        return z.sum(axis=axis), abs(z).mT.sum(axis=axis), (y * tj.tanh(w.sum())).mean(axis=axis)

    graph = tj.jit(products).graph(tj.spec((*shape[:2], 4), tj.float32), tj.spec((4, shape[2]), tj.float32))
    graph, missed, analysed = clean(graph), [], []
    text = str(fuse(graph, missed))
    monkeypatch.setattr(fusion, "keeps_order", lambda fold: True)
    assert text == str(fuse(graph, analysed))
    assert missed == analysed
    if (shape, axis) == ((2, 6, 5), 0):
        assert any("its own index" in each.reason for each in missed)


def test_what_does_not_change_is_analysed_once(monkeypatch, nothing_known):
    """Another batch size: the update of the weights is known, the rest is not."""

    def step(x, w, b, mu):
        y = softmax(x @ w + b, 1)
        mu[...] = 0.9 * mu + w.sum(axis=0)
        return y

    def graph(batch):
        specs = [tj.spec(s, tj.float32) for s in ((batch, 6), (6, 5), (5,), (5,))]
        return clean(tj.jit(step).graph(*specs))

    graphs, asked = [graph(batch) for batch in (7, 9, 7)], []
    nothing_known()
    analyse = fusion.analyse
    monkeypatch.setattr(fusion, "analyse", lambda *given: asked.append(given) or analyse(*given))
    counts, texts = [], []
    for each in graphs:
        asked.clear()
        texts.append(str(fuse(each)))
        counts.append(len(asked))
    assert counts[0] > counts[1] > counts[2] == 0
    assert texts[0] == texts[2] != texts[1]
    monkeypatch.setattr(fusion, "CACHE_SIZE", 2)
    fuse(graph(11))
    assert len(fusion._PROGRAMS) <= len(fusion._ANALYSES) == 2


def test_the_steps_of_a_loop_share_analyses_however_few_are_kept(monkeypatch, nothing_known):
    def loop(x, w):
        for _ in range(6):
            x = softmax(tj.tanh(x @ w).T, 1)
        return x

    graph = clean(tj.jit(loop).graph(tj.ones((5, 5)), tj.ones((5, 5))))
    asked, analyse, counts = [], fusion.analyse, []
    monkeypatch.setattr(fusion, "analyse", lambda *given: asked.append(given) or analyse(*given))
    for kept in (256, 0):
        monkeypatch.setattr(fusion, "CACHE_SIZE", kept)
        nothing_known()
        asked.clear()
        fused = fuse(graph)
        counts.append(len(asked))
    assert counts[0] == counts[1] < len(fused.nodes)
    assert not fusion._PROGRAMS
    assert not fusion._ANALYSES


@pytest.mark.parametrize("seed", range(60))
def test_a_reduction_reads_what_its_domain_was_laid_out_for(seed):
    """Its operand's place needs no composition of index maps: it is the domain's own."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 6], rng.integers(1, 5)))
    axes = tuple(
        sorted(int(a) for a in rng.choice(len(shape), rng.integers(1, len(shape) + 1), replace=False))
    )
    builder = Builder()
    x = builder.input(ArrayType(shape, np.dtype("float32")))
    finer = [part for n in shape for part in ((2, n // 2) if n % 2 == 0 and rng.integers(2) else (n,))]
    whole = builder.emit(ops.view, x, view=View.of_shape(finer))  # cuts the domain, maybe
    total = builder.emit(ops.sum, x, axes=axes, pieces=0)
    body = builder.graph([total, whole])
    (layout,) = layouts(body)
    tracer = _Tracer(body, *layout)
    node = next(node for node in body.nodes if node.op is ops.sum)
    known = tracer.operand_view(node, tracer.kept)
    if tracer.domain.reduced:
        assert known is tracer.full
    tracer.rows = None
    composed = tracer.operand_view(node, tracer.kept)
    assert known == composed
