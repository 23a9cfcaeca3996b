"""One record for each kind of device decides sizes, costs, emitter and launcher."""

import pkgutil
import subprocess
import sys

import numpy as np
import pytest

from tests.codegen.cases import CASES, kernels
from tracejit import device_kinds, ops, passes, targets, tuning
from tracejit.codegen.lower import lower
from tracejit.compile import compile_graph
from tracejit.errors import DeviceError
from tracejit.ir.graph import Builder
from tracejit.ir.op import OPS, Trait
from tracejit.ir.types import CPU, ArrayType, Device
from tracejit.kernels.attention.plan import CALLS
from tracejit.kernels.images.windows import WINDOWS
from tracejit.passes import rolling
from tracejit.passes.memory.timing import cost

F4 = np.dtype("float32")


def total(device, rows=4096, columns=64):
    """The kernels of a sum over the rows of an array."""
    b = Builder()
    x = b.input(ArrayType((rows, columns), F4, device))
    return kernels(b.graph([b.emit(ops.sum, b.emit(ops.exp, x), axes=(0,))]))


def test_targets_and_tunings_are_of_the_same_kinds():
    assert device_kinds.KINDS.keys() == targets.TARGETS.keys() == tuning.TUNINGS.keys()
    for kind, target in targets.TARGETS.items():
        assert target.tuning is tuning.tuning_of(Device(kind))
    assert targets.target_of(CPU).job is not targets.target_of(Device("gpu")).job


def test_a_device_s_number_says_its_name():
    for kind in device_kinds.KINDS:
        for index in (0, 1, device_kinds.MAX_DEVICES - 1):
            assert device_kinds.device_name(Device(kind, index).number) == f"{kind}:{index}"


def test_numbers_alone_are_the_cpu_s():
    b = Builder()
    assert tuning.tuning_of_values([]) is tuning.tuning_of(CPU)
    assert tuning.tuning_of_values([b.input(ArrayType((), F4, Device("host")))]) is tuning.tuning_of(CPU)


def test_devices_without_a_target_are_refused():
    device = Device("tpu")
    b = Builder()
    x = b.input(ArrayType((3,), F4, device))
    with pytest.raises(DeviceError, match=str(device)):
        compile_graph(b.graph([b.emit(ops.exp, x)]))


def test_unknown_kinds_are_refused_wherever_numbers_are_asked_for():
    with pytest.raises(DeviceError, match="no target for tpu:0"):
        total(Device("tpu"))
    with pytest.raises(DeviceError, match="no target for tpu:0"):
        targets.target_of(Device("tpu"))


def test_every_device_has_its_own_numbers(monkeypatch, nothing_known):
    """Splits, units, costs and traffic of a body follow from the device it is on, and from no other."""
    gpu = Device("gpu")

    def facts(device):
        nothing_known()
        nodes = total(device)
        return [(n.op.name, lower(n).spec, lower(n).units, lower(n).chunk, cost(n)) for n in nodes]

    before = facts(CPU)
    assert facts(gpu) == before
    numbers = tuning.tuning_of(gpu)
    caches = numbers.caches._replace(private=0, last=1 << 12)
    units = numbers.units._replace(columns=16, uncached_columns=16, row_pieces=4, nanoseconds=1000)
    costs = numbers.costs._replace(transcendental=1000)
    changed = numbers._replace(caches=caches, units=units, costs=costs)
    monkeypatch.setitem(tuning.TUNINGS, "gpu", changed)
    after = facts(gpu)
    assert facts(CPU) == before
    assert after[0][1].lines == units.lines != before[0][1].lines
    assert after[0][2] == 4 * (64 // 16) != before[0][2]  # pieces, tiles of columns
    assert after[0][4] > before[0][4]


def test_emitters_are_asked_by_kind():
    (node,) = CASES["silu"]()
    spec = lower(node).spec
    assert targets.emit(spec) == targets.target_of(CPU).emit(spec)
    assert "block_x()" in targets.emit(spec, "gpu")


def test_operators_that_run_alone_have_a_kernel_and_a_cost():
    alone = {op.name for op in OPS.values() if Trait.LIBRARY in op.traits}
    tiles = {"winograd_conv2d", "winograd_input_gradient", "winograd_weight_sums"}
    assert alone == {"matmul", *WINDOWS, *tiles, *CALLS}
    assert {op.name for op in OPS.values() if op.work is not None} == alone


def test_nothing_of_a_gpu_is_imported_before_one_is_named():
    program = "import sys, tracejit as tj; tj.ones(3) + 1; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = [name for name in done.stdout.split() if name.startswith("tracejit")]
    assert "tracejit.targets.gpu" in loaded
    assert not [name for name in loaded if "engine.cuda" in name or "codegen.gpu" in name or "_gpu" in name]


def test_passes_that_targets_name_exist():
    paths = [*passes.__path__, *rolling.__path__]
    names = {module.name for module in pkgutil.iter_modules(paths)}
    assert frozenset().union(*(each.passes for each in tuning.TUNINGS.values())) <= names
