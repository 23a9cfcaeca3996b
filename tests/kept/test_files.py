"""Graphs in files: they come back in another process, and a file that is not as it was written is refused."""

import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys

import numpy as np
import pytest

import tracejit as tj
from tracejit.errors import ArgumentError
from tracejit.graphs import files

ROOT = pathlib.Path(__file__).parent.parent.parent


def example():
    """A graph with parameters of several dtypes, numbers, effects and trees."""
    weight = tj.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    phase = tj.asarray([1j, 2.0 + 1j])
    mask, count = tj.asarray([True, False, True]), tj.zeros((), dtype="int64")

    def model(batch, rate):
        nonlocal count
        count += 1
        hidden = tj.where(mask, batch["x"] @ weight, 0.0)
        return {"y": hidden * (rate * 2), "norm": (abs(phase) ** 2).sum(), "count": count * 1}

    return tj.export(model, {"x": tj.spec(("n", 2))}, 0.5)


@pytest.fixture(scope="module")
def graph():
    return example()


@pytest.fixture
def path(graph, tmp_path):
    graph.save(tmp_path / "graph.safetensors")
    return tmp_path / "graph.safetensors"


def test_a_graph_comes_back(graph, path):
    again = tj.load_graph(path)
    assert again.text == graph.text
    assert {n: x.tolist() for n, x in again.parameters.items()} == {
        n: x.tolist() for n, x in graph.parameters.items()
    }
    x = tj.ones((2, 2))
    for rate in (0.5, 1.0):
        ours, theirs = again({"x": x}, rate), graph({"x": x}, rate)
        assert tj.tree.map(lambda x: x.tolist(), ours) == tj.tree.map(lambda x: x.tolist(), theirs)
    assert ours["count"].tolist() == again.parameters["count"].tolist() == 2
    again.save(path)
    assert tj.load_graph(path).parameters["count"].tolist() == 2


def test_a_process_without_the_source_runs_it(graph, path):
    code = f"""
import tracejit as tj
graph = tj.load_graph({str(path)!r})
print(graph({{"x": tj.ones((1, 2))}}, 0.5)["y"].tolist(), graph.infer(n=7).outputs["result['y']"].shape)
print(tj.grad(lambda x: graph({{"x": x}}, 1.0)["y"].sum())(tj.zeros((1, 2))).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=path.parent, capture_output=True, text=True,
                          check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.stdout == "[[5.0, 0.0, 9.0]] (7, 3)\n[[8.0, 20.0]]\n", done.stderr


def test_the_file_is_a_safetensors_file(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert header["weight"] == {
        "dtype": "F32",
        "shape": [2, 3],
        "data_offsets": header["weight"]["data_offsets"],
    }
    start, end = header["weight"]["data_offsets"]
    data = np.frombuffer(content[8 + length + start : 8 + length + end], "float32")
    assert data.tolist() == [1, 2, 3, 4, 5, 6]
    assert header["phase"]["shape"] == [2, 2]  # real and imaginary parts


def refused(path, content, match="."):
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match=match) as error:
        tj.load_graph(path)
    assert str(path) in str(error.value)


def test_damage_is_detected(path):
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    places = {*range(0, 64, 3), len(content) - 1, *rng.integers(0, len(content), 150).tolist()}
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        refused(path, bytes(damaged))
    for end in {0, 4, 8, 9, len(content) - 1, *rng.integers(0, len(content), 40).tolist()}:
        refused(path, content[:end])
    refused(path, content + b"\0", "header is not as it was|bytes follow")
    refused(path, os.urandom(3000))


def written(text, tensors=(), **metadata):
    """A file with this text, and the right checksum."""
    arrays = {name: np.asarray(x) for name, x in dict(tensors).items()}
    data = b"".join(x.tobytes() for x in arrays.values())
    digest = hashlib.sha256(files._header(text, arrays, files.BLANK) + data).hexdigest()
    if not metadata:
        return files._header(text, arrays, digest) + data
    known = {"format": "tracejit graph", "version": "1", "graph": text, "sha256": digest}
    encoded = json.dumps({"__metadata__": {**known, **metadata}}, separators=(",", ":")).encode()
    return struct.pack("<Q", len(encoded)) + encoded


def test_foreign_files_are_refused_with_the_remedy(path, tmp_path):
    text = tj.load_graph(path).text
    refused(path, written(text, version="2"), "version '2' of its format.*load it with the version that")
    refused(path, written(text, format="pt"), r"holds no graph; tj\.export\(\.\.\.\)\.save\(path\) writes")
    newer = text.replace("tracejit graph 1", "tracejit graph 7")
    refused(path, written(newer), "'tracejit graph 7', and this version of tracejit reads tracejit graph 1")
    tj.save(tmp_path / "tree.npz", {"x": tj.ones(2)})
    refused(path, (tmp_path / "tree.npz").read_bytes(), "no safetensors file")
    with pytest.raises(FileNotFoundError):
        tj.load_graph(tmp_path / "nothing")


PLAIN = tj.export(lambda x, i: x[i] * 2, tj.spec(("n", 3)), tj.spec(4, "int64")).text
CRAFTED = [
    ('("leaf", 1), ("leaf", 0)', '("leaf", 1), ("leaf", 2)'),
    ('("leaf", 1), ("leaf", 0)', '("leaf", 0), ("leaf", 1)'),
    ('("leaf", 1), ("leaf", 0)', '("leaf", 1)'),
    ("0+[4,3]:[3,1])", "0+[40000,3]:[3,1])"),
    ("0+[4,3]:[3,1])", "-99+[4,3]:[3,1])"),
    ('("array", 0', '("array", 1'),
    ('("array", 0', '("dance", 0'),
    ('result = ("array", 0', 'result = ("array", "0"'),
    ("extents = (", "extent = ("),
    ('extents = ("n",)', "extents = (1,)"),
    ('extents = ("n",)', "extents = ()"),
    ("numbers = ()", 'numbers = (("compute", "__import__({})", (("value", "os"),)),)'),
    ("numbers = ()", 'numbers = (("compute", "({} + {})", (("step", 0), ("value", 1))),)'),
    ("draws = ()", "draws = (-1,)"),
    ("changes = ()", 'changes = (("item", ("x",), 0, ("value", 1)),)'),
    ("changes = ()", 'changes = (("parameter", "w", ("value", 1)),)'),
    ("parameters = ()", 'parameters = (("w", float32[2]),)'),
    ("rules = ()", "rules = (3,)"),
    ("lines = (", "lines = (7, "),
    ("function = ", "function = 3 "),
    (" = gather(", " = gather_all("),
    ("[axis=0]", "[axis=17]"),
    ("[axis=0]", "[axis=(((((" + "(" * 5000),
    ("return %", "return %99, %"),
    ('"array", "x", float32[n,3]', '"array", "x", float32[n*n*n*n,3]'),
    ('("array", "x", float32[n,3])', '("tree", "dict", ("x",), ())'),
]  # fmt: skip


@pytest.mark.parametrize("change", range(len(CRAFTED)))
def test_crafted_texts_are_refused(change, tmp_path):
    old, new = CRAFTED[change]
    assert old in PLAIN
    refused(tmp_path / "crafted", written(PLAIN.replace(old, new, 1)))


def test_tensors_must_be_the_parameters(tmp_path):
    text = PLAIN.replace("parameters = ()", 'parameters = (("w", float32[2]),)')
    refused(tmp_path / "g", written(text, {"w": np.zeros(3, "float32")}), "parameter w of the file is no")
    refused(tmp_path / "g", written(text, {"v": np.zeros(2, "float32")}), "no parameter w")
    refused(tmp_path / "g", written(PLAIN, {"v": np.zeros(2, "float32")}), "tensors that are no parameters")
    assert tj.load_graph(_file(tmp_path / "g", written(text, {"w": np.zeros(2, "float32")}))).parameters


def _file(path, content):
    path.write_bytes(content)
    return path


def test_an_index_that_a_file_does_not_check_is_checked(tmp_path):
    head, _, graph = PLAIN.partition("graph(")
    first = graph.split("\n")[0]
    text = f"{head}graph({first}\n  %2: float32[4,3] = gather(%1, %0) [axis=0]\n  return %2\n}}\n"
    graph = tj.load_graph(_file(tmp_path / "g", written(text)))
    assert graph(tj.ones((2, 3)), tj.asarray([0, 1, 1, 0])).tolist() == [[1] * 3] * 4
    with pytest.raises(tj.errors.OutOfBoundsError, match="index 1000000 is out of bounds"):
        graph(tj.ones((2, 3)), tj.asarray([0, 1000000, 1, 0])).numpy()


def test_a_file_is_written_whole_or_not_at_all(graph, path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        graph.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
