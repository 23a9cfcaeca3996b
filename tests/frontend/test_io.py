"""Saving and loading trees."""

import io
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.samples import DTYPES, SHAPES, laid_out, sample


def equal(a, b):
    """Trees of equal types and elements."""
    assert type(a) is type(b), (a, b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        assert all(equal(a[k], b[k]) for k in a)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        assert all(equal(x, y) for x, y in zip(a, b, strict=True))
    elif isinstance(a, tj.NDArray | np.ndarray):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    else:
        assert a == b
    return True


TREES = {
    "nested": lambda: {"layers": [{"w": tj.ones((2, 3)), "b": tj.zeros(3)}, {"w": tj.eye(3)}], "step": 7},
    "tuples": lambda: (tj.arange(3), [tj.ones(())], ()),
    "one array": lambda: tj.linspace(0, 1, 7),
    "plain": lambda: {"lr": 0.1, "name": "ü", "none": None, "flag": True, "big": 2**80, "nan": float("inf")},
    "keys": lambda: {1: tj.ones(1), "1": tj.zeros(1), "a/b.c'\"]": tj.ones(2), "": {}, "../x": [[]]},
    "numpy": lambda: {"a": np.arange(4, dtype=np.float16), "b": tj.arange(4)},
    "dtypes": lambda: [sampled(d, s) for d in DTYPES for s in SHAPES],
}


def sampled(dtype, shape):
    rng = np.random.default_rng(1)
    return laid_out(rng, sample(rng, shape, dtype, special=True))


@pytest.mark.parametrize("name", TREES)
def test_round_trip(name, tmp_path):
    path = tmp_path / "tree.npz"
    tj.save(path, TREES[name]())
    equal(tj.load(path), TREES[name]())
    assert os.listdir(tmp_path) == ["tree.npz"]


def test_numpy_reads_the_file(tmp_path):
    path = str(tmp_path / "model")
    tj.save(path, {"w": [tj.ones(2)]})
    with np.load(path, allow_pickle=False) as file:
        assert sorted(file.files) == ["structure", "tree['w'][0]"]
        np.testing.assert_array_equal(file["tree['w'][0]"], [1, 1])


def test_files_of_numpy_are_dicts(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.ones((2, 2)))
    equal(tj.load(tmp_path / "a.npz"), {"x": tj.arange(3), "y": tj.ones((2, 2), dtype=tj.float64)})
    np.save(tmp_path / "b.npy", np.arange(3))
    equal(tj.load(tmp_path / "b.npy"), tj.arange(3))


def test_saving_replaces_a_file_or_leaves_it(tmp_path):
    path = tmp_path / "tree.npz"
    tj.save(path, [tj.ones(2)])
    for bad in ({"x": object()}, {1.5: tj.ones(1)}, {"x": np.array([object()])}, {"x": {1, 2}}):
        with pytest.raises(tj.errors.ArgumentError, match=r"save: tree(?s:.*)test_io"):
            tj.save(path, bad)
    equal(tj.load(path), [tj.ones(2)])
    tj.save(path, [tj.zeros(2)])
    equal(tj.load(path), [tj.zeros(2)])
    with pytest.raises(FileNotFoundError):
        tj.save(tmp_path / "missing" / "tree.npz", [])
    assert os.listdir(tmp_path) == ["tree.npz"]


def test_damaged_files(tmp_path):
    path = tmp_path / "tree.npz"
    with pytest.raises(FileNotFoundError):
        tj.load(path)
    path.write_bytes(b"")
    with pytest.raises(tj.errors.ArgumentError, match="no file that save wrote"):
        tj.load(path)
    path.write_bytes(b"PK\x03\x04 not a zip file")
    with pytest.raises(tj.errors.ArgumentError, match="no file that save wrote"):
        tj.load(path)
    np.savez(path, x=np.array([object()], dtype=object))
    with pytest.raises(tj.errors.ArgumentError, match="no file that save wrote"):
        tj.load(path)
    tj.save(path, {"w": tj.ones(2)})
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(tmp_path / "cut.npz", "w") as target:
        target.writestr("structure.npy", source.read("structure.npy"))
    with pytest.raises(tj.errors.ArgumentError, match="no file that save wrote"):
        tj.load(tmp_path / "cut.npz")


# -- damaged files -------------------------------------------------------------------------------------------


def archive(path, entries, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in entries.items():
            file.writestr(name, content)


def npy(array):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def header(text, data=b""):
    text = text.encode() + b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


STRUCTURES = [
    "[]", "{}", "1", "null", '"a"', "[1]", '{"array": "tree"}', '{"array": ["w"], "numpy": true}',
    '{"array": "w", "numpy": 3, "more": 1}', '{"array": "missing", "numpy": true}', '{"value": [1]}',
    '{"value": {"a": 1}}', '{"dict": 1}', '{"dict": [1]}', '{"dict": [[[], {"value": 1}]]}',
    '{"dict": [["a"]]}',
    '{"dict": [[1.5, {"value": 1}]]}', '{"dict": [[true, {"value": 1}]]}',
    '{"list": 3}', '{"list": {"value": 1}}',
    '{"list": [1]}', '{"other": []}', '{"list": []', '{"value": ' + "9" * 5000 + "}", '{"list": [' * 100_000,
    '{"list": [' * 5000 + '{"value": 1}' + "]}" * 5000, "\x00",
]  # fmt: skip

HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1073741824, 1073741824, 1073741824), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (10**30,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 70 + "), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': 'a', }",
    "{'descr': 7, 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '<f4'}",
    "[" * 5000,
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\x00",
]


@pytest.mark.parametrize("text", STRUCTURES, ids=range(len(STRUCTURES)))
def test_a_structure_that_save_does_not_write_is_refused(tmp_path, text):
    path = tmp_path / "crafted.npz"
    archive(path, {"structure.npy": npy(text), "w.npy": npy(np.float32([1]))})
    with pytest.raises(tj.errors.ArgumentError, match="load"):
        tj.load(path)


@pytest.mark.parametrize("structure", ["bytes", "number", "array"])
def test_a_structure_that_is_no_text_is_refused(tmp_path, structure):
    content = {"bytes": np.array(b"{}"), "number": np.array(1), "array": np.array(["{}"])}[structure]
    path = tmp_path / "crafted.npz"
    archive(path, {"structure.npy": npy(content)})
    with pytest.raises(tj.errors.ArgumentError, match="load"):
        tj.load(path)


@pytest.mark.parametrize("text", HEADERS, ids=range(len(HEADERS)))
def test_an_array_that_save_does_not_write_is_refused(tmp_path, text):
    structure = npy('{"array": "w", "numpy": true}')
    for name, entries in (
        ("saved", {"structure.npy": structure, "w.npy": header(text, b"abcd")}),
        ("plain", {"w.npy": header(text, b"abcd")}),
    ):
        archive(tmp_path / f"{name}.npz", entries)
    (tmp_path / "one.npy").write_bytes(header(text, b"abcd"))
    for path in tmp_path.iterdir():
        with pytest.raises(tj.errors.ArgumentError, match="load"):
            tj.load(path)


def test_a_compressed_file_with_the_structure_of_save_is_refused(tmp_path):
    path = tmp_path / "bomb.npz"
    entries = {"structure.npy": npy('{"array": "w", "numpy": true}'), "w.npy": npy(np.zeros(1 << 22))}
    archive(path, entries, zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    try:
        with pytest.raises(tj.errors.ArgumentError, match="compressed"):
            tj.load(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_damaged_files_give_the_documented_error_and_take_no_more_memory_than_they_have(tmp_path):
    whole, path = tmp_path / "whole.npz", tmp_path / "damaged.npz"
    tree = {"w": [tj.ones((2, 3)), 0.5, None], "v": (np.arange(3), "text", {3: tj.zeros(0)})}
    tj.save(whole, tree)
    content, random = whole.read_bytes(), np.random.default_rng(7)
    damaged = [content[:n] for n in range(0, len(content), 7)]
    for _ in range(1500):
        changed = bytearray(content)
        for _ in range(random.integers(1, 4)):
            changed[random.integers(len(changed))] = random.integers(256)
        damaged.append(bytes(changed))
    refused = 0
    tracemalloc.start()
    try:
        for bytes_ in damaged:
            path.write_bytes(bytes_)
            try:
                tj.load(path)
            except tj.errors.ArgumentError:
                refused += 1
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert refused > len(damaged) // 2
