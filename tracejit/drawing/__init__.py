"""Pictures of graphs: as recorded, by the user's lines, and as kernels.

    user_lines.py  the function and the text of a line
    picture.py     boxes and edges of a graph: what is worth seeing
    layout.py      where they stand: in layers, from top to bottom
    svg.py         a laid out picture as SVG
    drawing.py     `Drawing`: files, notebooks, a page whose functions can be folded

It knows graphs and passes, and nothing of arrays. All text is set in a monospaced font, whose widths are
known, so nothing overlaps wherever it is shown.
"""
