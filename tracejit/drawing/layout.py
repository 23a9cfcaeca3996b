"""Layout of a picture's boxes: in layers from top to bottom, so that every edge goes down.

Source of the method: Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
structures", 1981. Layers are longest paths from above; what has no predecessor stands just above what needs
it. Edges over several layers go through points in between; the order in a layer is that of the mean places of
neighbours, swept down and up; then places are moved towards neighbours as far as there is room.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tracejit.drawing.picture import Box, Picture

CHARACTER = 7.25  # width of one, at 12 pixels
ROW, PAD, HEAD, SUB = 17, 10, 20, 16
GAP_X, GAP_Y, POINT = 28, 46, 14
SWEEPS = 12
FAR = 8  # layers over which an edge is drawn


@dataclass(eq=False)
class Rectangle:
    """A rectangle of the layout: a box, or room for an edge (without one). `floor` is the bottom of its
    layer.
    """

    box: Box | None
    width: float
    height: float
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    floor: float = 0.0


Near = dict[Rectangle, list[Rectangle]]
"""The neighbours of places, above or below."""


@dataclass(eq=False)
class Layout:
    """Places of boxes, and edges as sequences of places."""

    places: list[Rectangle]
    edges: list[list[Rectangle]]
    width: float
    height: float


def size_of(box: Box) -> tuple[float, float]:
    """Width and height of a box, by its text."""
    rows = max((len(left) + len(right) + 3 * bool(left and right) for left, right in box.rows), default=0)
    width = max(rows, len(box.title) * 1.1, len(box.subtitle) * 0.92) * CHARACTER + 2 * PAD
    height = HEAD * bool(box.title) + SUB * bool(box.subtitle) + ROW * len(box.rows) + 1.4 * PAD
    return max(width, 60.0), height


def lay_out(picture: Picture) -> Layout:
    """The layout of a picture."""
    places = {box: Rectangle(box, *size_of(box)) for box in picture.boxes}
    edges = [(places[a], places[b]) for a, b in picture.edges]
    order = list(places.values())
    _assign_layers(order, edges)
    edges = _with_links(order, edges)
    paths = [_path(a, b) for a, b in edges]
    layers: list[list[Rectangle]] = [[] for _ in range(max((p.layer for p in order), default=0) + 1)]
    for place in (*order, *(p for path in paths for p in path[1:-1])):
        layers[place.layer].append(place)
    above: dict[Rectangle, list[Rectangle]] = {}
    below: dict[Rectangle, list[Rectangle]] = {}
    for path in paths:
        for a, b in itertools.pairwise(path):
            above.setdefault(b, []).append(a)
            below.setdefault(a, []).append(b)
    _order(layers, above, below)
    _place(layers, above, below)
    left = min((p.x for layer in layers for p in layer), default=0.0)
    for layer in layers:
        for place in layer:
            place.x -= left
    width = max((p.x + p.width for layer in layers for p in layer), default=0.0)
    height = max((p.y + p.height for p in order), default=0.0)
    return Layout(order, paths, width, height)


def _assign_layers(order: Sequence[Rectangle], edges: Sequence[tuple[Rectangle, Rectangle]]) -> None:
    """Layers from above. In the order of the boxes every edge goes forward."""
    above: Near = {}
    below: Near = {}
    for a, b in edges:
        above.setdefault(b, []).append(a)
        below.setdefault(a, []).append(b)
    for place in order:
        place.layer = max((a.layer for a in above.get(place, ())), default=-1) + 1
    for place in order:
        if place not in above and place in below:
            place.layer = min(b.layer for b in below[place]) - 1


def _with_links(
    order: list[Rectangle], edges: Sequence[tuple[Rectangle, Rectangle]]
) -> list[tuple[Rectangle, Rectangle]]:
    """Edges over many layers (from a forward pass to the end of a backward pass, say) begin at a card that
    says where they come from.
    """
    near: list[tuple[Rectangle, Rectangle]] = []
    far: Near = {}
    for a, b in edges:
        if b.layer - a.layer <= FAR:
            near.append((a, b))
        else:
            far.setdefault(b, []).append(a)
    for b, sources in far.items():
        box = Box("link", "", rows=[(f"from {a.box.title}", "") for a in sources if a.box is not None])
        order.append(Rectangle(box, *size_of(box), layer=b.layer - 1))
        near.append((order[-1], b))
    return near


def _path(a: Rectangle, b: Rectangle) -> list[Rectangle]:
    between = [Rectangle(None, POINT, 0.0, layer) for layer in range(a.layer + 1, b.layer)]
    return [a, *between, b]


def _order(layers: list[list[Rectangle]], above: Near, below: Near) -> None:
    """The order in each layer, by the mean places of neighbours."""
    rank: dict[Rectangle, float] = {}
    for layer in layers:
        _rank(layer, rank)
    for sweep in range(SWEEPS):
        near = below if sweep % 2 else above
        for layer in reversed(layers) if sweep % 2 else layers:
            wanted = {p: _mean([rank[q] for q in near.get(p, ())], rank[p]) for p in layer}
            layer.sort(key=wanted.__getitem__)
            _rank(layer, rank)


def _rank(layer: list[Rectangle], rank: dict[Rectangle, float]) -> None:
    """Note where places stand in their layer, from 0 to 1."""
    for i, place in enumerate(layer):
        rank[place] = (i + 0.5) / len(layer)


def _mean(values: list[float], other: float) -> float:
    return sum(values) / len(values) if values else other


def _place(layers: list[list[Rectangle]], above: Near, below: Near) -> None:
    """Coordinates: rows of layers, and in each of them towards the neighbours."""
    y = 0.0
    for layer in layers:
        height = max((p.height for p in layer), default=0.0)
        x = 0.0
        for place in layer:
            place.x, x = x, x + place.width + GAP_X
            place.y, place.floor = y, y + height
            if place.box is not None and not above.get(place):
                place.y = y + height - place.height  # a card stands near what needs it
        y += height + GAP_Y
    for sweep in range(SWEEPS):
        for layer in reversed(layers) if sweep % 2 else layers:
            wanted = []
            for place in layer:
                near = [*above.get(place, ()), *below.get(place, ())]
                if sweep < SWEEPS - 2:
                    near = (below if sweep % 2 else above).get(place, [])
                middle = _mean([q.x + q.width / 2 for q in near], place.x + place.width / 2)
                wanted.append(middle - place.width / 2)
            _spread(layer, wanted)


def _spread(layer: list[Rectangle], wanted: list[float]) -> None:
    """Places in this order, without overlap, as near as may be to where they are wanted: neighbours that
    would overlap are one block, which stands at the mean of what its members want.
    """
    blocks: list[list[float]] = []  # start, total of (wanted - offset), count, width
    for place, want in zip(layer, wanted, strict=True):
        blocks.append([want, want, 1.0, place.width + GAP_X])
        while len(blocks) > 1 and blocks[-2][0] + blocks[-2][3] > blocks[-1][0]:
            _, total, count, width = blocks.pop()
            last = blocks[-1]
            last[1] += total - count * last[3]
            last[2] += count
            last[3] += width
            last[0] = last[1] / last[2]
    x, block, left = 0.0, iter(blocks), 0.0
    for place in layer:
        if left <= 0:
            x, _, left, _ = next(block)
        place.x, x, left = x, x + place.width + GAP_X, left - 1
