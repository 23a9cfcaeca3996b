"""Hooks of MkDocs: anchors as in the repository, also of headings that differ in case only, and files that
lie outside `docs`.

Pages link to files of the repository (``../benchmarks/README.md``, ``../../examples``), where people read
them. In the site, those in `COPIED` lie under ``repository/``; of others the path is written.
"""

from __future__ import annotations

import pathlib
import posixpath
import re
from collections import Counter
from typing import Any

ROOT = pathlib.Path(__file__).parent.parent.parent
COPIED = ["benchmarks/README.md", "benchmarks/ratios.png", "benchmarks/results.json"]
HEADING = re.compile(r"^```.*?^```$|^#+ (?P<title>[^\n]*)$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def slugify(text: str, separator: str = "-") -> str:
    """The anchor of a heading, as code hosts make it.

    >>> slugify("tj.nn: neural networks")
    'tjnn-neural-networks'
    """
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def anchors(text: str) -> list[tuple[str, str]]:
    """The headings of a page with their anchors, in order; those of equal anchors are numbered.

    >>> anchors("# tj.Device\\n\\ntext\\n\\n## tj.device")
    [('tj.Device', 'tjdevice'), ('tj.device', 'tjdevice-1')]
    """
    titles = [found["title"] for found in HEADING.finditer(text) if found["title"] is not None]
    seen: Counter[str] = Counter()
    found = []
    for title in titles:
        anchor = slugify(title.replace("`", ""))
        found.append((title, f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor))
        seen[anchor] += 1
    return found


def with_anchors(text: str) -> str:
    """A page with the numbered anchors written out: MkDocs numbers headings in another way.

    >>> print(with_anchors("# tj.Device\\n\\n## tj.device"))
    # tj.Device
    <BLANKLINE>
    <a id="tjdevice-1"></a>
    <BLANKLINE>
    ## tj.device
    """
    left = iter(anchors(text))

    def heading(found: re.Match[str]) -> str:
        if found["title"] is None:
            return found[0]
        title, anchor = next(left)
        is_first = anchor == slugify(title.replace("`", ""))
        return found[0] if is_first else f'<a id="{anchor}"></a>\n\n{found[0]}'

    return HEADING.sub(heading, text)


def in_repository(page: str, target: str) -> str:
    """The path in the repository that a link of a page of the site leads to.

    >>> in_repository("guide/first_hour.md", "../../examples")
    'examples'
    >>> in_repository("repository/benchmarks/README.md", "../docs/performance.md")
    'docs/performance.md'
    """
    here = page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(here), target))


def link(page: str, found: re.Match[str]) -> str:
    """A link of a page as the site needs it: to a page, to a copy, or the name of a file that is not there.

    >>> text = "[runs](../../benchmarks/README.md#marks), [programs](../../examples)"
    >>> LINK.sub(lambda found: link("guide/first_hour.md", found), text)
    '[runs](../repository/benchmarks/README.md#marks), programs (`examples` in the repository)'
    """
    text, target, anchor = found[1], found[2], found[3] or ""
    if "://" in target:
        return found[0]
    path = in_repository(page, target)
    if not path.startswith("docs/") and path not in COPIED:
        return f"{text} (`{path}` in the repository)"
    there = path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"
    return f"[{text}]({posixpath.relpath(there, posixpath.dirname(page) or '.')}{anchor})"


def on_files(files: Any, *, config: Any) -> Any:
    """Add the copied files."""
    from mkdocs.structure.files import File

    for path in COPIED:
        files.append(File.generated(config, f"repository/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The text of a page, with anchors and links as the site needs them."""
    return LINK.sub(lambda found: link(page.file.src_uri, found), with_anchors(markdown))
