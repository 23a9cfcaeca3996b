"""Writes layouts as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tracejit.drawing.layout import HEAD, PAD, ROW, SUB, Layout, Rectangle

MARGIN, TITLE = 24, 34

STYLE = """
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2430}
.heading{font-size:15px;font-weight:600}.title{font-size:13px;font-weight:600}
.sub{font-size:11px;fill:#68707f}.type{fill:#5b6474}
rect{stroke-width:1.2}.line rect{fill:#f5f7fb;stroke:#9fb0cc}.kernel rect{fill:#fdf6ec;stroke:#d9b27c}
.input rect{fill:#eef6ff;stroke:#8fbbe8}.parameter rect{fill:#eefaf0;stroke:#90c79c}
.output rect{fill:#f3effb;stroke:#ac98d8}.effect rect{fill:#fdeeee;stroke:#e0a0a0}
.link rect{fill:#fff;stroke:#b4bcc9;stroke-dasharray:4 3}path{fill:none;stroke:#8a94a6;stroke-width:1.3}
""".replace("\n", "")
"""The style sheet of all pictures. Colours distinguish the kinds of boxes."""

ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0,0.5 L7,4 L0,7.5 z" style="fill:#8a94a6;stroke:none"/></marker></defs>'
)


def side_by_side(layouts: Sequence[tuple[str, Layout]]) -> str:
    """Write layouts with headings, from left to right, as one SVG document."""
    x, parts = float(MARGIN), []
    for heading, layout in layouts:
        parts.append(f'<g transform="translate({x:.0f},{MARGIN})">')
        if heading:
            parts.append(f'<text class="heading" x="0" y="12">{escape(heading)}</text>')
        parts.append(f'<g transform="translate(0,{TITLE if heading else 0})">')
        parts += [_edge(path) for path in layout.edges]
        parts += [_box(rectangle) for rectangle in layout.rectangles]
        parts.append("</g></g>")
        x += max(layout.width, len(heading) * 9.0) + 3 * MARGIN
    width = x - 2 * MARGIN
    height = max((layout.height for _, layout in layouts), default=0.0) + 2 * MARGIN + TITLE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><style>{STYLE}</style>{ARROW}'
        f'<rect width="100%" height="100%" style="fill:#fff;stroke:none"/>{"".join(parts)}</svg>'
    )


def _box(rectangle: Rectangle) -> str:
    box = rectangle.box
    assert box is not None
    parts = [
        f'<g class="{box.kind}" transform="translate({rectangle.x:.1f},{rectangle.y:.1f})">',
        f'<rect width="{rectangle.width:.1f}" height="{rectangle.height:.1f}" rx="6"/>',
    ]
    y = PAD * 0.7
    for text, kind, height in ((box.title, "title", HEAD), (box.subtitle, "sub", SUB)):
        if text:
            parts.append(f'<text class="{kind}" x="{PAD}" y="{y + height * 0.72:.1f}">{escape(text)}</text>')
            y += height
    for left, right in box.rows:
        if left:
            parts.append(f'<text x="{PAD}" y="{y + ROW * 0.75:.1f}">{escape(left)}</text>')
        if right:
            parts.append(
                f'<text class="type" text-anchor="end" x="{rectangle.width - PAD:.1f}" '
                f'y="{y + ROW * 0.75:.1f}">{escape(right)}</text>'
            )
        y += ROW
    return "".join(parts) + "</g>"


def _edge(path: Sequence[Rectangle]) -> str:
    """Write a line from the bottom of a box to the top of another, curved between layers."""
    x, y = path[0].x + path[0].width / 2, path[0].floor
    text = f"M{x:.1f},{path[0].y + path[0].height:.1f}L{x:.1f},{y:.1f}"
    for rectangle in path[1:]:
        u, v = rectangle.x + rectangle.width / 2, rectangle.y - (rectangle.box is not None)
        middle = (y + v) / 2
        text += f"C{x:.1f},{middle:.1f} {u:.1f},{middle:.1f} {u:.1f},{v:.1f}"
        x, y = u, rectangle.floor
        if rectangle.box is None:
            text += f"L{x:.1f},{y:.1f}"
    return f'<path d="{text}" marker-end="url(#arrow)"/>'
