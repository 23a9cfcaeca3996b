"""The texts in docs/architecture.md are what the code prints today (TRACEJIT_ACCEPT=1 writes them)."""

import os
import pathlib
import re

import numpy as np

import tracejit as tj

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "architecture.md"
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
