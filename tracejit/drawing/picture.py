"""A picture of a graph: boxes and edges.

A box represents consecutive operators of one user line, or of one kernel. Constants and views are hidden;
edges pass through them. The graph inputs that a box uses are listed in a separate card above it, so an array
that is used twice causes no long edges. Returned and written values are listed in cards below.
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
MAX_ROWS = 6  # maximum rows of operators in a box
MAX_TYPES = 3  # maximum number of result types in a box
MAX_CARD_ROWS = 9  # maximum rows of a card of inputs or results
MAX_NAME_WIDTH = 40  # maximum characters of a name in a card
HIDDEN = frozenset({"constant", "full", "empty", "iota"})
"""Operators that create constant arrays, which are not shown."""

LineLookup = Callable[[str | None], Line]


@dataclass(eq=False)
class Box:
    """A rectangle with text. Titles of boxes of operators are numbered in order.

    kind: determines the style.
    rows: pairs of left-aligned and right-aligned text.
    """

    kind: str
    title: str
    subtitle: str = ""
    rows: list[tuple[str, str]] = field(default_factory=list)
    function: str = ""


@dataclass(eq=False)
class Picture:
    """Boxes, and directed edges between them."""

    boxes: list[Box]
    edges: list[tuple[Box, Box]]


@dataclass(frozen=True)
class PictureNames:
    """The names of a graph's inputs and outputs, and which inputs are parameters."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    parameters: frozenset[str] = frozenset()


def by_line(graph: Graph, names: PictureNames, lines: LineLookup) -> Picture:
    """Create a picture with a box for each run of operators of the same line."""
    runs: list[list[Node]] = []
    for node in graph.nodes:
        if _is_shown(node):
            if not runs or runs[-1][-1].location != node.location:
                runs.append([])
            runs[-1].append(node)
    boxes = {}
    shown_locations: set[str | None] = set()
    for run in runs:
        location = run[0].location
        line = lines(location)
        caption = ", ".join(filter(None, (short(location), line.function)))
        title = line.code or short(location) or "operators"
        again = " · again" if location in shown_locations else ""
        shown_locations.add(location)
        count = f"{len(run)} operator{'s' * (len(run) != 1)}"
        rows = [(row, "") for row in _wrapped(node.op.name for node in run)]
        box = Box("line", _cut(title), f"{caption} · {count}{again}", rows, line.function)
        boxes.update(dict.fromkeys(run, box))
    return _EdgeBuilder(graph, names, boxes).picture()


def by_kernel(graph: Graph, names: PictureNames) -> Picture:
    """Create a picture with a box for each node of an optimised graph, whose kernels are nodes."""
    boxes = {}
    for node in graph.nodes:
        if not _is_shown(node):
            continue
        body = node.attrs.get("body")
        inside = [n for n in body.nodes if _is_shown(n)] if isinstance(body, Graph) else [node]
        locations = dict.fromkeys(short(n.location) for n in (*inside, node) if n.location)
        kind = f"kernel ({node.attrs['kind']})" if isinstance(body, Graph) else "one operator"
        rows = [(row, "") for row in _wrapped(n.op.name for n in inside)] if len(inside) > 1 else []
        title = " + ".join(dict.fromkeys(n.op.name for n in inside)) or node.op.name
        subtitle = " · ".join(filter(None, (kind, ", ".join(list(locations)[:3]))))
        boxes[node] = Box("kernel", _cut(title), subtitle, rows)
    return _EdgeBuilder(graph, names, boxes).picture()


def by_function(picture: Picture, fallback: str) -> tuple[Picture, list[tuple[Box, Picture]]]:
    """Group runs of boxes of the same function.

    Returns a picture with a box per function, and each of these boxes with the picture of its contents.
    """
    groups: list[list[Box]] = []
    for box in picture.boxes:
        if box.kind == "line":
            if not groups or groups[-1][-1].function != box.function:
                groups.append([])
            groups[-1].append(box)
    box_of: dict[Box, Box] = {box: box for box in picture.boxes if box.kind != "line"}
    inside = []
    for number, group in enumerate(groups, 1):
        name = f"{group[0].function or fallback}"
        summary = Box("line", f"{number}. {name}", f"{len(group)} step{'s' * (len(group) != 1)}")
        summary.rows = [(_cut(box.title, WIDTH), "") for box in group[:MAX_ROWS]]
        if len(group) > MAX_ROWS:
            summary.rows.append((f"and {len(group) - MAX_ROWS} more", ""))
        box_of.update(dict.fromkeys(group, summary))
        cards = {b for a, b in picture.edges if a in group} | {a for a, b in picture.edges if b in group}
        members = [b for b in picture.boxes if b in group or (b in cards and b.kind != "line")]
        edges = [(a, b) for a, b in picture.edges if a in members and b in members]
        inside.append((summary, Picture(members, edges)))
    edges = list(
        dict.fromkeys((box_of[a], box_of[b]) for a, b in picture.edges if box_of[a] is not box_of[b])
    )
    return Picture(list(dict.fromkeys(box_of[box] for box in picture.boxes)), edges), inside


def _is_shown(node: Node) -> bool:
    return node.op.name not in HIDDEN and Trait.VIEW not in node.op.traits


def _wrapped(names: Iterator[str]) -> list[str]:
    """Wrap operator names to rows; repeated names become ``count*name``."""
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = name, runs[-1][1] + 1
        else:
            runs.append((name, 1))
    text = " ".join(name if count == 1 else f"{count}*{name}" for name, count in runs)
    rows = textwrap.wrap(text, WIDTH)
    return rows if len(rows) <= MAX_ROWS else [*rows[: MAX_ROWS - 1], f"... ({len(runs)} in all)"]


def _cut(text: str, width: int = WIDTH - 4) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _limited(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Limit the rows of a card; the last row is then the number of omitted ones."""
    if len(rows) <= MAX_CARD_ROWS:
        return rows
    return [*rows[: MAX_CARD_ROWS - 1], (f"and {len(rows) - MAX_CARD_ROWS + 1} more", "")]


class _EdgeBuilder:
    """Creates the edges between the boxes of nodes, and the cards of inputs and results."""

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
                origins = [v for operand in node.inputs for v in self.origin[operand]]
                self.origin.update(dict.fromkeys(node.outputs, origins))
        self.edges: dict[tuple[Box, Box], None] = {}
        self.leaving: dict[Box, dict[Value, None]] = {}

    def picture(self) -> Picture:
        """Return the picture."""
        cards: dict[Box, dict[Value, None]] = {}
        for node, box in self.boxes.items():
            for operand in node.inputs:
                self._connect(operand, box, cards.setdefault(box, {}))
        returned = zip(self.graph.outputs, self.names.outputs, strict=False)
        end_cards = [self._end("output", "returned", returned, cards)]
        written = ((effect.value, self.inputs[effect.target]) for effect in self.graph.effects)
        end_cards.append(self._end("effect", "written", written, cards))
        boxes: list[Box] = []
        for box in dict.fromkeys(
            (*self.boxes.values(), *(end_card for end_card in end_cards if end_card is not None))
        ):
            if cards.get(box):
                boxes.append(self._card(list(cards[box]), box))
            boxes.append(box)
        for number, box in enumerate(dict.fromkeys(self.boxes.values()), 1):
            box.title = f"{number}. {box.title}"
        for box, values in self.leaving.items():
            if box.kind in ("line", "kernel"):
                types = list(dict.fromkeys(f"→ {type_text(v.type)}" for v in values))
                box.rows += [("", text) for text in types[:MAX_TYPES]]
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
        """Create the card of the graph inputs that a box uses."""
        rows = [(_cut(self.inputs[value], MAX_NAME_WIDTH), type_text(value.type)) for value in values]
        kinds = {self.inputs[value] in self.names.parameters for value in values}
        card = Box("parameter" if kinds == {True} else "input", "", rows=_limited(list(dict.fromkeys(rows))))
        self.edges[card, box] = None
        return card

    def _end(
        self, kind: str, title: str, values: Iterator[tuple[Value, str]], cards: dict[Box, dict[Value, None]]
    ) -> Box | None:
        """Create the card of returned or written values; None if there are none."""
        box = Box(kind, title)
        for value, name in values:
            box.rows.append((_cut(name, MAX_NAME_WIDTH), type_text(value.type)))
            self._connect(value, box, cards.setdefault(box, {}))
        box.rows = _limited(box.rows)
        return box if box.rows else None


def type_text(type: ArrayType) -> str:
    """Format a type for display."""
    return str(type.dtype) if type.on_host else f"{type.dtype}[{', '.join(map(str, type.shape))}]"
