"""The repository itself: what is packaged, what an import loads."""

import os
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_listed_and_mapped():
    folders = [file.parent for top in ("tracejit", "kernels") for file in (ROOT / top).rglob("__init__.py")]
    named = {".".join(folder.relative_to(ROOT).parts): folder for folder in folders}
    packages = {name if name.startswith("tracejit") else f"tracejit.{name}" for name in named}
    settings = PROJECT["tool"]["setuptools"]
    assert set(settings["packages"]) == packages
    mapped = {package: folder for package, folder in settings["package-dir"].items() if "kernels" in package}
    assert mapped == {
        package: package.removeprefix("tracejit.").replace(".", "/")
        for package in packages
        if "kernels" in package
    }


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
