"""Generated sources as text, for review."""

import pathlib
import re

import numpy as np
import pytest

from tests.codegen import runner
from tests.codegen.cases import CASES, arguments
from tests.golden import check_golden
from tracejit.codegen.lower import lower
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.text import load_source
from tracejit.errors import DeviceError
from tracejit.targets import emit

GOLDEN = pathlib.Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    "name", ["silu", "bias_and_relu", "symmetric", "softmax", "bias_gradient", "embedding", "momentum"]
)
def test_cpu_source(name):
    (node,) = CASES[name]()
    check_golden(GOLDEN / f"{name}.py.txt", emit(lower(node).spec))


@pytest.mark.parametrize("name", ["silu", "softmax", "bias_gradient"])
def test_gpu_source(name):
    (node,) = CASES[name]()
    check_golden(GOLDEN / f"{name}_gpu.py.txt", emit(lower(node).spec, "gpu"))


@pytest.mark.parametrize("name", CASES)
def test_the_cases_compute_what_they_say(name):
    rng = np.random.default_rng(0)
    for node in CASES[name]():
        runner.check(node, list(arguments(node)), rng=rng, exact=False)


def test_shapes_and_literals_are_not_in_a_spec():
    small, large = (CASES["softmax"](*shape)[0] for shape in ((4, 30), (7, 2000)))
    assert lower(small).spec == lower(large).spec
    assert lower(small).slots != lower(large).slots


def test_unknown_targets_are_refused():
    (node,) = CASES["silu"]()
    with pytest.raises(DeviceError, match="kinds cpu and gpu"):
        emit(lower(node).spec, "tpu")


@pytest.mark.parametrize("name", [name for name in CASES if name != "running_sum"])
def test_inner_loops_are_vectors(name):
    """A running sum is one addition after the other; everything else uses vector registers."""
    node = CASES[name]()[0]
    built = build_object([EntryPoint("kernel", load_source(emit(lower(node).spec)))])
    vector = r"<\d+ x float>" if any(v.type.dtype == np.float32 for v in node.inputs) else r"<\d+ x i64>"
    assert re.search(rf"(load|fadd|fmul|call) .*{vector}", built.llvm_ir)
