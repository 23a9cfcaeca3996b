"""`Drawing`: the picture of a graph, in a file or a notebook."""

from __future__ import annotations

import os
from html import escape

from tracejit.drawing.layout import lay_out
from tracejit.drawing.picture import LineLookup, Picture, PictureNames, by_function, by_kernel, by_line
from tracejit.drawing.svg import side_by_side
from tracejit.drawing.user_lines import line_of
from tracejit.errors import ArgumentError
from tracejit.ir.graph import Graph
from tracejit.ir.printer import print_graph
from tracejit.passes.driver import optimize

PAGE_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1f2430;margin:2rem auto;max-width:78rem;padding:0 1rem}
details{border:1px solid #dfe4ec;border-radius:8px;margin:.6rem 0;padding:.3rem .9rem;overflow-x:auto}
summary{cursor:pointer;font-weight:600;padding:.25rem 0}summary small{font-weight:400;color:#68707f}
pre{font:12px ui-monospace,Menlo,Consolas,monospace;overflow-x:auto}svg{max-width:none}
""".replace("\n", "")


class Drawing:
    """A picture of a graph, as created by `KeptGraph.draw` and by ``f.draw()`` of a traced function.

    Notebooks display it. `svg` shows the graph as recorded, by the user's lines, next to its kernels; `html`
    is a page with collapsible functions.

    >>> import tracejit as tj
    >>> drawing = tj.export(lambda x: tj.tanh(x) + 1, tj.spec("n")).draw()
    >>> drawing.svg[:4], "tanh" in drawing.html
    ('<svg', True)
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        names: PictureNames,
        lines: LineLookup = line_of,
        *,
        shown: Graph | None = None,
        extents: str = "",
    ) -> None:
        self.name, self._extents = name, extents
        self._graph = graph
        self._recorded = by_line(shown or graph, names, lines)
        self._kernels = by_kernel(optimize(graph), names)

    @property
    def svg(self) -> str:
        """The picture as SVG: the recorded graph and its kernels.

        >>> import tracejit as tj
        >>> tj.export(lambda x: -x, tj.spec("n")).draw().svg.endswith("</svg>")
        True
        """
        return side_by_side(
            [
                (f"{self.name}, as recorded", lay_out(self._recorded)),
                (f"{_count(self._kernels)}{self._extents}", lay_out(self._kernels)),
            ]
        )

    @property
    def html(self) -> str:
        """The picture as an HTML page: the functions in order, each collapsible, the kernels and the text.

        >>> import tracejit as tj
        >>> tj.export(lambda x: -x, tj.spec("n")).draw().html.startswith("<!doctype html>")
        True
        """
        title = escape(self.name)
        head = f'<meta charset="utf-8"><title>{title}</title><style>{PAGE_STYLE}</style>'
        return f"<!doctype html><html><head>{head}</head><body><h1>{title}</h1>{self._body()}</body></html>"

    def _body(self) -> str:
        overview, functions = by_function(self._recorded, self.name)
        sections = []
        if len(functions) > 1:
            sections.append(_section("Functions", "in the order of the recording", overview, is_open=True))
        for box, picture in functions:
            sections.append(_section(box.title, box.subtitle, picture, is_open=len(functions) == 1))
        sections.append(_section("Kernels", _count(self._kernels) + self._extents, self._kernels))
        text = escape(print_graph(self._graph, locations=True))
        sections.append(f"<details><summary>Text</summary><pre>{text}</pre></details>")
        return "".join(sections)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file: ``.svg`` or ``.html``.

        Raises ArgumentError for another file name extension.

        >>> import os, tempfile, tracejit as tj
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "graph.svg")
        ...     tj.export(lambda x: -x, tj.spec("n")).draw().save(path)
        ...     os.path.exists(path)
        True
        """
        extension = os.path.splitext(os.fspath(path))[1].lower()
        if extension not in (".svg", ".html"):
            raise ArgumentError(f"draw: {os.fspath(path)} must end in .svg or .html")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg if extension == ".svg" else self.html)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f"<style>{PAGE_STYLE}</style><h3>{escape(self.name)}</h3>{self._body()}"

    def __repr__(self) -> str:
        return f"<Drawing of {self.name}: .save('graph.svg'), .save('graph.html')>"


def _count(kernels: Picture) -> str:
    n_kernels = sum(box.kind == "kernel" for box in kernels.boxes)
    return f"{n_kernels} kernel{'s' * (n_kernels != 1)}"


def _section(title: str, note: str, picture: Picture, *, is_open: bool = False) -> str:
    svg = side_by_side([("", lay_out(picture))])
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{escape(title)} <small>{escape(note)}</small></summary>{svg}</details>"
