"""Every example in a docstring or a document runs and prints what it says."""

import doctest
import importlib
import os
import pathlib
import pkgutil
import re
import subprocess
import sys

import pytest

import tracejit
import tracejit.kernels
from docs.tools.site import anchors

ROOT = pathlib.Path(__file__).parent.parent
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules():
    """Names of all modules of the package and of `kernels/`, which lies elsewhere."""
    yield "tracejit"
    yield from ("docs.tools.reference", "docs.tools.site")
    for package in (tracejit, tracejit.kernels):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            yield found.name


@pytest.mark.parametrize("name", sorted(set(modules())))
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name), optionflags=OPTIONS).failed == 0


@pytest.mark.parametrize("page", ["adding_an_operator", "adding_a_kernel"])
def test_adding_pages(page, tmp_path):
    """A page's code, in order, in a process of its own: it declares an operator."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    environment = {**os.environ, "TRACEJIT_CACHE_DIR": str(tmp_path)}  # what it compiles is in no sources
    command = [sys.executable, "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_for_users(page):
    """All Python blocks of a page run in order in one namespace; those with a prompt print what they show."""
    blocks = re.finditer(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    namespace = {"__name__": page.stem}
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    count = 0
    for count, block in enumerate(blocks, 1):  # noqa: B007
        line = page.read_text()[: block.start()].count("\n") + 1
        if block[1].startswith(">>>"):
            examples = doctest.DocTestParser().get_examples(block[1])
            test = doctest.DocTest(examples, namespace, page.name, str(page), line, block[1])
            test.globs = namespace  # not a copy: what a session defines is there in the next block
            assert runner.run(test, clear_globs=False).failed == 0
        else:
            exec(compile("\n" * line + block[1], str(page), "exec"), namespace)
    assert count, f"{page.name} has no Python block"


TEXTS = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks" / "README.md"]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for _, target, anchor in re.findall(r"\[([^]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)", text):
        if "://" in target:
            continue
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            assert anchor[1:] in dict(anchors(found.read_text())).values(), (
                f"{page.name}: {target} has no {anchor}"
            )


def test_every_page_of_a_folder_is_in_its_index():
    for folder in ("api", "decisions", "lab"):
        index = (ROOT / "docs" / folder / "index.md").read_text()
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert page.name == "index.md" or f"({page.name}" in index, f"{page} is not in its index"


def test_every_page_for_users_is_in_the_navigation():
    listed = (ROOT / "mkdocs.yml").read_text()
    for folder in ("api", "guide"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert f"{folder}/{page.name}\n" in listed, f"{page} is not in mkdocs.yml"


def test_decisions_stand_once_and_in_order():
    index = (ROOT / "docs" / "decisions" / "index.md").read_text()
    rows = re.findall(r"^\| \[(\d+)\]\((\d+)-[^)]*\) \| \[(.*?)\]\(([^)]*)\)", index, re.MULTILINE)
    numbers = [int(number) for number, *_ in rows]
    assert len(numbers) == len([*(ROOT / "docs" / "decisions").glob("[0-9]*.md")])
    assert numbers == sorted(set(numbers))
    for number, of_page, title, page in rows:
        heading = (ROOT / "docs" / "decisions" / page).read_text().splitlines()[0]
        assert int(of_page) == int(number)
        assert heading == f"# {number}. {title}"


def test_the_site_builds_in_strict_mode(tmp_path):
    """`make docs` needs the extra `docs`, which `make test` does not install."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "guide" / "first_hour.html").exists()
