"""Counterparts of names from other libraries, shown in errors about missing names.

>>> import tracejit as tj
>>> tj.cat
Traceback (most recent call last):
AttributeError: module 'tracejit' has no attribute 'cat'; use tj.concat
"""

from __future__ import annotations

from typing import Any

_MODULE = {
    "cat": "tj.concat",
    **dict.fromkeys(("tensor", "as_tensor", "from_numpy"), "tj.asarray"),
    **dict.fromkeys(("Tensor", "Array"), "tj.NDArray"),
    **dict.fromkeys(("mm", "bmm"), "tj.matmul"),
    "topk": "tj.top_k",
    "clamp": "tj.clip",
    "gather": "tj.take_along_axis",
    "scatter": "tj.put_along_axis or tj.scatter_add",
    "index_select": "tj.take",
    "masked_fill": "tj.where",
    "permute": "tj.permute_dims",
    "unsqueeze": "tj.expand_dims",
    "chunk": "tj.array_split",
    "unbind": "tj.unstack",
    "numel": "x.size",
    "segment_sum": "tj.scatter_add",
    "bucketize": "tj.searchsorted",
    "histc": "tj.histogram",
    "relu": "tj.nn.relu",
    "softmax": "tj.nn.softmax",
    "log_softmax": "tj.nn.log_softmax",
    "logsumexp": "tj.nn.logsumexp",
    "one_hot": "tj.nn.one_hot",
    "expit": "tj.sigmoid",
    "norm": "tj.linalg.norm",
    "det": "tj.linalg.det",
    "inverse": "tj.linalg.inv",
    "svd": "tj.linalg.svd",
    "rand": "tj.random.uniform",
    **dict.fromkeys(("randn", "normal"), "tj.random.normal"),
    "randint": "tj.random.integers",
    "randperm": "tj.random.permutation",
    "bernoulli": "tj.random.bernoulli",
    "manual_seed": "tj.random.seed",
    **dict.fromkeys(("jacrev", "jacfwd"), "tj.jacobian"),
    "custom_vjp": "tj.custom_gradient",
    "remat": "tj.checkpoint",
    "tree_map": "tj.tree.map",
    "tree_util": "tj.tree",
    "lax": "tj.scan, tj.fori_loop, tj.while_loop, tj.cond, or Python's for, while and if",
    **dict.fromkeys(("pmap", "vectorize"), "tj.vmap"),
    "device_put": "x.to",
    "block_until_ready": "x.wait or tj.wait_all",
    "debug": "tj.callback",
    "long": "tj.int64",
    "double": "tj.float64",
    "half": "tj.float16",
    "no_grad": "nothing, as only tj.grad and its kin take gradients",
}

_ARRAY = {
    "unsqueeze": "tj.expand_dims",
    "permute": "x.transpose",
    "t": "x.T",
    "dim": "x.ndim",
    "numel": "x.size",
    "contiguous": "tj.ascontiguousarray",
    "expand": "tj.broadcast_to",
    "detach": "tj.stop_gradient",
    "clone": "x.copy",
    **dict.fromkeys(("backward", "grad", "requires_grad"), "tj.grad"),
    **dict.fromkeys(("cpu", "cuda"), "x.to"),
    "type": "x.astype",
    "add_": "x += y",
    "mul_": "x *= y",
    "float": "x.astype(tj.float32)",
    "double": "x.astype(tj.float64)",
    "half": "x.astype(tj.float16)",
    "long": "x.astype(tj.int64)",
    "int": "x.astype(tj.int32)",
    "bool": "x.astype(tj.bool)",
    "zero_": "x.fill(0)",
    "masked_fill": "tj.where",
    "masked_fill_": "x[mask] = value",
    "gather": "tj.take_along_axis",
    "scatter_": "tj.put_along_axis",
    **dict.fromkeys(("scatter_add_", "index_add_"), "np.add.at"),
    "at": "x[index] = value, or np.add.at for indices that occur twice",
    "block_until_ready": "x.wait",
    "topk": "tj.top_k",
    "clamp": "x.clip",
    "chunk": "tj.array_split",
    "exp": "tj.exp(x)",
    "log": "tj.log(x)",
    "sqrt": "tj.sqrt(x)",
    "abs": "tj.abs(x)",
    "tanh": "tj.tanh(x)",
    "sigmoid": "tj.sigmoid(x)",
    "pow": "x ** y",
    "matmul": "x @ y",
    "softmax": "tj.nn.softmax",
    "relu": "tj.nn.relu",
    "norm": "tj.linalg.norm",
    **dict.fromkeys(("median", "quantile"), "tj.quantile"),
}

_RANDOM = {
    **dict.fromkeys(("default_rng", "RandomState", "PRNGKey", "key"), "tj.random.Generator(seed)"),
    "rand": "tj.random.uniform",
    "randn": "tj.random.normal",
    "randint": "tj.random.integers",
    "randperm": "tj.random.permutation",
    "split": "the method spawn of a tj.random.Generator",
    **dict.fromkeys(("get_state", "set_state"), "the array state of a tj.random.Generator"),
}

REMEDIES: dict[str, dict[str, str]] = {"module": _MODULE, "array": _ARRAY, "random": _RANDOM}
"""The expressions to use instead of missing names, by name: of the package, `NDArray` and `tj.random`."""


def hint(owner: str, name: str) -> str:
    """Return the suffix of an error about a missing name: the remedy, or nothing if none is known.

    >>> hint("module", "cat"), hint("module", "mouse")
    ('; use tj.concat', '')
    """
    remedy = REMEDIES[owner].get(name)
    return "" if remedy is None else f"; use {remedy}"


class MissingAttribute:
    """A descriptor for an attribute that a class lacks: access raises an error that names the alternative.

    A method `__getattr__` could do this as well, but would be called for every protocol that NumPy probes.
    """

    def __init__(self, owner: str, name: str, remedy: str):
        self.message, self.name = f"{owner!r} object has no attribute {name!r}; use {remedy}", name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        raise AttributeError(self.message, name=self.name, obj=instance)
