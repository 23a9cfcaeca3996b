"""The API reference is current and complete, every public name is described (TRACEJIT_ACCEPT=1 writes it)."""

import ast
import doctest
import inspect
import os
import re
import textwrap

import tracejit as tj
from docs.tools import reference, site, stub

PUBLIC = [entry for entry in reference.entries() if reference.describes(entry)]
USERS = [e for e in PUBLIC if e.name.removeprefix("tj.engine.").split(".")[0] not in reference.INTERNAL]
WITHOUT_EXAMPLE = {"tj.Jitted.entry_for"}  # for tools


def test_the_reference_is_current():
    if os.environ.get("TRACEJIT_ACCEPT") == "1":
        reference.main()
    written = {file.name: file.read_text() for file in reference.FOLDER.glob("*.md")}
    assert written == reference.pages(), "run `python -m docs.tools.reference` and review docs/api"


def test_the_stub_for_type_checkers_is_current():
    if os.environ.get("TRACEJIT_ACCEPT") == "1":
        stub.main()
    assert stub.FILE.read_text() == stub.text(), "run `python -m docs.tools.stub`"


def test_every_public_name_stands_on_a_page():
    listed = {name for page in reference.PAGES for name in page.names}
    wanted = {f"tj.{name}" for name in tj.__all__ if name not in reference.MODULES}
    for module in reference.MODULES:
        wanted |= {f"tj.{module}.{name}" for name in getattr(tj, module).__all__}
    assert wanted - listed == set()


def test_every_name_of_the_index_leads_to_a_heading_of_its_own():
    """`tj.Device` and `tj.device` differ in case only, which anchors have not."""
    pages = reference.pages()
    links = re.findall(r"^\| \[`([^`]*)`\]\(([^)#]*)#([^)]*)\)", pages["index.md"], re.MULTILINE)
    assert len({(page, anchor) for _, page, anchor in links}) == len(links)
    for name, page, anchor in links:
        assert (name, anchor) in site.anchors(pages[page])


def test_every_public_name_has_an_example_that_runs():
    """`test_docs.py` runs the examples of all modules; here, that there is one, in one of these."""
    parser = doctest.DocTestParser()
    without, elsewhere = [], []
    for entry in USERS:
        if entry.name not in WITHOUT_EXAMPLE and not parser.get_examples(entry.value.__doc__):
            without.append(entry.name)
        home = entry.value.fget if isinstance(entry.value, property) else entry.value
        if not home.__module__.startswith("tracejit"):
            elsewhere.append(entry.name)
    assert (without, elsewhere) == ([], [])


def raises(function):
    """Whether the text of a function has a `raise` with an error in it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))


def test_every_function_that_raises_says_so():
    silent = []
    for entry in USERS:
        if not inspect.isfunction(entry.value):
            continue
        takes_arrays = (entry.name.startswith(("tj.nn.", "tj.optim.")) and not entry.member) or (
            entry.name.count(".") == 1
            and entry.value.__module__.startswith("tracejit.frontend.arrays.functions")
        )
        if (takes_arrays or raises(inspect.unwrap(entry.value))) and "aises " not in entry.value.__doc__:
            silent.append(entry.name)
    assert silent == []
