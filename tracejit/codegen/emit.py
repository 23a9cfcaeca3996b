"""A `Spec` as the source of a kernel: readable Python for Numba.

    source = emit(spec, "cpu")      # defines kernel(block, lo, hi, scratch) -> status
    function = load_source(source)  # the Python function, to be compiled by `build_object`

The source imports what it uses, so it can be pasted into a file and read, changed or compiled there. Names:
``x0`` a pointer, ``n0`` an extent, ``i0`` an index, ``s0_1`` the stride of layout 0 along dimension 1,
``p0`` the place of layout 0 so far, ``v0`` a value, ``c0`` a number, ``t0`` an accumulator, ``row0`` a
scratch row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit.codegen.cpu.emit import emit_cpu
from tracejit.codegen.gpu.emit import emit_cuda
from tracejit.codegen.spec import Spec
from tracejit.errors import DeviceError

TARGETS: dict[str, Callable[[Spec], str]] = {"cpu": emit_cpu, "cuda": emit_cuda}


def emit(spec: Spec, target: str = "cpu") -> str:
    """The source of the kernel `spec` for `target`."""
    if target not in TARGETS:
        raise DeviceError(f"there is no code generator for {target!r}; the targets are {', '.join(TARGETS)}")
    return TARGETS[target](spec)


def load_source(source: str, name: str = "<kernel>") -> Callable[..., Any]:
    """The function ``kernel`` that `source` defines."""
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)
    return namespace["kernel"]
