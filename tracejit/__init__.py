"""tracejit: record imperative array code once, replay it as fused Numba kernels on a dependency engine.

>>> import tracejit as tj
>>> @tj.jit
... def step(w, x, learning_rate):
...     w -= learning_rate * x
...     return (w * w).sum()
>>> w = tj.ones(3)
>>> float(step(w, tj.ones(3), 0.5))
0.75

Packages and modules, from users down; each imports only those to its right and below:

    cli, launcher            the command ``tracejit``; the start of programs on several ranks
    kvstore                  a store of weights by key, with MXNet's interface
    distributed              ranks: collectives, sharding, checkpoints
    nn, optim, data          layers and losses; optimizers; prefetching of batches
    graphs                   exported functions: text, file, calls
    numpy                    NumPy's names with NumPy's defaults
    frontend                 arrays, the recorder, `jit`, gradients and other transformations
    drawing                  pictures of graphs
    compile                  a graph to a schedule
    targets                  one record per kind of device
    assembly                 planned tasks to a program of the engine
    codegen, engine, passes  kernels; tasks, threads and memory; graph to graph, and to memory plan
    loopnest                 the computation of one kernel
    tuning                   sizes and costs by kind of device
    ops                      one declaration per operator
    ir                       types, graphs, views
    config, collector, device_kinds, forking, interpreter, lazy, errors
                             for all layers: settings, pauses of the garbage collector, kinds of devices,
                             locks that survive a fork, the check of the interpreter, names that are imported
                             at their first use, errors

`tracejit.kernels` (the folder ``kernels/``) is below `ir`. `docs/architecture.md` follows a call through
these layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tracejit.interpreter as _interpreter  # noqa: F401 - first: it refuses unsupported interpreters

# isort: split
from tracejit import collector as _collector
from tracejit import lazy as _lazy

with _collector.suspended():  # collections would take a tenth of the import
    from tracejit import engine, errors
    from tracejit.config import config
    from tracejit.engine import profile
    from tracejit.errors import TracejitError
    from tracejit.frontend.arrays import interop, namespace
    from tracejit.frontend.arrays import trees as tree
    from tracejit.frontend.arrays.devices import cpu, device, gpu
    from tracejit.frontend.arrays.functions import NAMESPACE as _FUNCTIONS
    from tracejit.frontend.arrays.hints import hint as _hint
    from tracejit.frontend.arrays.ndarray import NDArray
    from tracejit.frontend.arrays.surface import *
    from tracejit.frontend.jit.jit import Jitted, jit
    from tracejit.frontend.jit.specs import Spec, spec
    from tracejit.frontend.jit.vouch import callback, pure
    from tracejit.frontend.recording.eager import wait_all
    from tracejit.frontend.recording.ranges.ranges import range
    from tracejit.ir.types import Device

    _collector.keep()

if TYPE_CHECKING:  # names that are imported late
    from tracejit import data, distributed, kvstore, nn, optim
    from tracejit.drawing.drawing import Drawing
    from tracejit.frontend.arrays import fft, linalg, random
    from tracejit.frontend.arrays.io import load, save
    from tracejit.frontend.grad.reverse import grad, value_and_grad, vjp
    from tracejit.frontend.transforms.checkpoint import checkpoint
    from tracejit.frontend.transforms.control import cond, fori_loop, scan, switch, while_loop
    from tracejit.frontend.transforms.custom import custom_gradient
    from tracejit.frontend.transforms.forward import jvp, linearize
    from tracejit.frontend.transforms.jacobian import hessian, jacobian
    from tracejit.frontend.transforms.vmap import vmap
    from tracejit.graphs.bound import BoundGraph
    from tracejit.graphs.export import export
    from tracejit.graphs.files import load_graph
    from tracejit.graphs.interface import GraphInterface
    from tracejit.graphs.kept import KeptGraph

__version__ = "0.1.0"


_LAZY_MODULES = {
    "data": "tracejit.data",
    "distributed": "tracejit.distributed",
    "fft": "tracejit.frontend.arrays.fft",
    "kvstore": "tracejit.kvstore",
    "linalg": "tracejit.frontend.arrays.linalg",
    "nn": "tracejit.nn",
    "optim": "tracejit.optim",
    "random": "tracejit.frontend.arrays.random",
}
"""Modules of the package that are imported at their first use."""
_LAZY_NAMES = {
    "BoundGraph": "tracejit.graphs.bound",
    "Drawing": "tracejit.drawing.drawing",
    "GraphInterface": "tracejit.graphs.interface",
    "KeptGraph": "tracejit.graphs.kept",
    "checkpoint": "tracejit.frontend.transforms.checkpoint",
    "cond": "tracejit.frontend.transforms.control",
    "custom_gradient": "tracejit.frontend.transforms.custom",
    "export": "tracejit.graphs.export",
    "fori_loop": "tracejit.frontend.transforms.control",
    "grad": "tracejit.frontend.grad.reverse",
    "hessian": "tracejit.frontend.transforms.jacobian",
    "jacobian": "tracejit.frontend.transforms.jacobian",
    "jvp": "tracejit.frontend.transforms.forward",
    "linearize": "tracejit.frontend.transforms.forward",
    "load": "tracejit.frontend.arrays.io",
    "load_graph": "tracejit.graphs.files",
    "save": "tracejit.frontend.arrays.io",
    "scan": "tracejit.frontend.transforms.control",
    "switch": "tracejit.frontend.transforms.control",
    "value_and_grad": "tracejit.frontend.grad.reverse",
    "vjp": "tracejit.frontend.grad.reverse",
    "vmap": "tracejit.frontend.transforms.vmap",
    "while_loop": "tracejit.frontend.transforms.control",
}
"""Names and the modules that define them, which are imported at their first use."""


if not TYPE_CHECKING:  # so that type checkers report a misspelt name

    def __getattr__(name: str) -> Any:
        try:
            return _lazy.attribute(__name__, name, _LAZY_NAMES, _LAZY_MODULES)
        except AttributeError as error:
            if error.name == name:
                error.args = (f"{error}{_hint('module', name)}",)
            raise

    def __dir__() -> list[str]:
        """List all names, including those imported lazily."""
        return sorted({*globals(), *_LAZY_MODULES, *_LAZY_NAMES})


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
    "cond",
    "config",
    "cpu",
    "custom_gradient",
    "data",
    "device",
    "distributed",
    "engine",
    "errors",
    "export",
    "fft",
    "fori_loop",
    "from_dlpack",
    "gpu",
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
    "scan",
    "spec",
    "switch",
    "tree",
    "value_and_grad",
    "vjp",
    "vmap",
    "wait_all",
    "while_loop",
    *_FUNCTIONS,
]
