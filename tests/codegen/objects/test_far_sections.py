"""Code is linked where the address space has small holes only: its parts must not be far apart."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

BODY = """
    import ctypes
    import mmap
    import sys

    from tracejit.codegen.objects import linker, machine
    from tracejit.codegen.objects.build import EntryPoint, build_object
    from tracejit.kernels.library.table import LIBRARY

    PAGE, GIB = mmap.PAGESIZE, 1 << 30
    c = ctypes.CDLL(None)
    c.mmap.restype = ctypes.c_void_p
    c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    PRIVATE_ANONYMOUS_NORESERVE = 0x2 | 0x20 | 0x4000

    def reserve(size):
        return c.mmap(None, size, 0, PRIVATE_ANONYMOUS_NORESERVE, -1, 0)

    way = {"directly": linker._linker(), "machine": machine}[sys.argv[1]]
    code = build_object([EntryPoint("kernel", LIBRARY["gemm", "float64"])]).object_code
    way.link("first", code, ["kernel"])
    for holes in range(1, 9):
        block = reserve(8 * GIB)
        for size in (GIB, GIB >> 6, GIB >> 12, PAGE):  # no hole above the block remains
            while (address := reserve(size)) > block:
                pass
            c.munmap(address, size)
        c.munmap(block + 8 * GIB - holes * PAGE, holes * PAGE)
        way.link(f"next to {holes}", code, ["kernel"])
    print("all linked")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="places mappings as Linux does")
@pytest.mark.parametrize("way", ["directly", "machine"])
def test_code_and_its_constants_are_not_far_apart(way: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(BODY), way]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "all linked\n", done.stderr
