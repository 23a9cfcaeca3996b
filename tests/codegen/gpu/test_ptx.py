"""PTX of kernels for GPUs: its features, what ptxas makes of it, and sizes of launches."""

import functools
import importlib.util
import itertools
import pathlib
import re
import shutil
import subprocess

import pytest

from tests.codegen.cases import CASES
from tests.golden import check_golden
from tracejit.codegen.gpu.launch import EXTRA_SLOTS, THREADS, launch
from tracejit.codegen.gpu.product import product_source
from tracejit.codegen.lower import lower
from tracejit.codegen.objects.ptx import draft, finish
from tracejit.codegen.text import load_source
from tracejit.errors import DeviceError
from tracejit.kernels.gpu.target import nearest
from tracejit.targets import emit

GOLDEN = pathlib.Path(__file__).parent / "golden"
ARCHITECTURES = ("sm_75", "sm_90", "sm_120")
RELEASE = "13."
"""The releases of ptxas whose numbers of registers the table has."""


def kernels_of(name):
    """The kernels of a case that GPUs have: no epilogue of a product."""
    return [node for node in CASES[name]() if lower(node).product is None]


@functools.cache
def drafted(spec):
    """A kernel between Numba and LLVM."""
    return draft("kernel", load_source(emit(spec, "gpu")), len(spec.slot_names()) + len(EXTRA_SLOTS))


def ptx(name, processor="sm_90"):
    """The PTX of the first kernel of a case."""
    return finish(drafted(lower(kernels_of(name)[0]).spec), processor)


def ptxas():
    """The assembler, on the path or in NVIDIA's wheel; None if there is none."""
    found = shutil.which("ptxas")
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        found = found or next(map(str, pathlib.Path(folder).glob("*/bin/ptxas")), None)
    return found


@pytest.mark.parametrize("name", ["silu", "bias_and_relu", "symmetric"])
def test_maps_load_their_block_from_parameters_and_arrays_from_global_memory(name):
    text = ptx(name)
    assert "ld.param" in text
    assert "ld.global" in text
    assert not re.search(r"\b(ld|st)\.(local|b32|b64|f32|generic)\b", text)
    assert "bar.sync" not in text


def test_threads_combine_in_shared_memory_behind_barriers():
    text = ptx("long_sum")
    assert "st.shared" in text
    assert "ld.shared" in text
    assert "bar.sync" in text


LIBRARY = ["scatter_add", "argsort", "search_sorted", "conv2d_weight_gradient", "max_pool_gradient"]


@pytest.mark.parametrize("name", LIBRARY)
def test_kernels_written_by_hand_are_ptx(name):
    kernel = load_source(
        f'from tracejit.kernels.gpu.table import make\n\nkernel = make("{name}", "float32")\n'
    )
    text = finish(draft("kernel", kernel, 24), "sm_90")
    assert not re.search(r"\b(ld|st)\.(local|b32|b64|f32|generic)\b", text)
    assert ("bar.sync" in text or "barrier.sync" in text) == (name in ("argsort", "conv2d_weight_gradient"))


def test_products_keep_their_sums_in_registers():
    """Sixteen sums of a thread, multiplied and added at once, from shared memory."""
    text = finish(draft("kernel", load_source(product_source("float32", False, True)), 24), "sm_90")
    assert not re.search(r"\b(ld|st)\.(local|b32|b64|f32|generic)\b", text)
    assert len(re.findall(r"\bfma\.rn\.f32\b", text)) >= 16
    assert text.count("bar.sync") + text.count("barrier.sync") >= 2
    assert "ld.shared" in text


def test_failures_are_lowered_atomically():
    assert re.search(r"(atom|red)\S*\.global\S*\.min\.s64", ptx("embedding"))


def test_gpus_that_llvm_does_not_know_get_ptx_of_earlier_ones():
    assert [nearest(f"sm_{n}") for n in (75, 88, 90, 131)] == ["sm_75", "sm_87", "sm_90", "sm_120"]


def test_what_only_cpus_do_is_refused():
    (node,) = CASES["momentum"]()
    with pytest.raises(DeviceError, match="panel"):
        emit(lower(node).spec, "gpu")


@pytest.mark.skipif(
    ptxas() is None, reason="needs ptxas: pip install tracejit[ptxas], 47 MB, or NVIDIA's CUDA toolkit"
)
def test_what_ptxas_makes_of_it(tmp_path):
    """Registers of each kernel on each architecture; nothing is spilled."""
    version = subprocess.run([ptxas(), "--version"], capture_output=True, text=True, check=True).stdout
    rows = ["kernel          " + "".join(f"{a:>8}" for a in ARCHITECTURES)]
    for name in CASES:
        for number, node in enumerate(kernels_of(name)):
            used = [registers(drafted(lower(node).spec), a, tmp_path) for a in ARCHITECTURES]
            rows.append(f"{name + str(number or ''):16}" + "".join(f"{count:8}" for count in used))
    if f"release {RELEASE}" in version:  # others are free to allocate otherwise
        check_golden(GOLDEN / "registers.txt", "\n".join(rows))


def registers(kernel, architecture, folder):
    """How many registers a thread has."""
    file = folder / "kernel.ptx"
    file.write_text(finish(kernel, architecture))
    command = [ptxas(), "-v", f"-arch={architecture}", str(file), "-o", str(folder / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in done.stderr
    return int(re.search(r"Used (\d+) registers", done.stderr)[1])


@pytest.mark.parametrize("name", CASES)
def test_launches_are_within_bounds(name):
    for node, processors, most in itertools.product(CASES[name](), (1, 20, 132), (256, THREADS)):
        lowered = lower(node)
        (bx, by), (tx, ty), shared = launch(lowered, processors, most)
        assert 1 <= bx <= lowered.units
        assert tx * ty <= most
        assert 0 <= shared <= 48 << 10
        assert all(n & (n - 1) == 0 for n in (by, tx, ty))
        if lowered.spec.orientation == "rows":
            assert by == ty == 1


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("silu", (1 << 22,)),
        ("bias_and_relu", (1 << 12, 1 << 10)),
        ("softmax", (1 << 12, 1 << 10)),
        ("bias_gradient", (1 << 12, 1 << 13)),
        ("symmetric", (1 << 11,)),
        ("long_sum", (1 << 26,)),
    ],
)
def test_large_arrays_fill_a_device(name, shape):
    """With 64 processors, at least 512 threads on each."""
    (bx, by), (tx, ty), _ = launch(lower(CASES[name](*shape)[0]), 64, THREADS)
    assert bx * by * tx * ty >= 64 * 512
