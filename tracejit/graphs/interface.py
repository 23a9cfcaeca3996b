"""The interface of an exported graph: named inputs, outputs and effects, and their types.

Names are paths into the trees of arguments, such as ``params['w1']``. An output is named ``result``, or by
its path into the result.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

from tracejit.drawing.picture import PictureNames
from tracejit.frontend.arrays import trees
from tracejit.frontend.jit.specs import Spec
from tracejit.graphs.contract import Contract, Data, leaves_of
from tracejit.ir.graph import Graph
from tracejit.ir.types import ArrayType

Named = dict[str, Any]
RESULT = "result"


@dataclass(frozen=True)
class GraphInterface:
    """The inputs, parameters, outputs and effects of a graph by name, for some extents.

    inputs, outputs, parameters: a `Spec` for an array; `int`, `float` or `Number` for a number; a constant.
    effects:                     a `Spec` for an array that a call writes or rebinds.

    >>> import tracejit as tj
    >>> print(tj.export(lambda x: x.sum(0), tj.spec(("batch", 3))).infer(batch=8))
    inputs
      x: float32[8,3]
    outputs
      result: float32[3]
    """

    extents: dict[str, int]
    inputs: Named
    parameters: Named
    outputs: Named
    effects: Named

    def __str__(self) -> str:
        lines = []
        for title in ("inputs", "parameters", "outputs", "effects"):
            named = getattr(self, title)
            lines += [title] * bool(named) + [f"  {name}: {_shown(kind)}" for name, kind in named.items()]
        return "\n".join(lines)


def _shown(kind: Any) -> str:
    if isinstance(kind, Spec):
        return f"{kind.dtype}[{','.join(map(str, kind.shape))}]"
    return kind.__name__ if isinstance(kind, type) else repr(kind)


def interface_of(contract: Contract, graph: Graph, extents: dict[str, int]) -> GraphInterface:
    """Return the interface of a graph."""
    leaves = leaves_of(contract)
    outputs: Named = {}
    _name_outputs(contract.result, RESULT, contract, graph, outputs)
    effects: Named = {}
    for effect in graph.effects:
        kind, index = contract.inputs[graph.inputs.index(effect.target)]
        if kind == "leaf":
            effects[leaves[index][1]] = _kind(leaves[index])
        else:
            effects[index] = _spec(dict(contract.parameters)[index])
    for kind, owner, *key, recipe in contract.changes:
        name = owner if kind == "parameter" else _path(contract, (*owner, *key))
        rebound: Named = {}
        _name_outputs(recipe, name, contract, graph, rebound)
        effects.update(rebound)
    return GraphInterface(
        extents=extents,
        inputs={leaf[1]: _kind(leaf) for leaf in leaves},
        parameters={name: _spec(kind) for name, kind in contract.parameters},
        outputs=outputs,
        effects=effects,
    )


def names_of(contract: Contract) -> PictureNames:
    """Return the names of the graph's inputs and outputs for a picture."""
    leaves = leaves_of(contract)
    computed = [step for step in contract.numbers if step[0] == "compute"]

    def source(operand: Data) -> str:
        kind, index = operand
        if kind == "value":
            return repr(index)
        if kind == "leaf":
            return str(leaves[index][1])
        _, form, operands = computed[index]
        return str(form.format(*map(source, operands)))

    inputs = []
    for kind, index in contract.inputs:
        if kind == "leaf":
            inputs.append(source((kind, index)))
        elif kind == "number":
            inputs.append(source(index))
        else:
            inputs.append(index if kind == "parameter" else "random numbers")
    outputs: dict[int, str] = {}
    _number_outputs(contract.result, RESULT, outputs)
    count = max(outputs, default=-1) + 1
    parameters = frozenset(name for name, _ in contract.parameters)
    return PictureNames(inputs, [outputs.get(i, "") for i in range(count)], parameters)


def _number_outputs(recipe: Data, path: str, paths: dict[int, str]) -> None:
    """Collect the paths of the graph's outputs by their indices."""
    if recipe[0] == "array":
        paths.setdefault(recipe[1], path)
    elif recipe[0] == "tree":
        for key, part in zip(recipe[2], recipe[3], strict=True):
            _number_outputs(part, path + step(recipe[1], key), paths)


def _spec(type: ArrayType) -> Spec:
    return Spec(type.shape, type.dtype, type.device)


def _kind(leaf: Data) -> Any:
    """The `Spec` of an array among the leaves, the type of a number, or a constant."""
    if leaf[0] == "array":
        return _spec(leaf[2])
    return {"int": int, "float": float}[leaf[2]] if leaf[0] == "number" else leaf[2]


def _path(contract: Contract, key_path: tuple[Any, ...]) -> str:
    """Format a key path into the arguments as Python code."""
    tree = dict(contract.arguments)[key_path[0]]
    path = str(key_path[0])
    for key in key_path[1:]:
        path += step(tree[1], key)
        tree = tree[3][tree[2].index(key)]
    return path


def step(kind: str, key: Any) -> str:
    """Format the access to an item of a container of this kind, such as ``['w']``."""
    return trees.step({"dict": dict, "list": list, "tuple": tuple}.get(kind, object), key)


def _name_outputs(recipe: Data, path: str, contract: Contract, graph: Graph, named: Named) -> None:
    """Collect the arrays and numbers of a result by their paths."""
    kind = recipe[0]
    if kind == "tree":
        for key, part in zip(recipe[2], recipe[3], strict=True):
            _name_outputs(part, path + step(recipe[1], key), contract, graph, named)
    elif kind == "array":
        type = graph.outputs[recipe[1]].type
        named[path] = Spec(recipe[2].shape, type.dtype, type.device)
    elif kind in ("leaf", "parameter", "seen"):
        origin = recipe[1] if kind == "seen" else recipe
        array_type = (
            leaves_of(contract)[origin[1]][2] if origin[0] == "leaf" else dict(contract.parameters)[origin[1]]
        )
        named[path] = Spec(
            recipe[2].shape if kind == "seen" else array_type.shape, array_type.dtype, array_type.device
        )
    elif kind == "number":
        source = recipe[1]
        named[path] = _kind(leaves_of(contract)[source[1]]) if source[0] == "leaf" else numbers.Number
    elif kind == "container":
        tree = dict(contract.arguments)[recipe[1][0]]
        for key in recipe[1][1:]:
            tree = tree[3][tree[2].index(key)]
        _name_leaves(tree, path, named)


def _name_leaves(tree: Data, path: str, named: Named) -> None:
    """Collect the leaves of an argument that is returned, by their paths into the result."""
    if tree[0] != "tree":
        named[path] = _kind(tree)
        return
    for key, part in zip(tree[2], tree[3], strict=True):
        _name_leaves(part, path + step(tree[1], key), named)
