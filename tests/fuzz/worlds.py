"""Random programs on a small world of Python objects: globals, closures, attributes, containers, helpers.

The world is a module's text. A step reads and changes it by name, and between the calls something in it is
changed at random from outside: a number, a flag, an array, an object put in another's place. What a traced
step returns, and the world after every call, must be what the untraced one gives.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

WORLD = """
import dataclasses, types

class Node:
    shared = 2

    def __init__(self, k, w):
        self.k, self.s, self.w, self.opt = k, 'a', w, None
        self.items, self.table = [1, 2], {'k': 1, 'w': w * 2}
        self.child = self.other = None

    def scale(self, x):
        return x * self.k + self.shared

    @property
    def double(self):
        return self.k * 2

    def __call__(self, x):
        self.k += 1
        return self.scale(x)

@dataclasses.dataclass
class Record:
    a: float
    w: object

class Slotted:
    __slots__ = ('k', 'w')
    def __init__(self, k, w):
        self.k, self.w = k, w

def array(*values):
    return tj.asarray([float(v) for v in values])

node = Node(1, array(1, 2))
node.child = Node(2, array(3, 4))
node.other = Node(3, array(5, 6))
record, slotted = Record(0.5, array(1, 1)), Slotted(4, array(2, 2))
space = types.SimpleNamespace(n=1, w=array(7, 8), node=node.child)
number, flag, mode = 2, True, 'up'
numbers, names = [1, 2, 3], {'a', 'b'}
pair = (node.other, array(1, 0))
table = {'w': array(9, 9), 'k': 1, 'inner': {'f': 1.5}}
handlers = {'up': lambda x: x + number, 'down': lambda x: x - number}

def helper(x):
    return x * number if flag else x + space.n

def deep(x):
    return helper(x) + table['inner']['f']

def bump():
    global number
    number += 1

def make(offset):
    def inner(x):
        return x + offset
    return inner

closure = make(10)
"""

READS = (
    "acc = acc * node.k",
    "acc = acc + node.child.w",
    "acc = helper(acc)",
    "acc = deep(acc)",
    "acc = closure(acc)",
    "acc = acc + len(numbers)",
    "acc = acc + sum(numbers)",
    "acc = acc + node.double",
    "acc = node.scale(acc)",
    "acc = node.child.scale(acc)",
    "acc = acc + node.opt if node.opt is not None else acc",
    "acc = acc + pair[0].k",
    "acc = acc + pair[1]",
    "acc = acc * table['inner']['f'] + table['k']",
    "acc = acc + table['w']",
    "acc = handlers[mode](acc)",
    "acc = acc + (1 if 'a' in names else 2)",
    "acc = acc + record.a + record.w",
    "acc = acc + slotted.k * slotted.w",
    "acc = acc + space.node.k + space.w",
    "acc = acc + getattr(node, 'k')",
    "acc = acc + getattr(node, 'sha' + 'red')",
    "acc = acc + (5 if hasattr(space, 'extra') else 6)",
    "acc = acc + n * node.k",
    "acc = acc + sum(v * 2 for v in node.items)",
    "acc = acc + (1 if node.child is node.other else 0)",
    "acc = acc + (1 if space.node is node.child else 0)",
    "acc = acc + Node.shared",
    "acc = acc + argument['k'] + argument['w']",
    "acc = acc + (node.k if node.k > 2 else 0)",
)
WRITES = (
    "node.k += 1",
    "node.child.k = node.child.k + n",
    "node.child.w += acc",
    "node.w = node.w + acc",
    "node.opt = acc * 1",
    "node.opt = None",
    "bump()",
    "acc = node(acc)",
    "space.n += 1",
    "space.w = acc * 2",
    "slotted.k += 1",
    "slotted.w = slotted.w + 1",
    "record.w = record.w * 2",
    "record.a = record.a + 1",
    "table['k'] += 1",
    "table['w'] = table['w'] + acc",
    "node.items[0] += 1",
    "node.table['k'] += 2",
    "node.table['w'] = acc + 0",
    "numbers.append(n)",
    "node.child, node.other = node.other, node.child",
    "space.node = node.child",
    "Node.shared += 1",
    "node.s = 'b' if node.s == 'a' else 'a'",
    "argument['k'] += 1",
    "argument['w'] = argument['w'] + acc",
    "argument['new'] = acc * 3",
    "table['new'] = acc * 3",
    "space.extra = acc",
    "pair[1][0] = 3.0",
    "space.node.k += 2",
)
CONDITIONS = ("n > 1", "flag", "node.s == 'a'", "node.k < 4", "mode == 'up'", "space.n")
OUTSIDE = (
    "node.k = 7",
    "node.k = 1.5",
    "node.child.k += 1",
    "node.s = 'c'",
    "node.w = array(0, 1)",
    "node.child.w[0] = 4.0",
    "node.opt = array(1, 1)",
    "node.opt = None",
    "node.child = Node(9, array(0, 0))",
    "node.child = node.other",
    "space.node = node.other",
    "globals().__setitem__('number', 5)",
    "globals().__setitem__('flag', not flag)",
    "globals().__setitem__('mode', 'down')",
    "globals().__setitem__('helper', lambda x: x * 11)",
    "globals().__setitem__('closure', make(3))",
    "globals().__setitem__('table', {'w': array(1, 1), 'k': 2, 'inner': {'f': 2.5}})",
    "globals().__setitem__('numbers', [4, 5])",
    "table['inner']['f'] = 4.5",
    "table.pop('new', None)",
    "numbers.append(3)",
    "numbers[0] = 6",
    "names.discard('a')",
    "record.a = 2.5",
    "slotted.w = slotted.w * 2",
    "space.extra = 1",
    "handlers['up'] = lambda x: x * 2",
    "Node.scale = lambda self, x: x + 100",
    "Node.shared = 3",
    "node.shared = 8",
    "node.items = [3]",
    "setattr(node, 'scale', lambda x: x)",
    "argument.update(k=9)",
    "globals().__setitem__('argument', node.table)",
    "globals().__setitem__('argument', table)",
    "None",
    "None",
    "None",
)


@dataclasses.dataclass
class Story:
    """A step's statements; before each call, a change from outside, and the number passed."""

    body: list[str]
    calls: list[tuple[str, int]]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        lines = ["", *self.step().splitlines(), *(f"# {change}; step(.., n={n})" for change, n in self.calls)]
        printer.text("\n".join(lines))

    def step(self) -> str:
        """The text of the step."""
        return "def step(acc, n, argument):\n" + "".join(
            f"    {line}\n" for line in [*self.body, "return acc, node.k"]
        )


@st.composite
def stories(draw: Any) -> Story:
    """A random story."""
    statement = st.one_of(st.sampled_from(READS), st.sampled_from(READS), st.sampled_from(WRITES))
    body = []
    for line in draw(st.lists(statement, min_size=1, max_size=6)):
        if draw(st.integers(0, 3)) == 0:
            condition = draw(st.sampled_from(CONDITIONS))
            body += [f"if {condition}:", f"    {line}"]
        else:
            body.append(line)
    change = st.sampled_from(OUTSIDE)
    calls = draw(st.lists(st.tuples(change, st.integers(0, 2)), min_size=4, max_size=7))
    return Story(body, calls)
