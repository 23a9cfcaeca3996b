"""Pictures of graphs: as recorded, by the user's lines, and as kernels.

Modules; each imports only modules to its right and below:

    drawing     `Drawing`: files, notebooks, a page with collapsible functions
    svg         SVG of a layout
    layout      coordinates of boxes and edges, in layers from top to bottom
    picture     the boxes and edges of a graph
    user_lines  the function and the source text of a line

The package depends on graphs and passes, but not on arrays. All text is set in a monospaced font of known
width, so boxes are never too small for their text.
"""
