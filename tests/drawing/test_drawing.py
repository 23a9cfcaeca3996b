"""Pictures of graphs: what they show; every edge goes down, nothing overlaps, and the files are valid."""

import itertools
import pathlib
import xml.etree.ElementTree

import pytest

import tracejit as tj
from tests.golden import check_golden
from tests.graphs import random_graph
from tracejit.drawing.layout import MAX_SPAN, lay_out
from tracejit.drawing.picture import PictureNames, by_function, by_kernel, by_line
from tracejit.drawing.user_lines import Line, line_of
from tracejit.errors import ArgumentError
from tracejit.passes.driver import optimize

GOLDEN = pathlib.Path(__file__).parent / "golden"


def step(params, x, y, rate):
    def loss_of(params):
        hidden = tj.tanh(x @ params["w1"])
        return ((hidden @ params["w2"] - y) ** 2).mean()

    loss, gradients = tj.value_and_grad(loss_of)(params)
    for name, gradient in gradients.items():
        params[name] -= rate * gradient
    return loss


ARGUMENTS = {"w1": tj.spec((6, 5)), "w2": tj.spec((5, 3))}, tj.spec(("n", 6)), tj.spec(("n", 3)), 0.1


@pytest.fixture(scope="module")
def graph():
    return tj.export(step, *ARGUMENTS)


def outline(picture):
    """A picture as text: its boxes by number, and what each comes after."""
    number = {box: i for i, box in enumerate(picture.boxes)}
    lines = []
    for box, i in number.items():
        after = [str(number[a]) for a, b in picture.edges if b is box]
        lines.append(
            f"{i}: {box.kind} | {box.title} | {box.subtitle}" + f" after {', '.join(after)}" * bool(after)
        )
        lines += [f"     {left:30s} {right}".rstrip() for left, right in box.rows]
    return "\n".join(lines)


def test_what_is_shown(graph):
    drawing = graph.draw(n=16)
    whole, inside = by_function(drawing._recorded, "step")
    texts = [outline(p) for p in (drawing._recorded, drawing._kernels, whole)]
    check_golden(GOLDEN / "step.txt", "\n\n".join(texts))
    assert [box.title for box, _ in inside] == ["1. loss_of", "2. step"]


def check_layout(picture):
    layout = lay_out(picture)
    rooms = [*layout.rectangles, *(p for path in layout.edges for p in path[1:-1])]
    for a, b in itertools.combinations(rooms, 2):
        apart = a.layer != b.layer or a.x + a.width <= b.x + 1e-6 or b.x + b.width <= a.x + 1e-6
        assert apart, (a, b)
    for place in rooms:
        assert 0 <= place.x <= layout.width - place.width + 1e-6
        assert place.y + place.height <= place.floor + 1e-6
    for path in layout.edges:
        assert path[-1].layer - path[0].layer <= MAX_SPAN
        for a, b in itertools.pairwise(path):
            assert b.layer == a.layer + 1
            assert b.y >= a.floor


def test_nothing_overlaps(graph):
    drawing = graph.draw()
    check_layout(drawing._recorded)
    check_layout(drawing._kernels)
    for seed in range(15):
        random = random_graph(seed)
        names = PictureNames([f"x{i}" for i in range(len(random.inputs))], ["y"] * len(random.outputs))
        lines = by_line(random, names, lambda place: Line("f", f"line {place}"))
        check_layout(lines)
        check_layout(by_function(lines, "f")[0])
        check_layout(by_kernel(optimize(random), names))


def test_an_edge_over_many_layers_begins_at_a_card():
    def deep(x):
        first = h = x * 2
        for _ in range(MAX_SPAN + 2):
            h = tj.tanh(h)
            h = tj.exp(h)
        return h + first

    picture = tj.export(deep, tj.spec(3)).draw()._recorded
    check_layout(picture)
    (link,) = [p for p in lay_out(picture).rectangles if p.box.kind == "link"]
    assert link.box.rows == [("from 1. first = h = x * 2", "")]


def test_files(graph, tmp_path):
    for name in ("net.svg", "net.html"):
        graph.draw(tmp_path / name)
    root = xml.etree.ElementTree.parse(tmp_path / "net.svg").getroot()
    shown = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "4. params[name] -= rate * gradient" in shown
    assert "float32[n, 6]" in shown
    assert "float32[64, 6]" in shown
    page = (tmp_path / "net.html").read_text()
    assert page.count("<details") == page.count("</details>") == 5
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")  # it needs nothing from elsewhere
    with pytest.raises(ArgumentError, match=r"net\.png must end in \.svg or \.html"):
        graph.draw("net.png")


def test_lines_are_kept_with_a_graph(graph, tmp_path, monkeypatch):
    graph.save(tmp_path / "graph")
    monkeypatch.setattr("tracejit.drawing.user_lines.linecache.getline", lambda *_: "")
    assert tj.load_graph(tmp_path / "graph").draw().svg == graph.draw().svg


def test_traced_functions_are_drawn(tmp_path):
    def scale(params, rate):
        params["w"] *= rate
        return params["w"] + 1

    traced = tj.jit(scale)
    with pytest.raises(ArgumentError, match="scale has no graph yet; call it first, or give arguments"):
        traced.draw()
    drawing = traced.draw(tmp_path / "step.svg", {"w": tj.spec(3)}, 0.1)
    assert (tmp_path / "step.svg").read_text() == drawing.svg == traced.draw().svg
    for name in ("params[&#x27;w&#x27;]", "rate", "returned", "written"):
        assert name in drawing.svg
    assert drawing._repr_html_().startswith("<style>")
    assert drawing._repr_svg_() == drawing.svg


def test_a_notebook_shows_a_graph(graph):
    assert "<details" in graph._repr_html_()
    assert graph._repr_svg_().startswith("<svg")


def test_names_of_what_a_function_reaches():
    weight = tj.ones(2)
    traced = tj.jit(lambda x, n: (x[1:] * weight + tj.random.uniform(shape=2)) * (n + 1))
    traced.warm(tj.ones(3), 2)
    shown = outline(traced.draw()._recorded)
    for name in ("x ", "weight", "random numbers", "(n + (1))"):
        assert f"     {name}" in shown


def test_sources():

    first = step.__code__.co_firstlineno
    assert line_of(f"{__file__}:{first + 2}") == Line("loss_of", 'hidden = tj.tanh(x @ params["w1"])')
    assert line_of(None) == Line("", "")
