"""The texts in docs/architecture.md are what the code prints today (TRACEJIT_ACCEPT=1 writes them), and its
table says what layers import.
"""

import ast
import os
import pathlib
import re

import numpy as np

import tracejit as tj

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
FOR_ALL = {"errors", "config", "collector", "device_kinds", "forking", "interpreter"}
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


def layers_of(path):
    """The layers that a module imports, other than for types."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
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
