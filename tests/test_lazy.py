"""Names that are imported at their first use are those of their modules, inside traced bodies too."""

import importlib
import os
import subprocess
import sys

import pytest

import tracejit as tj
from tracejit import lazy

LAZY = {
    "tracejit": {**tj._LAZY_NAMES, **dict.fromkeys(tj._LAZY_MODULES)},
    "tracejit.nn": {**tj.nn._ORIGINS, "init": None},
}


@pytest.mark.parametrize("package", LAZY)
def test_lazy_names_are_those_of_their_modules(package):
    namespace = importlib.import_module(package)
    for name, origin in LAZY[package].items():
        value = getattr(namespace, name)
        if origin is None:
            assert value is sys.modules[value.__name__]
        else:
            assert value is getattr(importlib.import_module(origin), name)
        assert name in dir(namespace)
        assert name in vars(namespace)  # the next use looks no further


def test_the_public_names_of_nn_are_those_of_its_modules():
    for module, names in tj.nn._MODULES.items():
        assert sorted(names.split()) == sorted(importlib.import_module(f"tracejit.nn.{module}").__all__)
    namespace = {}
    exec("from tracejit.nn import *", namespace)
    assert namespace["relu"] is tj.nn.relu


def test_the_start_imports_none_of_them():
    program = "import sys, tracejit; print([m for m in sys.modules if m.startswith('tracejit.')])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded = set(eval(shown))
    lazy_modules = {*tj._LAZY_NAMES.values(), *tj._LAZY_MODULES.values(), *tj.nn._ORIGINS.values()}
    assert not loaded & lazy_modules


def test_the_first_use_may_be_in_a_traced_body():
    program = """
import numpy as np, tracejit as tj

@tj.jit(strict=True)  # an error if it were piecewise
def f(x):
    return tj.nn.dropout(tj.nn.relu(x), 0.0) + tj.value_and_grad(lambda y: (y * y).sum())(x)[1]

x = tj.asarray([1.0, -2.0])
for _ in range(3):
    np.testing.assert_array_equal(np.asarray(f(x)), [3.0, -4.0])
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_imports_are_not_part_of_the_body_that_needs_them():
    """Import hooks of others run in an import, and what they call would make a body piecewise."""
    program = """
import sys, time
import numpy as np, numpy.fft, numpy.linalg, tracejit as tj

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        time.time()  # refused in a body that is replayed

sys.meta_path.insert(0, Finder)

@tj.jit(strict=True)
def root(x):  # a loop over looks, which becomes a native one
    rounds = 0
    while float(abs(x * x - 2.0)) > 1e-9 and rounds < 200:
        x = x - (x * x - 2.0) * 0.1 / x
        rounds += 1
    return x

@tj.jit(strict=True)
def count(a):  # elements looked at in a plain loop
    found = 0
    for i in range(len(a)):
        if a[i] > 0.5:
            found += 1
    return found

@tj.jit(strict=True)
def rolled(x):
    def loss(x):
        y = x
        for _ in tj.range(50):
            y = y * 0.9 + x
        return (y * y).sum()
    return tj.value_and_grad(loss)(x)

@tj.jit(strict=True)
def unrolled(x):
    for _ in range(60):
        x = tj.sin(x) * 0.5 + x
    x = tj.nn.dropout(x, 0.5) + tj.random.normal(size=4)
    return np.linalg.inv(tj.eye(3) * x.sum()) + np.fft.rfft(x).real.sum() + tj.vmap(lambda y: y * 2)(x).sum()

for _ in range(3):
    root(tj.asarray(1.0)), count(tj.asarray(np.linspace(0, 1, 300))), rolled(tj.ones(4)), unrolled(tj.ones(4))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_first_uses_and_compilations_at_exit_need_no_thread(tmp_path):
    """As in Python 3.12 when the interpreter ends."""
    program = """
import atexit, threading
import tracejit as tj

def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")

@atexit.register
def last():
    threading.Thread.start = refuse
    x = tj.asarray([-1.0, 2.0])
    print(tj.nn.relu(x) * 3, tj.jit(lambda x: tj.sin(x).sum())(x * 0))

print(tj.jit(lambda x: tj.exp(x) + 1)(tj.zeros(2)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TRACEJIT_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("[2. 2.]\n[0. 6.] 0.0\n", "")


def test_unknown_names_are_attribute_errors_with_suggestions():
    with pytest.raises(AttributeError, match=r"^module 'tracejit.nn' has no attribute 'reluu'") as caught:
        tj.nn.reluu  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("reluu", tj.nn)


def test_errors_of_an_import_reach_the_first_use():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        lazy.attribute("tracejit.nn", "anything", {"anything": "tracejit.nn.no_such_module"})


def test_present_objects_become_old_and_stay_collectable():
    program = """
import gc, weakref
from tracejit import collector

class Node: pass

node = Node()
node.itself, gone = node, weakref.ref(node)
collector.keep()
assert gc.get_freeze_count() == 0
assert not any(o is node for o in gc.get_objects(generation=0))
del node
gc.collect()
assert gone() is None
gc.freeze()
frozen = gc.get_freeze_count()
collector.keep()
assert gc.get_freeze_count() >= frozen > 0, "what the user has frozen remains frozen"
"""
    subprocess.run([sys.executable, "-c", program], check=True)
