"""The repository itself: what is packaged, what an import loads."""

import ast
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tomllib
from collections import defaultdict

import setuptools

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

CONTINUING = re.compile(
    r'^ *r?"""(What|As|Of|Those|That|So|Which|Who|Where|Why|It|Their|They)\b.*', re.MULTILINE
)
"""The first line of a docstring that continues the name above it, and does not stand alone."""


def test_every_package_is_installed(monkeypatch):
    """`setup.py` finds all packages, wherever they lie in the source tree."""
    found = []
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(setuptools, "setup", lambda packages: found.extend(packages))
    runpy.run_path("setup.py")
    folders = [file.parent for top in ("tracejit", "kernels") for file in (ROOT / top).rglob("__init__.py")]
    names = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert set(found) == {name if name.startswith("tracejit") else f"tracejit.{name}" for name in names}


def test_every_folder_with_modules_is_a_package():
    for top in ("tracejit", "kernels"):
        for file in (ROOT / top).rglob("*.py"):
            assert (file.parent / "__init__.py").exists(), file


def test_importing_tracejit_loads_no_compiler():
    program = "import sys, tracejit; print([m for m in ('numba', 'scipy', 'rich') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"


def test_the_changelog_knows_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    version = PROJECT["project"]["version"]
    assert f"## [{version}]" in changelog or "## [Unreleased]" in changelog


def test_make_help_lists_every_target():
    lines = (ROOT / "Makefile").read_text().splitlines()
    phony = next(line for line in lines if line.startswith(".PHONY:")).split()[1:]
    # The tests themselves may run under make, which tells its children so.
    plain = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    listed = subprocess.run(
        ["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True, env=plain
    ).stdout
    assert [line.split()[0] for line in listed.splitlines()] == phony


def test_docstrings_stand_alone():
    """They begin with a verb or a noun phrase, so that they are understood without the name above."""
    files = [file for top in ("tracejit", "kernels") for file in sorted((ROOT / top).rglob("*.py"))]
    found = [(str(file), line.group()) for file in files for line in CONTINUING.finditer(file.read_text())]
    assert not found
    assert CONTINUING.search('def size(x):\n    """What `x` takes."""')


def test_limits_are_named_alike():
    """A constant that limits something is MAX_... or MIN_..., with what it limits."""
    other = re.compile(
        r"^_?(?:MOST|LEAST|LARGEST|SMALLEST|LONGEST|SHORTEST)(?:_[A-Z0-9_]+)?\b.*=", re.MULTILINE
    )
    files = [file for top in ("tracejit", "kernels") for file in sorted((ROOT / top).rglob("*.py"))]
    assert not [(str(file), line) for file in files for line in other.findall(file.read_text())]


def test_no_two_types_have_one_name():
    """One class, or one definition of a type alias, for each word."""
    places = defaultdict(dict)  # by name: where each definition is
    for file in [*(ROOT / "tracejit").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]:
        tree, where = ast.parse(file.read_text()), str(file.relative_to(ROOT))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name][f"class in line {node.lineno} of {where}"] = where
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if re.fullmatch(r"[A-Z][a-z]\w*", name):
                    places[name][ast.unparse(node.value)] = where
    assert not {name: found for name, found in places.items() if len(found) > 1}
