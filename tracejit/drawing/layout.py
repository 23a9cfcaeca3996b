"""Layered layout of a picture, from top to bottom, so that every edge points down.

Source of the method: Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
structures", 1981. The layer of a box is the length of the longest path to it; a box without predecessors is
in the layer above its first successor. Edges over several layers pass through intermediate points. Each layer
is sorted by the mean ranks of neighbours, in sweeps down and up. Finally boxes are moved towards their
neighbours without overlap.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tracejit.drawing.picture import Box, Picture

CHARACTER_WIDTH = 7.25  # pixels, at a font size of 12
ROW, PAD, HEAD, SUB = 17, 10, 20, 16
GAP_X, GAP_Y, POINT = 28, 46, 14
SWEEPS = 12
MAX_SPAN = 8  # maximum number of layers that an edge spans; longer ones become links


@dataclass(eq=False)
class Rectangle:
    """A rectangle of the layout: a box, or, if `box` is None, a point through which an edge passes.

    floor: the bottom of its layer.
    """

    box: Box | None
    width: float
    height: float
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    floor: float = 0.0


Neighbours = dict[Rectangle, list[Rectangle]]
"""The neighbours of rectangles in the layers above or below."""


@dataclass(eq=False)
class Layout:
    """The rectangles of boxes, and edges as sequences of rectangles."""

    rectangles: list[Rectangle]
    edges: list[list[Rectangle]]
    width: float
    height: float


def size_of(box: Box) -> tuple[float, float]:
    """The width and height of a box, determined by its text."""
    rows = max((len(left) + len(right) + 3 * bool(left and right) for left, right in box.rows), default=0)
    width = max(rows, len(box.title) * 1.1, len(box.subtitle) * 0.92) * CHARACTER_WIDTH + 2 * PAD
    height = HEAD * bool(box.title) + SUB * bool(box.subtitle) + ROW * len(box.rows) + 1.4 * PAD
    return max(width, 60.0), height


def lay_out(picture: Picture) -> Layout:
    """Compute the layout of a picture."""
    rectangles = {box: Rectangle(box, *size_of(box)) for box in picture.boxes}
    edges = [(rectangles[a], rectangles[b]) for a, b in picture.edges]
    all_rectangles = list(rectangles.values())
    _assign_layers(all_rectangles, edges)
    edges = _with_links(all_rectangles, edges)
    paths = [_path(a, b) for a, b in edges]
    layers: list[list[Rectangle]] = [[] for _ in range(max((p.layer for p in all_rectangles), default=0) + 1)]
    for rectangle in (*all_rectangles, *(p for path in paths for p in path[1:-1])):
        layers[rectangle.layer].append(rectangle)
    above: dict[Rectangle, list[Rectangle]] = {}
    below: dict[Rectangle, list[Rectangle]] = {}
    for path in paths:
        for a, b in itertools.pairwise(path):
            above.setdefault(b, []).append(a)
            below.setdefault(a, []).append(b)
    _sort_layers(layers, above, below)
    _assign_coordinates(layers, above, below)
    left = min((p.x for layer in layers for p in layer), default=0.0)
    for layer in layers:
        for rectangle in layer:
            rectangle.x -= left
    width = max((p.x + p.width for layer in layers for p in layer), default=0.0)
    height = max((p.y + p.height for p in all_rectangles), default=0.0)
    return Layout(all_rectangles, paths, width, height)


def _assign_layers(order: Sequence[Rectangle], edges: Sequence[tuple[Rectangle, Rectangle]]) -> None:
    """Assign layers. `order` is a topological order."""
    above: Neighbours = {}
    below: Neighbours = {}
    for a, b in edges:
        above.setdefault(b, []).append(a)
        below.setdefault(a, []).append(b)
    for rectangle in order:
        rectangle.layer = max((a.layer for a in above.get(rectangle, ())), default=-1) + 1
    for rectangle in order:
        if rectangle not in above and rectangle in below:
            rectangle.layer = min(b.layer for b in below[rectangle]) - 1


def _with_links(
    order: list[Rectangle], edges: Sequence[tuple[Rectangle, Rectangle]]
) -> list[tuple[Rectangle, Rectangle]]:
    """Replace edges over more than `MAX_SPAN` layers, as from a forward pass to the end of its backward pass.

    Such an edge begins at a new card above its target that names the source.
    """
    short_edges: list[tuple[Rectangle, Rectangle]] = []
    long_edges: Neighbours = {}
    for a, b in edges:
        if b.layer - a.layer <= MAX_SPAN:
            short_edges.append((a, b))
        else:
            long_edges.setdefault(b, []).append(a)
    for b, sources in long_edges.items():
        box = Box("link", "", rows=[(f"from {a.box.title}", "") for a in sources if a.box is not None])
        order.append(Rectangle(box, *size_of(box), layer=b.layer - 1))
        short_edges.append((order[-1], b))
    return short_edges


def _path(a: Rectangle, b: Rectangle) -> list[Rectangle]:
    between = [Rectangle(None, POINT, 0.0, layer) for layer in range(a.layer + 1, b.layer)]
    return [a, *between, b]


def _sort_layers(layers: list[list[Rectangle]], above: Neighbours, below: Neighbours) -> None:
    """Sort each layer by the mean ranks of neighbours."""
    rank: dict[Rectangle, float] = {}
    for layer in layers:
        _assign_ranks(layer, rank)
    for sweep in range(SWEEPS):
        neighbours = below if sweep % 2 else above
        for layer in reversed(layers) if sweep % 2 else layers:
            targets = {p: _mean([rank[q] for q in neighbours.get(p, ())], rank[p]) for p in layer}
            layer.sort(key=targets.__getitem__)
            _assign_ranks(layer, rank)


def _assign_ranks(layer: list[Rectangle], rank: dict[Rectangle, float]) -> None:
    """Store the relative positions of rectangles in their layer, from 0 to 1."""
    for i, rectangle in enumerate(layer):
        rank[rectangle] = (i + 0.5) / len(layer)


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _assign_coordinates(layers: list[list[Rectangle]], above: Neighbours, below: Neighbours) -> None:
    """Assign coordinates: y by layer, and x close to the mean of the neighbours."""
    y = 0.0
    for layer in layers:
        height = max((p.height for p in layer), default=0.0)
        x = 0.0
        for rectangle in layer:
            rectangle.x, x = x, x + rectangle.width + GAP_X
            rectangle.y, rectangle.floor = y, y + height
            if rectangle.box is not None and not above.get(rectangle):
                rectangle.y = y + height - rectangle.height  # bottom-aligned, close to its successor
        y += height + GAP_Y
    for sweep in range(SWEEPS):
        for layer in reversed(layers) if sweep % 2 else layers:
            targets = []
            for rectangle in layer:
                neighbours = [*above.get(rectangle, ()), *below.get(rectangle, ())]
                if sweep < SWEEPS - 2:
                    neighbours = (below if sweep % 2 else above).get(rectangle, [])
                centre = _mean([q.x + q.width / 2 for q in neighbours], rectangle.x + rectangle.width / 2)
                targets.append(centre - rectangle.width / 2)
            _resolve_overlaps(layer, targets)


def _resolve_overlaps(layer: list[Rectangle], targets: list[float]) -> None:
    """Move the rectangles of a layer to their target positions as closely as possible without overlap.

    Rectangles that would overlap form a block, whose position is the mean of its members' targets.
    """
    blocks: list[list[float]] = []  # start, sum of (target - offset), count, width
    for rectangle, target in zip(layer, targets, strict=True):
        blocks.append([target, target, 1.0, rectangle.width + GAP_X])
        while len(blocks) > 1 and blocks[-2][0] + blocks[-2][3] > blocks[-1][0]:
            _, total, count, width = blocks.pop()
            previous = blocks[-1]
            previous[1] += total - count * previous[3]
            previous[2] += count
            previous[3] += width
            previous[0] = previous[1] / previous[2]
    x, block, n_left = 0.0, iter(blocks), 0.0
    for rectangle in layer:
        if n_left <= 0:
            x, _, n_left, _ = next(block)
        rectangle.x, x, n_left = x, x + rectangle.width + GAP_X, n_left - 1
