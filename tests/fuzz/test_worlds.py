"""Random programs on a world of Python objects that is changed between calls, traced against untraced."""

from __future__ import annotations

import collections
import sys
import types
from typing import Any

from hypothesis import HealthCheck, given, settings

import tracejit as tj
from tests.fuzz.count import COUNT, IS_ASKED
from tests.fuzz.running import simulated
from tests.fuzz.world import WORLD
from tests.fuzz.worlds import Story, stories


class World:
    """One copy of the world, and a step in it."""

    def __init__(self, story: Story, name: str, wrap: Any):
        module = sys.modules[name] = types.ModuleType(name)  # dataclasses look their module up
        self.names: dict[str, Any] = vars(module)
        self.names["tj"] = tj
        exec(WORLD + story.step(), self.names)
        self.names["argument"] = {"k": 1, "w": self.names["array"](2, 3)}
        self.step = wrap(self.names["step"])

    def call(self, change: str, n: int) -> Any:
        exec(change, self.names)
        try:
            return self.step(self.names["array"](1, 2), n, self.names["argument"])
        except KeyError as error:
            return repr(error)


def snapshot(value: Any, seen: dict[int, int]) -> Any:
    """A comparable description of a value, with shared objects marked."""
    if isinstance(value, tj.NDArray):
        return ("array", str(value.dtype), value.tolist())
    if isinstance(value, int | float | str | bool | type(None)):
        return (type(value).__name__, value)
    if isinstance(value, set):
        return sorted(value)
    if id(value) in seen:
        return ("same", seen[id(value)])
    seen[id(value)] = len(seen)
    kind = type(value).__name__
    if isinstance(value, dict):
        base = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        return kind, [(str(k), snapshot(v, seen)) for k, v in base.items(value)]
    if isinstance(value, list | tuple | collections.deque | bytearray):
        return kind, [snapshot(v, seen) for v in type(value).__mro__[-2].__iter__(value)]
    names = list(vars(value)) if hasattr(value, "__dict__") else getattr(type(value), "__slots__", [])
    held = {name: object.__getattribute__(value, name) for name in names if hasattr(value, name)}
    return kind, {name: snapshot(v, seen) for name, v in sorted(held.items()) if not callable(v)}


SHOWN = (
    "node",
    "record",
    "slotted",
    "space",
    "number",
    "flag",
    "mode",
    "numbers",
    "names",
    "pair",
    "table",
    "argument",
    "votes",
    "groups",
    "order",
    "doubling",
    "recent",
    "shifted",
    "data",
    "own",
    "heir",
    "frozen",
    "point",
    "nested",
    "lens",
    "made",
    "config",
    "bag",
    "title",
    "fielded",
    "empty",
    "keys",
)


@settings(
    max_examples=COUNT,
    deadline=None,
    database=None,
    derandomize=not IS_ASKED,
    suppress_health_check=list(HealthCheck),
)
@given(stories())
def test_worlds(story: Story) -> None:
    with simulated():
        plain, traced = World(story, "plain_world", lambda step: step), World(story, "traced_world", tj.jit)
        for k, (change, n) in enumerate(story.calls):
            expected, given_ = plain.call(change, n), traced.call(change, n)
            assert snapshot(given_, {}) == snapshot(expected, {}), f"result of call {k}"
            seen: tuple[dict[int, int], dict[int, int]] = ({}, {})
            for name in SHOWN:
                ours, theirs = snapshot(traced.names[name], seen[0]), snapshot(plain.names[name], seen[1])
                assert ours == theirs, f"{name} after call {k}"
            for kind, attributes in {
                "Node": ["shared"],
                "Own": ["log", "calls"],
                "Derived": ["rate"],
            }.items():
                for attribute in attributes:
                    ours, theirs = (getattr(w.names[kind], attribute) for w in (traced, plain))
                    assert ours == theirs, f"{kind}.{attribute} after call {k}"
            helpers = (vars(w.names["helper"]) for w in (traced, plain))
            ours, theirs = (snapshot(h, {}) for h in helpers)
            assert ours == theirs, f"attributes of helper after call {k}"
            assert traced.names["remember"].__defaults__ == plain.names["remember"].__defaults__
