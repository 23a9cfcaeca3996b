"""The API reference is current and complete, every public name is described (TRACEJIT_ACCEPT=1 writes it)."""

import ast
import doctest
import inspect
import os
import textwrap

import pytest

import tracejit as tj
from docs.tools import reference, stub

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


@pytest.mark.parametrize("entry", USERS, ids=lambda entry: entry.name)
def test_every_public_name_has_an_example_that_runs(entry):
    """`test_docs.py` runs the examples of all modules; here, that there is one, in one of these."""
    if entry.name in WITHOUT_EXAMPLE:
        return
    examples = doctest.DocTestParser().get_examples(entry.value.__doc__)
    assert examples, f"{entry.name} has no example"
    home = entry.value.fget.__module__ if isinstance(entry.value, property) else entry.value.__module__
    assert home.startswith("tracejit")


def raises(function):
    """Whether the text of a function has a `raise` with an error in it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))


@pytest.mark.parametrize(
    "entry", [e for e in USERS if inspect.isfunction(e.value)], ids=lambda entry: entry.name
)
def test_every_function_that_raises_says_so(entry):
    takes_arrays = (entry.name.startswith(("tj.nn.", "tj.optim.")) and not entry.member) or (
        entry.name.count(".") == 1 and entry.value.__module__.startswith("tracejit.frontend.arrays.functions")
    )
    if takes_arrays or raises(inspect.unwrap(entry.value)):
        assert "aises " in entry.value.__doc__, f"{entry.name} raises, and does not say what"
