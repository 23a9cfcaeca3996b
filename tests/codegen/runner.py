"""Compiles and runs one fused node on NumPy arrays, unit by unit, and compares it with the evaluator."""

import ctypes
import functools
import itertools
import sys

import numpy as np

from tracejit import ops
from tracejit.codegen.lower import lower
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.linker import link
from tracejit.codegen.spec import AddressSlot, IntegerSlot
from tracejit.codegen.text import load_source
from tracejit.ir.evaluate import evaluate_node
from tracejit.ir.graph import Node, Value
from tracejit.ir.types import HALVES
from tracejit.passes.memory.aliases import overwrites
from tracejit.targets import emit

SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)


@functools.cache
def compiled(spec):
    """The machine code of a spec, as a ctypes function."""
    built = build_object([EntryPoint("kernel", load_source(emit(spec)))])
    return SIGNATURE(link("kernel", built.object_code, ["kernel"])["kernel"])


def fused_node(body, kind="map", **attrs):
    """A `fused` node around `body`, which is also its own graph."""
    outputs = tuple(Value(v.type) for v in body.outputs)
    return Node(ops.fused, body.inputs, outputs, {"body": body, "kind": kind, **attrs})


def argument_block(lowered, buffers):
    """The block of a kernel; `buffers` are arrays (memory) and numbers, in the order of the operands."""
    block = np.zeros(len(lowered.slots), np.int64)
    for position, slot in enumerate(lowered.slots):
        if isinstance(slot, IntegerSlot):
            block[position] = slot.value
        elif isinstance(slot, AddressSlot):
            block[position] = buffers[slot.operand].ctypes.data + slot.byte_offset
        else:
            raw = np.asarray(buffers[slot.operand]).tobytes()[slot.byte_offset :][:8]
            block[position] = int.from_bytes(raw.ljust(8, b"\0"), sys.byteorder, signed=True)
    return block


def run(node, arrays, shared=(), rng=None):
    """Outputs and status of `node` on copies of `arrays`, in random chunks of units in random order."""
    lowered = lower(node, shared)
    buffers = [np.array(a, order="C") for a in arrays]
    sources = dict(shared)
    sources.update(overwrites(node))
    for position, value in enumerate(node.outputs):
        if position in sources:
            buffers.append(buffers[sources[position]].reshape(value.type.shape))
        else:
            buffers.append(np.full(value.type.shape, 77, value.type.dtype))
    product, panels = lowered.product, None
    if product is not None:
        a, b = (v.read(buffers[i]) for i, v in ((product.a, product.a_view), (product.b, product.b_view)))
        panels = a @ b
        if product.result is not None:
            buffers[product.result].reshape(panels.shape)[...] = panels
    status = run_units(lowered, buffers, rng, panels) if lowered.spec.sections else 0
    return buffers[len(arrays) :], status


def run_units(lowered, buffers, rng=None, product=None):
    """Call the kernel on chunks of [0, units); the part of `product` that a call reads may lie in scratch."""
    function = compiled(lowered.spec)
    block = argument_block(lowered, buffers)
    in_scratch = lowered.spec.panel >= 0
    panel = product.reshape(-1, product.shape[-1]) if in_scratch else np.zeros((0, 0))
    scratch = np.zeros((lowered.scratch + panel.nbytes) // 8 + 16, np.int64)
    place = -(-scratch.ctypes.data // 64) * 64
    cuts = [0, lowered.units]
    if rng is not None and lowered.units > 1:
        cuts = sorted({0, lowered.units, *rng.integers(0, lowered.units, 3).tolist()})
    chunks = list(itertools.pairwise(cuts))
    if rng is not None:
        rng.shuffle(chunks)
    status = 0
    for lo, hi in chunks:
        rows = panel[lo:hi].tobytes()
        ctypes.memmove(place + lowered.scratch, rows, len(rows))
        status = status or function(block.ctypes.data, int(lo), int(hi), place)
    return status


def expected(node, arrays):
    """What the evaluator says."""
    with np.errstate(all="ignore"):
        return evaluate_node(node, arrays)


def multiplies_complex_numbers(node):
    """Whether the body of `node` computes with complex numbers: NumPy rounds their products differently."""
    return any(
        any(v.type.dtype.kind == "c" for v in inner.inputs)
        and not inner.op.is_exact([v.type.dtype for v in inner.inputs])
        for inner in node.attrs["body"].nodes
    )


def check(node, arrays, shared=(), rng=None, exact=True, tolerance=1e-5):
    """The kernel's outputs equal the evaluator's: bit for bit, or within `tolerance`."""
    results, status = run(node, arrays, shared, rng)
    assert status == 0
    exact = exact and not multiplies_complex_numbers(node)
    for got, wanted in zip(results, expected(node, arrays), strict=True):
        assert got.dtype == wanted.dtype
        if got.dtype in HALVES:  # NumPy knows no nan in bfloat16
            got, wanted = got.astype(np.float32), wanted.astype(np.float32)
        if exact or got.dtype.kind not in "fc":
            np.testing.assert_array_equal(got, wanted)
            if got.dtype.kind == "f":
                numbers = ~np.isnan(wanted)
                np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(wanted)[numbers])
        else:
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
