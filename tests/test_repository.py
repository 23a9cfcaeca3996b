"""The repository itself: what is packaged, what an import loads."""

import os
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_installed():
    """`setup.py` finds all packages, wherever they lie in the source tree."""
    program = "import sys; from distutils.core import run_setup; print(*run_setup('setup.py').packages)"
    program = "import setuptools\n" + program
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    folders = [file.parent for top in ("tracejit", "kernels") for file in (ROOT / top).rglob("__init__.py")]
    names = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert set(done.stdout.split()) == {n if n.startswith("tracejit") else f"tracejit.{n}" for n in names}


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
