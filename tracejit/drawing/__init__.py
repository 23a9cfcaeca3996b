"""Pictures of graphs: as recorded, by the user's lines, and as kernels.

    user_lines.py  the function and the source text of a line
    picture.py     the boxes and edges of a graph
    layout.py      their coordinates, in layers from top to bottom
    svg.py         SVG of a layout
    drawing.py     `Drawing`: files, notebooks, a page with collapsible functions

The package depends on graphs and passes, but not on arrays. All text is set in a monospaced font of known
width, so boxes are never too small for their text.
"""
