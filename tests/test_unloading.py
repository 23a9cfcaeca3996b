"""Machine code leaves the process when nobody can call it any more, and never before."""

import gc
import itertools
import random
import sys
import threading
from collections import OrderedDict

import numpy as np
import pytest

import tracejit as tj
from tests.counting import mappings
from tracejit.codegen.objects import build, linker, loader
from tracejit.codegen.objects.store import Entry
from tracejit.config import config
from tracejit.frontend.recording import eager

SOURCE = "def kernel(block, lo, hi, scratch):\n    return lo + {number}\n"

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture(autouse=True)
def few(tmp_path, monkeypatch):
    """An empty store, no kernel and no schedule in memory, and room for four kernels."""
    monkeypatch.setattr(config, "store", tmp_path)
    monkeypatch.setattr(loader, "_store", None)
    monkeypatch.setattr(loader, "KEPT", 4)
    monkeypatch.setattr(eager, "_schedules", OrderedDict())
    loader.forget()
    yield
    loader.forget()


def recipe(number):
    return loader.Recipe(f"kernel {number}", ("unloading", number), lambda: SOURCE.format(number=number))


@pytest.fixture
def stored():
    """Recipes of 400 kernels that are in the store: one, under many keys."""
    ((kernel, _),) = loader.load([recipe(0)])
    entry = loader.store().get(kernel.key)
    recipes = [recipe(number) for number in range(400)]
    for this in recipes[1:]:
        key = loader._key(this)
        loader.store().put(key, Entry(*entry[:6], key=key))
    return recipes


def origin(number):
    ((_, origin),) = loader.load([recipe(number)])
    return origin


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@linux
def test_a_compile_leaves_no_memory_of_llvm_behind():
    draft = build.draft(loader._functions(recipe(0), recipe(0).source(), build.EntryPoint))
    for _ in range(10):
        build.finish(draft)
    before = resident()
    for _ in range(100):
        build.finish(draft)
    assert resident() < before + (3 << 20)


@linux
def test_kernels_that_nobody_uses_take_no_mappings(stored):
    loader.load(stored[:20])
    before = len(mappings())
    for this in stored:
        loader.load([this])
    assert len(mappings()) <= before + 20
    assert len(loader._kernels) == loader.KEPT


@linux
def test_kernels_in_use_stay_where_they_are(stored):
    held = [kernel for kernel, _ in loader.load(stored[:50])]
    addresses = [kernel.addresses["kernel"] for kernel in held]
    for this in stored[50:150]:
        loader.load([this])
    ranges = mappings()
    assert all(any(start <= address < stop for start, stop in ranges) for address in addresses)
    again = loader.load(stored[:50])
    assert all(kernel is other for kernel, (other, _) in zip(held, again, strict=True))
    assert {origin for _, origin in again} == {"memory"}


def test_the_kernels_asked_for_last_are_kept(stored):
    loader.load(stored[:4])
    loader.load(stored[:1])
    loader.load(stored[4:6])
    assert [origin(number) for number in (0, 4, 5, 1)] == ["memory"] * 3 + ["loaded"]


def test_one_program_may_have_more_kernels_than_are_kept(stored):
    loaded = loader.load(stored[:30])
    assert len({kernel.addresses["kernel"] for kernel, _ in loaded}) == 30
    assert len(loader._kernels) == loader.KEPT


STEPS = (tj.negative, tj.abs, tj.sin, tj.tanh)
NUMPY = (np.negative, np.abs, np.sin, np.tanh)
STRUCTURES = list(itertools.islice(itertools.product(range(4), repeat=4), 0, 256, 16))


def chain(steps):
    """Functions of different structure; each one is a kernel."""

    def body(x):
        for step in steps:
            x = STEPS[step](x)
        return x

    return body


def expected(steps, x):
    for step in steps:
        x = NUMPY[step](x)
    return x


@linux
def test_functions_that_are_dropped_leave_nothing(monkeypatch):
    monkeypatch.setattr(eager, "SCHEDULES", 2)
    x, content = tj.ones(5000), np.ones(5000, "f4")

    def once():
        for steps in STRUCTURES:
            result = tj.jit(chain(steps))(x)
            np.testing.assert_allclose(result.numpy(), expected(steps, content), rtol=1e-5)
        del result
        gc.collect()
        loader.load([recipe(0)])  # the others go now

    once()
    before, size = len(mappings()), resident()
    for _ in range(20):
        once()
    assert len(mappings()) <= before + 30
    assert resident() <= size + (24 << 20)


@linux
def test_a_launch_in_flight_keeps_its_code(stored):
    """The function and all that was made of it are gone before its kernel begins."""
    go = threading.Event()
    first = tj.zeros(5000)
    tj.engine.wait_all()
    function = tj.jit(lambda x: tj.tanh(x) + 3)
    function(tj.ones(5000)).wait()
    tj.engine.push(lambda: go.wait(60), writes=[first])
    result = function(first)
    del function
    gc.collect()
    for this in stored[:50]:
        loader.load([this])
    go.set()
    np.testing.assert_allclose(result.numpy(), np.tanh(np.zeros(5000)) + 3, rtol=1e-5)


def test_threads_replay_and_drop_while_code_comes_and_goes(monkeypatch):
    monkeypatch.setattr(eager, "SCHEDULES", 3)
    content = np.linspace(-1, 1, 5000, dtype="f4")
    wanted = [expected(steps, content) for steps in STRUCTURES]
    failures = []

    def work(seed):
        rng, x, functions = random.Random(seed), tj.array(content), {}
        try:
            for _ in range(120):
                number = rng.randrange(len(STRUCTURES))
                function = functions.get(number)
                if function is None:
                    function = chain(STRUCTURES[number])
                    if rng.random() < 0.7:
                        function = functions[number] = tj.jit(function)
                results = [function(x) for _ in range(3)]
                del function  # nothing but the launches in flight may need it
                if len(functions) > 2:
                    del functions[rng.choice(list(functions))]
                if rng.random() < 0.2:
                    gc.collect()
                for result in results:
                    np.testing.assert_allclose(result.numpy(), wanted[number], rtol=1e-5, atol=1e-6)
        except BaseException as error:
            failures.append(error)

    unloaded, real = [], linker._linker().unload
    monkeypatch.setattr(
        linker._linker(), "unload", lambda tracker: (unloaded.append(tracker), real(tracker)), raising=False
    )
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(unloaded) > 50
