"""Every example in a docstring or a document runs and prints what it says."""

import doctest
import importlib
import pathlib
import pkgutil
import re
import subprocess
import sys

import pytest

import tracejit
import tracejit.kernels

ROOT = pathlib.Path(__file__).parent.parent
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules():
    """Names of all modules of the package and of `kernels/`, which lies elsewhere."""
    yield "tracejit"
    for package in (tracejit, tracejit.kernels):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            yield found.name


DOCUMENTS = [
    file for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if ">>>" in file.read_text()
]


@pytest.mark.parametrize("name", sorted(set(modules())))
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name), optionflags=OPTIONS).failed == 0


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_documents(file):
    assert doctest.testfile(str(file), module_relative=False, optionflags=OPTIONS).failed == 0


def test_adding_an_operator():
    """The page's code, in order, in a process of its own: it declares an operator."""
    page = (ROOT / "docs" / "adding_an_operator.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
