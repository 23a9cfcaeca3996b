"""A picture of a graph: boxes and edges.

Consecutive operators of one line of the user's are one box, or those of one kernel. Constants and views are
left out: an edge goes through them. What a box takes of the graph's inputs stands in a card of its own above
it, so no edge crosses the picture only because an array is used twice; what is returned or written stands in
cards below.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tracejit.drawing.user_lines import Line, short
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.types import ArrayType

WIDTH = 56  # characters of a row
ROWS = 6  # the most rows of operators in one box
TYPES = 3  # the most types of results shown in one box
CARD = 9  # rows of a card of inputs or results
NAME = 40  # characters of a name there
UNSEEN = frozenset({"constant", "full", "empty", "iota"})
"""Operators without operands of their own that no box is made for."""

Lines = Callable[[str | None], Line]


@dataclass(eq=False)
class Box:
    """A rectangle: `kind` says how it looks; `rows` are pairs of text at the left and at the right. Boxes of
    operators are numbered in their order.
    """

    kind: str
    title: str
    subtitle: str = ""
    rows: list[tuple[str, str]] = field(default_factory=list)
    function: str = ""


@dataclass(eq=False)
class Picture:
    """Boxes, and edges between them from above to below."""

    boxes: list[Box]
    edges: list[tuple[Box, Box]]


@dataclass(frozen=True)
class PictureNames:
    """Names of a graph's inputs and outputs; `parameters` are kept with it."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    parameters: frozenset[str] = frozenset()


def by_line(graph: Graph, names: PictureNames, lines: Lines) -> Picture:
    """A box for each run of operators of one line."""
    runs: list[list[Node]] = []
    for node in graph.nodes:
        if _is_seen(node):
            if not runs or runs[-1][-1].location != node.location:
                runs.append([])
            runs[-1].append(node)
    boxes = {}
    met: set[str | None] = set()
    for run in runs:
        location = run[0].location
        line = lines(location)
        where = ", ".join(filter(None, (short(location), line.function)))
        title = line.code or short(location) or "operators"
        again = " · again" if location in met else ""
        met.add(location)
        count = f"{len(run)} operator{'s' * (len(run) != 1)}"
        rows = [(row, "") for row in _wrapped(node.op.name for node in run)]
        box = Box("line", _cut(title), f"{where} · {count}{again}", rows, line.function)
        boxes.update(dict.fromkeys(run, box))
    return _Wiring(graph, names, boxes).picture()


def by_kernel(graph: Graph, names: PictureNames) -> Picture:
    """A box for each node of a graph whose kernels are formed."""
    boxes = {}
    for node in graph.nodes:
        if not _is_seen(node):
            continue
        body = node.attrs.get("body")
        inside = [n for n in body.nodes if _is_seen(n)] if isinstance(body, Graph) else [node]
        places = dict.fromkeys(short(n.location) for n in (*inside, node) if n.location)
        kind = f"kernel ({node.attrs['kind']})" if isinstance(body, Graph) else "one operator"
        rows = [(row, "") for row in _wrapped(n.op.name for n in inside)] if len(inside) > 1 else []
        title = " + ".join(dict.fromkeys(n.op.name for n in inside)) or node.op.name
        subtitle = " · ".join(filter(None, (kind, ", ".join(list(places)[:3]))))
        boxes[node] = Box("kernel", _cut(title), subtitle, rows)
    return _Wiring(graph, names, boxes).picture()


def by_function(picture: Picture, fallback: str) -> tuple[Picture, list[tuple[Box, Picture]]]:
    """Runs of boxes of one function as one box each; and what is inside each of them."""
    groups: list[list[Box]] = []
    for box in picture.boxes:
        if box.kind == "line":
            if not groups or groups[-1][-1].function != box.function:
                groups.append([])
            groups[-1].append(box)
    whole: dict[Box, Box] = {box: box for box in picture.boxes if box.kind != "line"}
    inside = []
    for number, group in enumerate(groups, 1):
        name = f"{group[0].function or fallback}"
        made = Box("line", f"{number}. {name}", f"{len(group)} step{'s' * (len(group) != 1)}")
        made.rows = [(_cut(box.title, WIDTH), "") for box in group[:ROWS]]
        if len(group) > ROWS:
            made.rows.append((f"and {len(group) - ROWS} more", ""))
        whole.update(dict.fromkeys(group, made))
        cards = {b for a, b in picture.edges if a in group} | {a for a, b in picture.edges if b in group}
        kept = [b for b in picture.boxes if b in group or (b in cards and b.kind != "line")]
        edges = [(a, b) for a, b in picture.edges if a in kept and b in kept]
        inside.append((made, Picture(kept, edges)))
    edges = list(dict.fromkeys((whole[a], whole[b]) for a, b in picture.edges if whole[a] is not whole[b]))
    return Picture(list(dict.fromkeys(whole[box] for box in picture.boxes)), edges), inside


def _is_seen(node: Node) -> bool:
    return node.op.name not in UNSEEN and Trait.VIEW not in node.op.traits


def _wrapped(names: Iterator[str]) -> list[str]:
    """Names of operators in rows; those that repeat are counted."""
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = name, runs[-1][1] + 1
        else:
            runs.append((name, 1))
    text = " ".join(name if count == 1 else f"{count}*{name}" for name, count in runs)
    rows = textwrap.wrap(text, WIDTH)
    return rows if len(rows) <= ROWS else [*rows[: ROWS - 1], f"... ({len(runs)} in all)"]


def _cut(text: str, width: int = WIDTH - 4) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _few(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The first rows of a card, and how many there are more."""
    if len(rows) <= CARD:
        return rows
    return [*rows[: CARD - 1], (f"and {len(rows) - CARD + 1} more", "")]


class _Wiring:
    """Edges between the boxes of nodes, and the cards of inputs and results."""

    def __init__(self, graph: Graph, names: PictureNames, boxes: Mapping[Node, Box]) -> None:
        self.graph, self.boxes = graph, boxes
        self.names = names
        self.inputs = dict(zip(graph.inputs, names.inputs, strict=True))
        self.origin: dict[Value, list[Value]] = {value: [value] for value in graph.inputs}
        self.maker: dict[Value, Box] = {}
        for node in graph.nodes:
            if node in boxes:
                self.origin.update((value, [value]) for value in node.outputs)
                self.maker.update(dict.fromkeys(node.outputs, boxes[node]))
            else:
                found = [v for operand in node.inputs for v in self.origin[operand]]
                self.origin.update(dict.fromkeys(node.outputs, found))
        self.edges: dict[tuple[Box, Box], None] = {}
        self.leaving: dict[Box, dict[Value, None]] = {}

    def picture(self) -> Picture:
        """The picture."""
        cards: dict[Box, dict[Value, None]] = {}
        for node, box in self.boxes.items():
            for operand in node.inputs:
                self._connect(operand, box, cards.setdefault(box, {}))
        returned = zip(self.graph.outputs, self.names.outputs, strict=False)
        ends = [self._end("output", "returned", returned, cards)]
        written = ((effect.value, self.inputs[effect.target]) for effect in self.graph.effects)
        ends.append(self._end("effect", "written", written, cards))
        boxes: list[Box] = []
        for box in dict.fromkeys((*self.boxes.values(), *(end for end in ends if end is not None))):
            if cards.get(box):
                boxes.append(self._card(list(cards[box]), box))
            boxes.append(box)
        for number, box in enumerate(dict.fromkeys(self.boxes.values()), 1):
            box.title = f"{number}. {box.title}"
        for box, values in self.leaving.items():
            if box.kind in ("line", "kernel"):
                types = list(dict.fromkeys(f"→ {type_text(v.type)}" for v in values))
                box.rows += [("", text) for text in types[:TYPES]]
        return Picture(boxes, list(self.edges))

    def _connect(self, operand: Value, box: Box, card: dict[Value, None]) -> None:
        for value in self.origin[operand]:
            maker = self.maker.get(value)
            if maker is None:
                card[value] = None
            elif maker is not box:
                self.edges[maker, box] = None
                self.leaving.setdefault(maker, {})[value] = None

    def _card(self, values: Sequence[Value], box: Box) -> Box:
        """The card of the graph's inputs that a box takes."""
        rows = [(_cut(self.inputs[value], NAME), type_text(value.type)) for value in values]
        kinds = {self.inputs[value] in self.names.parameters for value in values}
        card = Box("parameter" if kinds == {True} else "input", "", rows=_few(list(dict.fromkeys(rows))))
        self.edges[card, box] = None
        return card

    def _end(
        self, kind: str, title: str, values: Iterator[tuple[Value, str]], cards: dict[Box, dict[Value, None]]
    ) -> Box | None:
        """The card of what is returned or written."""
        box = Box(kind, title)
        for value, name in values:
            box.rows.append((_cut(name, NAME), type_text(value.type)))
            self._connect(value, box, cards.setdefault(box, {}))
        box.rows = _few(box.rows)
        return box if box.rows else None


def type_text(type: ArrayType) -> str:
    """A type for people."""
    return str(type.dtype) if type.on_host else f"{type.dtype}[{', '.join(map(str, type.shape))}]"
