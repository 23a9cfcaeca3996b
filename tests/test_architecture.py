"""The texts in docs/architecture.md are what the code prints today (TRACEJIT_ACCEPT=1 writes them), and its
table says what layers import. Docstrings of packages list their modules in the order of imports and say what
they import, and pages mention paths that exist.
"""

import ast
import itertools
import os
import pathlib
import re

import numpy as np
import pytest

import tracejit as tj

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
FOR_ALL = {"errors", "config", "collector", "device_kinds", "forking", "interpreter", "lazy"}
PACKAGES = sorted(
    file.parent for top in ("tracejit", "kernels") for file in (ROOT / top).rglob("__init__.py")
)
ROW = re.compile(r"^    (\w+(?:, \w+)*)(?:  .*)?$", re.MULTILINE)
"""A row of a package's table: names of modules, and what they contain (on the next line after many names)."""
MENTION = re.compile(r"`([a-z_]+(?:/\w+)*(?:\.py|/)?)`")
PAGES = sorted(
    file for folder in ("", "guide", "decisions") for file in (ROOT / "docs" / folder).glob("*.md")
)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
OTHER_PROJECTS = {"torch", "tinygrad", "test", "tests/test_freeze.py"}
BLOCK = re.compile(r"^```(python|text) (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def stages(example):
    """The text of each stage of the page's example."""
    namespace = {}
    exec(example, namespace)
    step = namespace["step"]
    rng = np.random.default_rng(0)
    shapes = ((64, 32), (32,), (128, 64), (128, 32))
    arrays = [tj.asarray(rng.standard_normal(shape).astype("float32")) for shape in shapes]
    step(*arrays, 0.1)
    schedule = step.schedule(*arrays, 0.1)
    longest = max(step.kernels(*arrays, 0.1), key=lambda k: "tanh" in k.name)
    return {
        "graph": str(step.graph(*arrays, 0.1)),
        "fused": str(schedule.graph),
        "schedule": str(schedule),
        "kernel": longest.source,
        "replay": step._entries[0].text,
    }


def test_page_shows_what_the_code_prints(monkeypatch):
    page = PAGE.read_text()
    blocks = {name: text for _, name, text in BLOCK.findall(page)}
    texts = stages(blocks["example"])
    texts["replay"] = re.sub(r"\n(.*recording is not None.*\n)+", "\n    ...\n", texts["replay"])
    assert set(texts) | {"example"} == set(blocks)
    written = BLOCK.sub(
        lambda m: m[0] if m[2] == "example" else f"```{m[1]} {m[2]}\n{texts[m[2]].rstrip()}\n```", page
    )
    if os.environ.get("TRACEJIT_ACCEPT") == "1":
        PAGE.write_text(written)
    assert written == PAGE.read_text()


def files():
    """The modules of every layer."""
    kernels = {"kernels": sorted((ROOT / "kernels").rglob("*.py"))}
    rooms = {p.name: sorted(p.rglob("*.py")) for p in (ROOT / "tracejit").iterdir() if p.is_dir()}
    return kernels | rooms | {p.stem: [p] for p in (ROOT / "tracejit").glob("*.py")}


def without_types(path):
    """The syntax tree of a module, without imports for types."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    return tree


def layers_of(path):
    """The layers that a module imports, other than for types."""
    for node in ast.walk(without_types(path)):
        match node:
            case ast.ImportFrom(module="tracejit"):
                yield from (name.name for name in node.names)
            case ast.ImportFrom(module=str(module)) if module.startswith("tracejit."):
                yield module.split(".")[1]


def test_layers_import_what_the_table_says():
    layers = files()
    table = PAGE.read_text().partition("| layer |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split(" | ")] for line in table.splitlines()[2:]]
    said, found = {}, {}
    for names, _, imports in rows:
        known = [
            name.removeprefix("tracejit/").removesuffix("/").removesuffix(".py")
            for name in re.findall(r"`([^`]*)`", names.partition("(")[0])
        ]
        row = " ".join(known)
        said[row] = {word for word in re.findall(r"\w+", re.sub(r"\([^)]*\)", "", imports)) if word in layers}
        found[row] = {layer for name in known for path in layers[name] for layer in layers_of(path)}
        found[row] = found[row].intersection(layers) - FOR_ALL - set(known)
    assert {name for row in said for name in row.split()} | {"__init__", "numpy"} >= {
        name for name, paths in layers.items() if paths
    }
    assert found == said


def modules_listed(package):
    """The modules in the table of a package's docstring, in its order, and those in the folder."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    modules = {file.stem for file in package.glob("*.py")} - {"__init__", "__main__"}
    modules |= {file.parent.name for file in package.glob("*/__init__.py")}
    rows = [row.split(", ") for row in ROW.findall(docstring)]
    return [name for row in rows if modules.intersection(row) for name in row], modules


def imported(statements):
    """The modules that statements import when they run, other than for types."""
    for node in statements:
        match node:
            case ast.ImportFrom(module=str(module)):
                yield from (f"{module}.{name.name}" for name in node.names)
            case ast.Import():
                yield from (name.name for name in node.names)
            case ast.If() if ast.unparse(node.test) == "TYPE_CHECKING":
                yield from imported(node.orelse)
            case ast.If() | ast.Try() | ast.With():
                for block in ("body", "orelse", "handlers", "finalbody"):
                    yield from imported(getattr(node, block, ()))
            case ast.ExceptHandler():
                yield from imported(node.body)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_of_packages_list_their_modules_in_the_order_of_imports(package):
    """A module imports only those to its right and below."""
    order, modules = modules_listed(package)
    assert sorted(order) == sorted(modules)
    path = package.relative_to(ROOT).parts
    prefix = ".".join(path if path[0] == "tracejit" else ("tracejit", *path)) + "."
    upwards = {
        (name, other)
        for name in modules
        for file in ([package / f"{name}.py"], (package / name).rglob("*.py"))[(package / name).is_dir()]
        for module in imported(ast.parse(file.read_text()).body)
        if module.startswith(prefix) and (other := module.removeprefix(prefix).split(".")[0]) in modules
        if order.index(other) < order.index(name)
    }
    assert not upwards


IMPORTS = re.compile(r"The package imports (no other layer than|`\w+`(?:(?:, | and )`\w+`)*\.)")
"""The sentence that lists all imports of a package, in alphabetical order."""


def imports_of(package):
    """The names of modules and packages that a package imports, except those for all layers: each is the name
    below the closest package that contains both.
    """
    path = package.relative_to(ROOT).parts
    path = path if path[0] == "tracejit" else ("tracejit", *path)
    for file in package.rglob("*.py"):
        for module in imported(ast.walk(without_types(file))):
            differing = (name for name, own in itertools.zip_longest(module.split("."), path) if name != own)
            name = next(differing, None) if module.startswith("tracejit.") else None
            if name is not None and not f"{module}.".startswith(f"{'.'.join(path)}."):
                yield from {name} - FOR_ALL


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_packages_import_what_their_docstrings_say(package):
    docstring = " ".join((ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or "").split())
    assert docstring.lower().count("the package imports ") == len(IMPORTS.findall(docstring))
    for said in IMPORTS.findall(docstring):
        assert re.findall(r"`(\w+)`", said) == sorted(set(imports_of(package)))


def test_pages_mention_paths_that_exist():
    """Files and folders of this repository, by a path from its root, `tracejit/` or `tracejit/frontend/`.

    Decisions name files and folders of their time: of theirs, only paths of modules are checked.
    """
    folders = ("tracejit", "kernels", "tests", "benchmarks", "examples", "docs")
    files = {file.relative_to(ROOT) for folder in folders for file in (ROOT / folder).rglob("*.py")}
    known = {*files, *(folder for file in files for folder in file.parents)}
    names = {file.name for file in [*files, *ROOT.glob("*.py")]}
    starts = ("", "tracejit", "tracejit/frontend")
    unknown = []
    for page in PAGES:
        for path in MENTION.findall(FENCED.sub("", page.read_text())):
            if page.parent.name == "decisions" and not ("/" in path and path.endswith(".py")):
                continue
            if "/" in path:
                ends = (pathlib.Path(start, path + end) for start in starts for end in ("", ".py"))
                is_known = not known.isdisjoint(ends)
            else:
                is_known = not path.endswith(".py") or path in names
            if not is_known and OTHER_PROJECTS.isdisjoint({path, path.split("/")[0]}):
                unknown.append((page.name, path))
    assert not unknown
