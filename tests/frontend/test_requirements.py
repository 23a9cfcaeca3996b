"""Requirements of signatures: `explain()` compares the checks, not the words that show them."""

import gc
import types
import weakref

import tracejit as tj
from tracejit import config


def scaled(by):
    def scale(x):
        return x * by

    return scale


def test_two_functions_of_one_name_differ():
    @tj.jit
    def apply(function, x):
        return function(x)

    x = tj.ones(3)
    assert apply(scaled(2.0), x).tolist() == [2.0] * 3
    assert apply(lambda x: x + 1, x).tolist() == [2.0] * 3
    assert apply(lambda x: x + 2, x).tolist() == [3.0] * 3
    told = apply.explain()
    assert "-> another function test_two_functions_of_one_name_differ.<locals>.<lambda>" in told, told


def test_equal_requirements_of_other_recordings_do_not_differ():
    """Containers, dtypes, views and keys are compared by what they are, not by identity."""

    @tj.jit
    def total(tree, mode):
        return tree["a"][0].sum() + tree["b"]

    for mode in ("one", "two", "three"):
        total({"a": [tj.ones((2, 3))], "b": tj.ones(())}, mode)
    told = total.explain()
    changed = told[told.index("retraces:") :].splitlines()[1:3]
    assert changed == ["  mode: 'one' -> 'two'", "  mode: 'two' -> 'three'"] or len(changed) == 2, changed
    assert all(line.startswith("  mode: ") and ";" not in line for line in changed), changed


def test_warmed_signatures_of_two_functions_of_one_name_are_two():
    @tj.jit
    def apply(function, x):
        return function(x)

    for function in (lambda x: x * 2, lambda x: x * 2):
        apply.warm(function, tj.spec((3,)))
    assert apply.cache_info().signatures == 2
    apply.warm(function, tj.spec((3,)))
    assert apply.cache_info().signatures == 2


def test_globals_of_one_name_in_two_modules_are_two():
    modules = []
    for scale in (1.0, 5.0):
        module = types.ModuleType("settings")
        exec("def scaled(x): return x * scale", vars(module))
        module.scale = scale
        modules.append(module)
    one, other = modules

    @tj.jit
    def both(x):
        return one.scaled(x) + other.scaled(x)

    assert both(tj.ones(2)).tolist() == [6, 6]
    one.scale = 2.0
    assert both(tj.ones(2)).tolist() == [7, 7]
    told = both.explain()
    assert told[told.index("retraces:") :].splitlines()[1] == "  scale: 1.0 -> 2.0", told


def test_retraces_do_not_keep_what_evicted_signatures_required(monkeypatch):
    monkeypatch.setattr(config, "signatures", 2)

    @tj.jit
    def double(x, kind):
        return x * 2

    kinds = []
    for _ in range(6):
        kind = type("Kind", (), {})
        kinds.append(weakref.ref(kind))
        double(tj.ones(3), kind())
        del kind
    gc.collect()
    assert sum(kind() is not None for kind in kinds) <= 2
    assert double.explain().count("kind: Kind -> another Kind") == 5, double.explain()
