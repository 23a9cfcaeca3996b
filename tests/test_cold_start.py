"""What a process pays for, and when: imports, and kernels that are compiled together."""

import gc
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from types import SimpleNamespace
from weakref import WeakValueDictionary

import pytest

from tracejit.assembly import link
from tracejit.assembly.loops import LOOP
from tracejit.codegen.objects import loader
from tracejit.config import config
from tracejit.errors import EngineError

SOURCE = """
from numba import int64
from tracejit.kernels.compiler.memory import slot

def kernel(block, lo, hi, scratch):
    return lo + {number}
"""
BROKEN = "def kernel(block, lo, hi, scratch):\n    return missing\n"


@pytest.fixture(autouse=True)
def empty_store(tmp_path, monkeypatch):
    """A kernel store without entries, and nothing in memory."""
    monkeypatch.setattr(config, "store", tmp_path)
    monkeypatch.setattr(loader, "_kernels", OrderedDict())
    monkeypatch.setattr(loader, "_alive", WeakValueDictionary())
    monkeypatch.setattr(loader, "_store", None)
    return tmp_path


def recipe(number, source=SOURCE):
    return loader.Recipe(f"kernel {number}", ("number", number), lambda: source.format(number=number))


def modules_after(program):
    """Names of the modules that a process has imported after running `program`."""
    program += "\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_import_is_light():
    imported = modules_after("import tracejit")
    heavy = {"numba", "llvmlite", "scipy_openblas32", "rich", "concurrent", "email", "logging"}
    heavy |= {"tempfile", "shutil", "zipfile", "random", "decimal", "fractions", "queue"}
    assert not heavy & imported - modules_after("import numpy")


def test_a_body_may_be_the_first_to_use_a_module_that_is_imported_late():
    program = """
import sys
import tracejit as tj

@tj.jit(strict=True)
def step(x):
    return tj.vmap(tj.nn.relu)(x) + tj.random.normal(x) + tj.linalg.norm(x) + tj.fft.fft(x).real

assert "tracejit.nn" not in sys.modules and "tracejit.frontend.transforms.vmap" not in sys.modules
for _ in range(3):
    step(tj.ones(4))
print(step.cache_info().traces, step.cache_info().replays, set(dir(tj)) >= set(tj.__all__))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "2", "True"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
@pytest.mark.parametrize("wanted", [None, "4"])
def test_blas_starts_no_threads_of_its_own(wanted):
    """Each of them would spin for a tenth of a second."""
    program = """
import os
from tracejit.kernels.gemm.blas import entry_points
before = len(os.listdir("/proc/self/task"))
assert entry_points()["sgemm"]
print(len(os.listdir("/proc/self/task")) - before, os.environ.get("OPENBLAS_NUM_THREADS"))
"""
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    environment |= {} if wanted is None else {"OPENBLAS_NUM_THREADS": wanted}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["0", str(wanted)]


def test_several_kernels_are_compiled_together_and_each_is_stored(empty_store):
    before = gc.isenabled(), sys.getswitchinterval()
    loaded = loader.load([recipe(n) for n in (1, 2, 3, 2)])
    assert [origin for _, origin in loaded] == ["compiled", "compiled", "compiled", "memory"]
    assert [kernel.name for kernel, _ in loaded] == ["kernel 1", "kernel 2", "kernel 3", "kernel 2"]
    assert len(list(empty_store.glob("*.kernel"))) == 3
    assert (gc.isenabled(), sys.getswitchinterval()) == before
    loader.forget()
    assert [origin for _, origin in loader.load([recipe(n) for n in (1, 2, 3)])] == ["loaded"] * 3


@pytest.mark.parametrize(("stored", "asked_for"), [(0, 2), (1, 1)])
def test_whoever_compiles_the_executor_stores_what_runs_loops_with_it(stored, asked_for, monkeypatch):
    asked = []

    def load(recipes):
        asked.append(recipes)
        return [(SimpleNamespace(addresses={recipe.name: 1}), "") for recipe in recipes]

    monkeypatch.setattr(link, "load", load)
    monkeypatch.setattr(link, "is_known", [link.EXECUTOR][:stored].__contains__)
    monkeypatch.setattr(link, "_executor", [])
    assert link.load_executor() == {"executor": 1}
    assert asked == [[link.EXECUTOR, LOOP][:asked_for]]


def test_a_kernel_is_known_where_it_is_in_memory_or_in_the_store(empty_store):
    assert not loader.is_known(recipe(1))
    loader.load([recipe(1)])
    assert loader.is_known(recipe(1))
    loader.forget()
    assert loader.is_known(recipe(1))
    assert not loader.is_known(recipe(2))
    loader.store().clear()
    assert not loader.is_known(recipe(1))


def test_generated_kernels_are_drafted_first(monkeypatch, empty_store):
    """LLVM, which works longer on them, is behind with them while Numba works on the others."""
    drafted, order = loader._drafted, []

    def draft(recipe):
        order.append(recipe.name)
        return drafted(recipe)

    monkeypatch.setattr(loader, "_drafted", draft)
    recipes = [recipe(1)._replace(handwritten=True), recipe(2), recipe(3)]
    assert [kernel.name for kernel, _ in loader.load(recipes)] == ["kernel 1", "kernel 2", "kernel 3"]
    assert order == ["kernel 2", "kernel 3", "kernel 1"]


def test_numba_and_llvm_work_side_by_side(monkeypatch):
    """While a kernel is being finished, the next one is drafted."""
    drafted, finished = loader._drafted, loader._finished
    second = threading.Event()

    def draft(recipe):
        if recipe.structure == ("number", 2):
            second.set()
        return drafted(recipe)

    def finish(draft):
        assert second.wait(60)
        return finished(draft)

    monkeypatch.setattr(loader, "_drafted", draft)
    monkeypatch.setattr(loader, "_finished", finish)
    assert [origin for _, origin in loader.load([recipe(1), recipe(2)])] == ["compiled"] * 2


def test_garbage_is_collected_while_llvm_works(monkeypatch):
    """What the collector would do right after a compile, and somebody would wait for."""
    finished, collect, collected = loader._finished, gc.collect, threading.Event()

    def note(*generation):
        collected.set()
        return collect(*generation)

    def finish(draft):
        assert collected.wait(60)
        return finished(draft)

    monkeypatch.setattr(gc, "collect", note)
    with monkeypatch.context() as patch:
        patch.setattr(loader, "_finished", finish)
        loader.load([recipe(1)])
    collected.clear()
    gc.disable()  # then nobody wants it
    try:
        loader.load([recipe(2)])
    finally:
        gc.enable()
    assert not collected.is_set()


def test_what_was_drafted_before_a_failure_is_finished():
    with pytest.raises(Exception, match="missing"):
        loader.load([recipe(1), recipe(2, BROKEN), recipe(3)])
    origins = [origin for _, origin in loader.load([recipe(1), recipe(2), recipe(3)])]
    assert origins == ["memory", "compiled", "compiled"]


def test_a_failure_of_llvm_is_raised_and_leaves_nothing_behind(monkeypatch):
    finished = loader._finished

    def fail(draft):
        if draft.recipe.structure == ("number", 1):
            raise RuntimeError("LLVM is not well")
        return finished(draft)

    before = gc.isenabled(), sys.getswitchinterval()
    with monkeypatch.context() as patch:
        patch.setattr(loader, "_finished", fail)
        with pytest.raises(RuntimeError, match="not well"):
            loader.load([recipe(1), recipe(2)])
    assert (gc.isenabled(), sys.getswitchinterval()) == before
    assert [origin for _, origin in loader.load([recipe(1), recipe(2)])] == ["compiled", "memory"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_during_a_compile_compiles_in_a_process_of_its_own(monkeypatch):
    """Numba and LLVM have locks; the child would wait forever for one that a thread of its parent held."""
    drafted, inside, leave = loader._drafted, threading.Event(), threading.Event()

    def slowly(recipe):
        inside.set()
        assert leave.wait(60)
        return drafted(recipe)

    monkeypatch.setattr(loader, "_drafted", slowly)
    thread = threading.Thread(target=loader.load, args=([recipe(1)],))
    thread.start()
    assert inside.wait(60)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            loaded = loader.load([recipe(1), recipe(2), recipe(1)])
            os.write(write, " ".join(origin for _, origin in loaded).encode())
            loader.load([recipe(3, BROKEN)])
        except EngineError as error:
            os.write(write, b" missing" if "missing" in str(error) else b" another error")
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as pipe:
        assert pipe.read() == "compiled compiled memory missing"
    assert os.waitpid(child, 0)[1] == 0
    leave.set()
    thread.join()


@pytest.mark.parametrize(
    "change",
    [
        {"object_code": b"no object"},
        {"object_code": b""},
        {"metadata": {}},
        {"metadata": {"symbols": ["other"], "width": 1}},
        {"metadata": {"symbols": [], "width": 1}},
        {"metadata": {"symbols": [3], "width": 1}},
        {"metadata": {"symbols": ["kernel"], "width": "wide"}},
    ],
)
def test_a_stored_kernel_that_cannot_be_loaded_is_compiled_again(change):
    ((kernel, _),) = loader.load([recipe(1)])
    store = loader.store()
    good = store.get(kernel.key)
    store.put(kernel.key, good._replace(**change))
    hits = store.hits
    loader.forget()
    ((again, origin),) = loader.load([recipe(1)])
    assert origin == "compiled"
    assert again.addresses["kernel"]
    assert store.misses[kernel.key].startswith("damaged: cannot be loaded")
    assert store.hits == hits
    loader.forget()
    assert [origin for _, origin in loader.load([recipe(1)])] == ["loaded"]
    assert store.get(kernel.key).object_code == good.object_code


REFUSED = {
    "free-threaded": "import sys; sys.abiflags = 't'; import tracejit",
    "free-threaded build": "import sys; sys.version = '3.13.0 free-threading build'; import tracejit",
}
IN_A_SUBINTERPRETER = """
try:
    import _interpreters as interpreters
    new = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    new = interpreters.create(isolated=False)
program = "import sys\\ntry:\\n import tracejit\\nexcept ImportError as e:\\n print(e, file=sys.stderr)"
interpreters.run_string(new, program)
raise SystemExit(1)
"""


@pytest.mark.parametrize(
    ("sentence", "program"), [*REFUSED.items(), ("this is a subinterpreter", IN_A_SUBINTERPRETER)]
)
def test_interpreters_without_what_is_needed_are_refused(sentence, program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError" in done.stderr or "tracejit" in done.stderr
    assert sentence in done.stderr
