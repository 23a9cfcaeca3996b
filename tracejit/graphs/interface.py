"""The interface of a kept graph: named inputs, outputs and effects, and their types.

Names are those of arguments and paths in trees: ``params['w1']``. Outputs are called ``result``, or by their
path in it.
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
    """Named inputs, parameters, outputs and effects of a graph, for some extents.

    inputs, outputs, parameters: a `Spec` for an array; `int`, `float` or `Number` for a number, or a value.
    effects:                     a `Spec` for an array that is written or rebound.

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
    """The named parts of a graph."""
    leaves = leaves_of(contract)
    outputs: Named = {}
    _name_outputs(contract.result, RESULT, contract, graph, outputs)
    effects: Named = {}
    for effect in graph.effects:
        kind, which = contract.inputs[graph.inputs.index(effect.target)]
        if kind == "leaf":
            effects[leaves[which][1]] = _kind(leaves[which])
        else:
            effects[which] = _spec(dict(contract.parameters)[which])
    for kind, where, *key, made in contract.changes:
        name = where if kind == "parameter" else _path(contract, (*where, *key))
        found: Named = {}
        _name_outputs(made, name, contract, graph, found)
        effects.update(found)
    return GraphInterface(
        extents=extents,
        inputs={leaf[1]: _kind(leaf) for leaf in leaves},
        parameters={name: _spec(kind) for name, kind in contract.parameters},
        outputs=outputs,
        effects=effects,
    )


def names_of(contract: Contract) -> PictureNames:
    """Names of the inputs and outputs of the graph, for a picture."""
    leaves = leaves_of(contract)
    computed = [step for step in contract.numbers if step[0] == "compute"]

    def source(given: Data) -> str:
        kind, which = given
        if kind == "value":
            return repr(which)
        if kind == "leaf":
            return str(leaves[which][1])
        _, form, operands = computed[which]
        return str(form.format(*map(source, operands)))

    inputs = []
    for kind, which in contract.inputs:
        if kind == "leaf":
            inputs.append(source((kind, which)))
        elif kind == "number":
            inputs.append(source(which))
        else:
            inputs.append(which if kind == "parameter" else "random numbers")
    outputs: dict[int, str] = {}
    _number_outputs(contract.result, RESULT, outputs)
    count = max(outputs, default=-1) + 1
    parameters = frozenset(name for name, _ in contract.parameters)
    return PictureNames(inputs, [outputs.get(i, "") for i in range(count)], parameters)


def _number_outputs(made: Data, path: str, found: dict[int, str]) -> None:
    """Note the paths of outputs of the graph by their numbers."""
    if made[0] == "array":
        found.setdefault(made[1], path)
    elif made[0] == "tree":
        for key, part in zip(made[2], made[3], strict=True):
            _number_outputs(part, path + step(made[1], key), found)


def _spec(type: ArrayType) -> Spec:
    return Spec(type.shape, type.dtype, type.device)


def _kind(leaf: Data) -> Any:
    """The spec of an argument's leaf: an array's, the type of a number, or a value."""
    if leaf[0] == "array":
        return _spec(leaf[2])
    return {"int": int, "float": float}[leaf[2]] if leaf[0] == "number" else leaf[2]


def _path(contract: Contract, where: tuple[Any, ...]) -> str:
    """A place in a container among the arguments, as people write it."""
    tree = dict(contract.arguments)[where[0]]
    path = str(where[0])
    for key in where[1:]:
        path += step(tree[1], key)
        tree = tree[3][tree[2].index(key)]
    return path


def step(kind: str, key: Any) -> str:
    """The text by which a part follows a container of this kind."""
    return trees.step({"dict": dict, "list": list, "tuple": tuple}.get(kind, object), key)


def _name_outputs(made: Data, path: str, contract: Contract, graph: Graph, found: Named) -> None:
    """Note the arrays and numbers of a result by their paths."""
    kind = made[0]
    if kind == "tree":
        for key, part in zip(made[2], made[3], strict=True):
            _name_outputs(part, path + step(made[1], key), contract, graph, found)
    elif kind == "array":
        type = graph.outputs[made[1]].type
        found[path] = Spec(made[2].shape, type.dtype, type.device)
    elif kind in ("leaf", "parameter", "seen"):
        place = made[1] if kind == "seen" else made
        old = leaves_of(contract)[place[1]][2] if place[0] == "leaf" else dict(contract.parameters)[place[1]]
        found[path] = Spec(made[2].shape if kind == "seen" else old.shape, old.dtype, old.device)
    elif kind == "number":
        source = made[1]
        found[path] = _kind(leaves_of(contract)[source[1]]) if source[0] == "leaf" else numbers.Number
    elif kind == "container":
        tree = dict(contract.arguments)[made[1][0]]
        for key in made[1][1:]:
            tree = tree[3][tree[2].index(key)]
        _name_leaves(tree, path, found)


def _name_leaves(tree: Data, path: str, found: Named) -> None:
    """Note the leaves of an argument that is returned, under the result's path."""
    if tree[0] != "tree":
        found[path] = _kind(tree)
        return
    for key, part in zip(tree[2], tree[3], strict=True):
        _name_leaves(part, path + step(tree[1], key), found)
