"""LLVM's linker called directly gives what it gives through llvmlite, and comes in another thread."""

import ctypes
import os
import subprocess
import sys
import threading

import pytest

from tests.counting import mappings
from tracejit.codegen.objects import linker as link_module
from tracejit.codegen.objects import machine, orc
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.kernels.library.table import LIBRARY


@pytest.fixture(scope="module")
def directly():
    path = link_module._library()
    assert path is not None, "the installed llvmlite is one of orc.KNOWN"
    return orc.Linker(path)


@pytest.fixture(scope="module")
def object_code():
    return build_object([EntryPoint("kernel", LIBRARY["scatter_add", "int32"])]).object_code


def test_both_ways_know_the_same_machine(directly):
    assert directly.host() == machine.host() == link_module.host()


@pytest.mark.parametrize("way", ["directly", "machine"])
def test_both_ways_link_the_same_object(way, directly, object_code):
    linker = {"directly": directly, "machine": machine}[way]
    first, _ = linker.link(f"{way} one", object_code, ["kernel"])
    second, tracker = linker.link(f"{way} two", object_code, ["kernel"])
    assert first.keys() == second.keys() == {"kernel"}
    assert first["kernel"] != second["kernel"]
    codes = [ctypes.string_at(found["kernel"], 64) for found in (first, second)]
    assert codes[0] == codes[1]
    linker.unload(tracker)
    if sys.platform == "linux":
        assert not any(start <= second["kernel"] < stop for start, stop in mappings())
    assert ctypes.string_at(first["kernel"], 64) == codes[0]


@pytest.mark.parametrize("way", ["directly", "machine"])
def test_both_ways_say_what_is_wrong(way, directly, object_code):
    linker = {"directly": directly, "machine": machine}[way]
    with pytest.raises(RuntimeError, match="missing"):
        linker.link(f"{way} without symbol", object_code, ["missing"])
    with pytest.raises(RuntimeError):
        linker.link(f"{way} without code", b"no object", ["kernel"])


@pytest.mark.parametrize("changed", ["KNOWN", "library_of_llvmlite"])
def test_an_unknown_llvmlite_is_used_through_its_own_modules(changed, monkeypatch):
    monkeypatch.setattr(link_module, changed, () if changed == "KNOWN" else lambda: None)
    link_module._library.cache_clear()
    try:
        assert link_module._linker.__wrapped__() is machine
    finally:
        link_module._library.cache_clear()


def test_a_filled_store_needs_neither_numba_nor_llvmlite(tmp_path):
    program = """
import sys
import tracejit as tj
step = tj.jit(lambda x: tj.tanh(x) + 1)
assert float(step(tj.ones(3))[0]) > 1.7
print(step.cache_info().kernels_loaded, *sys.modules)
"""
    environment = os.environ | {"TRACEJIT_CACHE_DIR": str(tmp_path)}
    for loaded in (0, 1):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        count, *modules = done.stdout.split()
        assert int(count) == loaded
        assert {"numba", "llvmlite"}.isdisjoint(modules) == bool(loaded)


def test_where_no_thread_can_be_started_nothing_comes_early(monkeypatch, object_code):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(link_module, "_preloader", None)
    link_module.anticipate()
    assert link_module._preloader is None
    link_module.block()
    link_module.unblock()
    assert link_module.link("late", object_code, ["kernel"])["kernel"]


def test_what_is_wrong_with_the_library_is_raised_when_it_is_needed(tmp_path):
    program = """
import pathlib, sys, threading
from tracejit.codegen.objects import linker
broken = pathlib.Path(sys.argv[1])
broken.write_bytes(b"no library")
linker.library_of_llvmlite = lambda: broken
linker.anticipate()
linker.block(), linker.unblock()
assert not linker._preloader.is_alive()
try:
    linker.host()
except OSError as error:
    print("no library" in str(error) or str(broken) in str(error))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "libllvmlite.so")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_waits_for_the_library(monkeypatch):
    """The system's loader has locks, too."""
    inside, go = threading.Event(), threading.Event()

    def slowly(path):
        inside.set()
        assert go.wait(60)

    monkeypatch.setattr(link_module, "_preload", slowly)
    monkeypatch.setattr(link_module, "_preloader", None)
    link_module.anticipate()
    assert inside.wait(60)
    threading.Timer(0.1, go.set).start()
    child = os.fork()
    if child == 0:
        os._exit(0 if go.is_set() and not link_module._preloader.is_alive() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_vectors_are_as_wide_as_is_fast():
    """What LLVM prefers for Intel's processors is for the first ones with vectors of 64 bytes."""
    assert machine.vector_width_feature("+avx2,+avx512f,+avx512vbmi2,-avx512fp16") == ",-prefer-256-bit"
    assert (
        machine.vector_width_feature("+avx2,+avx512f,-avx512vbmi2")
        == machine.vector_width_feature("+neon")
        == ""
    )
