"""Saving and loading trees."""

import os
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
