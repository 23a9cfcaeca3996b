"""tracejit: record imperative array code once, replay it as fused Numba kernels on a dependency engine.

>>> import tracejit as tj
>>> @tj.jit
... def step(w, x, learning_rate):
...     w -= learning_rate * x
...     return (w * w).sum()
>>> w = tj.ones(3)
>>> float(step(w, tj.ones(3), 0.5))
0.75
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import tracejit.interpreter as _interpreter  # noqa: F401 - first: it refuses unsupported interpreters

# isort: split
from tracejit import data, distributed, engine, errors, kvstore, nn, optim
from tracejit.config import config
from tracejit.engine import profile
from tracejit.errors import TracejitError
from tracejit.frontend.arrays import fft, interop, linalg, namespace, random
from tracejit.frontend.arrays import trees as tree
from tracejit.frontend.arrays.devices import cpu, device, gpu
from tracejit.frontend.arrays.functions import NAMESPACE as _FUNCTIONS
from tracejit.frontend.arrays.hints import hint as _hint
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.arrays.surface import *
from tracejit.frontend.grad.reverse import grad, value_and_grad, vjp
from tracejit.frontend.jit.jit import Jitted, jit
from tracejit.frontend.jit.specs import Spec, spec
from tracejit.frontend.jit.vouch import callback, pure
from tracejit.frontend.recording.eager import wait_all
from tracejit.frontend.recording.ranges import range
from tracejit.frontend.transforms.checkpoint import checkpoint
from tracejit.frontend.transforms.custom import custom_gradient
from tracejit.frontend.transforms.forward import jvp, linearize
from tracejit.frontend.transforms.jacobian import hessian, jacobian
from tracejit.frontend.transforms.vmap import vmap
from tracejit.ir.types import Device

if TYPE_CHECKING:  # what is imported late
    from tracejit.drawing.drawing import Drawing
    from tracejit.frontend.arrays.io import load, save
    from tracejit.graphs.bound import BoundGraph
    from tracejit.graphs.export import export
    from tracejit.graphs.files import load_graph
    from tracejit.graphs.interface import GraphInterface
    from tracejit.graphs.kept import KeptGraph

__version__ = "0.1.0"


_LATE = {
    "BoundGraph": "tracejit.graphs.bound",
    "Drawing": "tracejit.drawing.drawing",
    "GraphInterface": "tracejit.graphs.interface",
    "KeptGraph": "tracejit.graphs.kept",
    "export": "tracejit.graphs.export",
    "load": "tracejit.frontend.arrays.io",
    "load_graph": "tracejit.graphs.files",
    "save": "tracejit.frontend.arrays.io",
}
"""Names and the modules that have them, which are imported at their first use."""


if not TYPE_CHECKING:  # to type checkers a name that is misspelt does not exist

    def __getattr__(name: str) -> Any:
        """Import files and kept graphs at their first use: the module for ZIP files takes 4 ms."""
        module = _LATE.get(name)
        if module is None:
            # Python adds to the error what may be meant.
            message = f"module 'tracejit' has no attribute {name!r}{_hint('module', name)}"
            raise AttributeError(message, name=name, obj=sys.modules[__name__])
        globals()[name] = found = getattr(importlib.import_module(module), name)
        return found


from_dlpack = interop.from_dlpack
__array_api_version__ = namespace.VERSION
__array_namespace_info__ = namespace.array_namespace_info
__all__ = [
    "BoundGraph",
    "Device",
    "Drawing",
    "GraphInterface",
    "Jitted",
    "KeptGraph",
    "NDArray",
    "Spec",
    "TracejitError",
    "callback",
    "checkpoint",
    "config",
    "cpu",
    "gpu",
    "custom_gradient",
    "data",
    "device",
    "distributed",
    "engine",
    "errors",
    "export",
    "fft",
    "from_dlpack",
    "grad",
    "hessian",
    "jacobian",
    "jit",
    "jvp",
    "kvstore",
    "linalg",
    "linearize",
    "load",
    "load_graph",
    "nn",
    "optim",
    "profile",
    "pure",
    "random",
    "range",
    "save",
    "spec",
    "tree",
    "value_and_grad",
    "vjp",
    "vmap",
    "wait_all",
    *_FUNCTIONS,
]
