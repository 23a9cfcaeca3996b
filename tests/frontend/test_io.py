"""Saving and loading trees."""

import io
import json
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
    elif isinstance(a, tj.random.Generator):
        equal(a.state, b.state)
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
    "training": lambda: {
        "model": tj.nn.BatchNorm(3).state_dict(),
        "optimizer": tj.optim.adam_state({"w": tj.ones(2)}),
        "rng": tj.random.Generator(7),
        "epoch": 3,
        "best": 0.25,
    },
    "dtypes": lambda: [sampled(d, s) for d in DTYPES for s in SHAPES],
}


def sampled(dtype, shape):
    rng = np.random.default_rng(1)
    return laid_out(rng, sample(rng, shape, dtype, special=True))


SUFFIXES = ["npz", "safetensors"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", TREES)
def test_round_trip(name, suffix, tmp_path):
    path = tmp_path / f"tree.{suffix}"
    tree = TREES[name]()
    if (name, suffix) == ("dtypes", "safetensors"):
        tree = [x for x in tree if x.dtype != np.complex128]
    tj.save(path, tree)
    equal(tj.load(path), tree)
    assert os.listdir(tmp_path) == [path.name]


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


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_saving_replaces_a_file_or_leaves_it(suffix, tmp_path, monkeypatch):
    path = tmp_path / f"tree.{suffix}"
    tj.save(path, [tj.ones(2)])
    layer = tj.nn.Linear(1, 1)
    for bad in ({"x": object()}, {1.5: tj.ones(1)}, {"x": np.array([object()])}, {"x": {1, 2}}, {"x": layer}):
        with pytest.raises(tj.errors.ArgumentError, match=r"save: tree(?s:.*)test_io"):
            tj.save(path, bad)
    equal(tj.load(path), [tj.ones(2)])
    tj.save(path, [tj.zeros(2)])
    equal(tj.load(path), [tj.zeros(2)])
    with pytest.raises(FileNotFoundError):
        tj.save(tmp_path / "missing" / path.name, [])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tj.save(path, [tj.ones(2)])
    equal(tj.load(path), [tj.zeros(2)])
    assert os.listdir(tmp_path) == [path.name]


def interrupted(handle):
    raise KeyboardInterrupt


def test_saved_files_have_the_usual_mode_and_links_stay(tmp_path):
    (tmp_path / "usual").write_text("")
    (tmp_path / "link.npz").symlink_to(tmp_path / "tree.npz")
    tj.save(tmp_path / "link.npz", [1])
    assert (tmp_path / "link.npz").is_symlink()
    assert (tmp_path / "tree.npz").stat().st_mode == (tmp_path / "usual").stat().st_mode


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


# -- safetensors ---------------------------------------------------------------------------------------------


def tensors(header, content=b""):
    """A file in the format ``.safetensors``."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def test_safetensors_that_others_write(tmp_path):
    path = tmp_path / "other.safetensors"
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [2, 10]}
    flags = {"dtype": "BOOL", "shape": [2, 1], "data_offsets": [0, 2]}
    empty = {"dtype": "I64", "shape": [0, 3], "data_offsets": [10, 10]}
    header = {"__metadata__": {"format": "pt"}, "w": entry, "flags": flags, "none": empty}
    path.write_bytes(tensors(header, b"\1\0" + np.float32([1, 2]).tobytes()))
    found = tj.load(path)
    wanted = {
        "w": tj.asarray([1.0, 2.0]),
        "flags": tj.asarray([[True], [False]]),
        "none": tj.zeros((0, 3), dtype=tj.int64),
    }
    equal(found, wanted)


def test_safetensors_for_others(tmp_path):
    path = tmp_path / "ours.safetensors"
    tj.save(
        path,
        {"model": {"layers": [{"w": tj.arange(3)}], "b": tj.ones(2)}, "model.b": tj.zeros(1, dtype="int8")},
    )
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert set(header) == {"model.layers.0.w", "model.b", "tree['model.b']", "__metadata__"}
    assert header["model.layers.0.w"] == {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]}
    assert all(isinstance(text, str) for text in header["__metadata__"].values())
    assert data[8 + length :][:24] == np.arange(3).tobytes()
    assert len(data) == 8 + length + 24 + 8 + 1


def test_safetensors_lack_some_dtypes(tmp_path):
    for bad in (tj.zeros(2, dtype=tj.complex128), np.array(["a"])):
        with pytest.raises(tj.errors.ArgumentError, match=r"save: x has the dtype(?s:.*)test_io"):
            tj.save(tmp_path / "x.safetensors", {"x": bad})


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
CRAFTED = {
    "a header that is too long": (2**63).to_bytes(8, "little") + b"{}",
    "a header beyond the end": (100).to_bytes(8, "little") + b"{}",
    "no JSON": tensors(b"{]"),
    "no text": tensors(b"{\xff\xff}"),
    "a deep header": tensors(b'{"a":' * 50_000),
    "a name twice": tensors(b'{"a": 1, "a": 2}'),
    "metadata": tensors({"__metadata__": {"a": 1}}),
    "metadata in a list": tensors({"__metadata__": []}),
    "bytes left": tensors({}, b"a"),
    "bytes missing": tensors({"w": ENTRY}, b"abcd"),
    "a gap": tensors({"w": {**ENTRY, "data_offsets": [4, 12]}}, b"abcdefghijkl"),
    "an overlap": tensors({"w": ENTRY, "v": ENTRY}, b"abcdefgh"),
    "a size": tensors({"w": {**ENTRY, "shape": [3]}}, b"abcdefgh"),
    "a negative extent": tensors({"w": {**ENTRY, "shape": [-2, -1]}}, b"abcdefgh"),
    "an extent that is a bool": tensors({"w": {**ENTRY, "shape": [2, True]}}, b"abcdefgh"),
    "many dimensions": tensors({"w": {**ENTRY, "shape": [2] + [1] * 64}}, b"abcdefgh"),
    "huge extents": tensors({"w": {**ENTRY, "shape": [2**62, 2**62, 0], "data_offsets": [0, 0]}}),
    "a dtype": tensors({"w": {**ENTRY, "dtype": "F8_E4M3", "data_offsets": [0, 2]}}, b"ab"),
    "a dtype in a list": tensors({"w": {**ENTRY, "dtype": ["F32"]}}, b"abcdefgh"),
    "offsets": tensors({"w": {**ENTRY, "data_offsets": [8, 0]}}, b"abcdefgh"),
    "something more": tensors({"w": {**ENTRY, "more": 1}}, b"abcdefgh"),
    "an entry": tensors({"w": 3}),
    "a structure": tensors({"__metadata__": {"tracejit.structure": '{"array": "w", "numpy": true}'}}),
    "a generator": tensors(
        {"w": ENTRY, "__metadata__": {"tracejit.structure": '{"generator": "w"}'}}, b"abcdefgh"
    ),
    "a check sum": tensors({"w": ENTRY, "__metadata__": {"tracejit.crc32": "00000000"}}, b"abcdefgh"),
}


@pytest.mark.parametrize("what", CRAFTED)
def test_safetensors_that_are_wrong_are_refused(what, tmp_path):
    path = tmp_path / "wrong.safetensors"
    path.write_bytes(CRAFTED[what])
    with pytest.raises(tj.errors.ArgumentError, match=r"load: (?s:.*)test_io"):
        tj.load(path)


def test_damage_to_any_byte_of_safetensors_is_found(tmp_path):
    whole, path = tmp_path / "whole.safetensors", tmp_path / "damaged.safetensors"
    tree = {"w": [tj.ones((2, 3)), 0.5, None], "v": (np.arange(3), "text", {3: tj.zeros(0)})}
    tj.save(whole, tree)
    content = whole.read_bytes()
    damaged = [content[:n] for n in range(0, len(content), 5)]
    damaged += [
        content[:i] + bytes([content[i] ^ 1 << i % 8]) + content[i + 1 :] for i in range(len(content))
    ]
    for bytes_ in damaged:
        path.write_bytes(bytes_)
        try:
            tj.load(path)
        except tj.errors.ArgumentError:
            continue
        raise AssertionError(bytes_)
