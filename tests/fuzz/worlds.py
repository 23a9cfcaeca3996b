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
import bisect, collections, copy, dataclasses, enum, functools, heapq, math, operator, types

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

helper.calls = 1

def another():
    def helper(x):
        return x * 11
    helper.calls = 2
    return helper

def bump():
    global number
    number += 1

def make(offset):
    def inner(x):
        return x + offset
    return inner

closure = make(10)

class Doubling(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)

class Shifted(list):
    def __getitem__(self, index):
        return super().__getitem__(index) + 1

class Twice:
    def __set_name__(self, owner, name):
        self.name = '_' + name
    def __get__(self, holder, owner):
        return getattr(holder, self.name)
    def __set__(self, holder, value):
        setattr(holder, self.name, value * 2)

class Own:
    log = []
    calls = 0
    d = Twice()

    def __init__(self, k, w):
        self.k, self.w, self.d = k, w, 1
        self._p = 1

    def __setattr__(self, name, value):
        super().__setattr__(name, value * 2 if name in ('k', 'w') else value)

    def __getattr__(self, name):
        if name.startswith('virtual'):
            return 2
        raise AttributeError(name)

    @property
    def p(self):
        return self._p

    @p.setter
    def p(self, value):
        self._p = value * 3

    @functools.cached_property
    def once(self):
        return self.k + 1

    @classmethod
    def count(cls):
        cls.calls += 1
        return cls.calls

    def __len__(self):
        return self._p

    def __getitem__(self, index):
        return self.k * index

    def __contains__(self, value):
        return value == self.k

    def __iter__(self):
        return iter([self.k, self._p])

@dataclasses.dataclass(frozen=True)
class Frozen:
    a: float
    w: object

class Heir(Own):
    def __init__(self, k, w):
        super().__init__(k, w)
        self.more = {'k': k}
    def __call__(self, x):
        self.more['k'] += 1
        return x * self.k + self.more['k']

class Color(enum.Enum):
    RED = 1
    BLUE = 2

Point = collections.namedtuple('Point', 'x y')

def seven():
    return 7

votes, groups = collections.Counter(a=1, b=2), collections.defaultdict(seven, a=1)
order, doubling = collections.OrderedDict(a=1, b=2, w=array(1, 3)), Doubling({'a': 1, 'w': array(2, 3)})
recent, shifted, data = collections.deque([1, 2], 3), Shifted([1, 2]), bytearray([1, 2])
own, heir, frozen = Own(1, array(1, 2)), Heir(2, array(2, 2)), Frozen(1.5, array(3, 3))
color, point, nested = Color.RED, Point(1, array(1, 4)), ([1, {'k': 2}], (3, [4]))

def remember(x, seen=[0]):
    seen.append(len(seen))
    return x + len(seen)

def counted():
    count = 0
    def inner(x):
        nonlocal count
        count += 1
        return x + count
    return inner

counter = counted()

@functools.lru_cache
def cached(k):
    return k * 2

part = functools.partial(lambda k, x: x * k, 3)

def pieces(x):
    for k in range(2):
        yield x + k

class Lens:
    depth = 0
    def __enter__(self):
        self.depth += 1
        return self.depth
    def __exit__(self, *error):
        self.depth -= 1

def varied(x, *rest, scale=1, **more):
    return x * scale + sum(rest) + sum(more.values())

def recursive(x, n):
    return x if n <= 0 else recursive(x + node.child.k, n - 1)

def factory(k):
    @dataclasses.dataclass
    class Made:
        a: float = k
        def plus(self, x):
            return x + self.a
    return Made()

def capturing(x):
    total = x
    def add(k):
        nonlocal total
        total = total + k
    for k in numbers[:2]:
        add(k)
    return total

@functools.singledispatch
def kind_of(value):
    return 1

@kind_of.register
def _(value: str):
    return len(value)

def double_it(function):
    @functools.wraps(function)
    def inner(*given):
        return function(*given) * 2
    return inner

@double_it
def decorated(x, k):
    return x + k

def has(value, *names):
    return isinstance(value, dict) and all(name in value for name in names)

def weigh(value):
    if isinstance(value, dict):
        return sum(v for v in value.values() if isinstance(v, (int, float)))
    if isinstance(value, (list, tuple)):
        return len(value) + (value[0] if value and isinstance(value[0], (int, float)) else 0)
    return getattr(value, 'k', getattr(value, 'a', 0))

def grow(value):
    if isinstance(value, dict):
        value['grown'] = value.get('grown', 0) + 1
    elif isinstance(value, list):
        value.append(len(value))
    elif hasattr(value, 'k'):
        value.k += 1
    elif hasattr(value, 'a') and not isinstance(value, Frozen):
        value.a = value.a + 1

def keep(value, array):
    if isinstance(value, dict):
        value['kept'] = array
    elif isinstance(value, list):
        value[-1:] = [array]
    elif hasattr(value, 'w') and not isinstance(value, (Frozen, tuple)):
        value.w = array

class Pair(list):
    pass

lens, made, config = Lens(), factory(3), {'scale': 2, 'shift': 1}
"""

READS = (
    "acc = acc * node.k",
    "acc = acc + node.child.w",
    "acc = helper(acc)",
    "acc = deep(acc)",
    "acc = acc + helper.calls",
    "acc = acc + (helper.mark if hasattr(helper, 'mark') else 3)",
    "acc = closure(acc)",
    "acc = acc + len(numbers)",
    "acc = acc + sum(numbers)",
    "acc = acc + node.double",
    "acc = node.scale(acc)",
    "acc = node.child.scale(acc)",
    "acc = acc + node.opt if isinstance(node.opt, tj.NDArray) else acc",
    "acc = acc + node.opt[0] if type(node.opt) in (list, tuple) else acc",
    "acc = acc + node.opt['w'] * node.opt['k'] if isinstance(node.opt, dict) else acc",
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
    "acc = acc + argument['k'] + argument['w'] if has(argument, 'k', 'w') else acc",
    "acc = acc + weigh(argument)",
    "acc = acc + weigh(argument)",
    "acc = acc + argument.w if hasattr(argument, 'w') and argument.w is not None else acc",
    "acc = acc + (1 if argument is node else 2 if argument is table else 0)",
    "acc = acc + len(tj.tree.leaves(argument)) if isinstance(argument, (dict, list, tuple)) else acc",
    "acc = acc + (node.k if node.k > 2 else 0)",
    "acc = acc * votes['a'] + votes['missing']",
    "acc = acc + sum(v for v in votes.values() if isinstance(v, int)) + len(votes)",
    "acc = acc + groups['a'] + groups.get('z', 3)",
    "acc = acc + order['w'] * list(order).index('w')",
    "acc = acc + sum(v for k, v in order.items() if k != 'w')",
    "acc = acc + doubling['a'] + doubling['w']",
    "acc = acc + recent[0] + len(recent) + sum(recent)",
    "acc = acc + shifted[0] + len(shifted)",
    "acc = acc + data[0]",
    "acc = acc + own.k + own.w",
    "acc = acc + own.d + own.p + own.virtual_one",
    "acc = acc + own.once",
    "acc = acc + len(own) + own[2] + sum(own)",
    "acc = acc + (1 if 2 in own else 0)",
    "acc = acc + heir.k + heir.more['k'] + heir.w",
    "acc = acc + frozen.a + frozen.w",
    "acc = acc + dataclasses.replace(frozen, a=2.5).a",
    "acc = acc + (1 if color is Color.RED else 2)",
    "acc = acc + color.value",
    "acc = acc + point.x + point.y",
    "acc = acc + nested[0][1]['k'] + nested[1][1][0]",
    "acc = acc + cached(node.k if isinstance(node.k, int) else 1)",
    "acc = part(acc)",
    "acc = acc + sum(pieces(acc))",
    "acc = acc + copy.copy(table)['k'] + len(copy.deepcopy(numbers))",
    "acc = acc + vars(node)['k'] + node.__dict__['s'].count('a')",
    "acc = acc + max((v.k for v in (node, own, slotted)), default=0)",
    "acc = acc + [v * 2 for v in numbers][-1]",
    "acc = acc + {k: v for k, v in votes.items() if v}.get('a', 0)",
    "acc = acc + len(f'{node.k}') + int(f'{n}')",
    "acc = acc + math.sqrt(abs(node.k)) + math.floor(own.k / 2)",
    "acc = acc + int(node.k) + round(node.k * 0.3, 1) + divmod(int(own.k), 2)[1]",
    "acc = acc + sum(range(max(0, min(3, int(node.k)))))",
    "acc = acc + sum(numbers[: max(1, n)])",
    "acc = acc + sorted(numbers, key=lambda v: -v)[0] + any(v > 2 for v in numbers)",
    "acc = acc + sum(a * b for a, b in zip(numbers, node.items)) + sum(i for i, _ in enumerate(numbers))",
    "acc = varied(acc, n, node.k, scale=own.p, other=2)",
    "acc = varied(acc, *numbers, **config) if 'scale' in config else acc",
    "acc = recursive(acc, n)",
    "acc = made.plus(acc)",
    "acc = factory(node.k).plus(acc)",
    "acc = capturing(acc)",
    "acc = acc + kind_of(mode) + kind_of(n)",
    "acc = decorated(acc, node.k)",
    "acc = (lambda y, k=node.k: y * k)(acc)",
    "acc = acc + (k := node.k) + k",
    "acc = acc + (node.k if (node.k, n) == (1, 1) else -1)",
    "acc = acc + {1: 5}.get(node.k, 6) + {'up': 1}.get(mode, 2)",
    "acc = acc + sum(map(float, numbers)) + len(set(numbers)) + min(votes.values(), default=0)",
    "acc = acc + functools.reduce(lambda a, b: a + b, numbers, 0)",
    "acc = acc * float(node.k) + complex(n).real",
    "acc = acc[::-1] + acc[n % 2]",
    "acc = acc * tj.asarray([1.0, float(n)])",
    "acc = tj.where(acc > node.k, acc, node.k)",
    "acc = acc + tj.arange(2) * n",
)
WRITES = (
    "node.k += 1",
    "node.child.k = node.child.k + n",
    "node.child.w += acc",
    "node.w = node.w + acc",
    "node.opt = acc * 1",
    "node.opt = None",
    "bump()",
    "helper.calls += 1",
    "helper.mark = n",
    "node.shared += 1",
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
    "argument.update(k=argument['k'] + 1) if has(argument, 'k') else None",
    "argument.update(w=argument['w'] + acc) if has(argument, 'w') else None",
    "argument.update(new=acc * 3) if has(argument) else None",
    "grow(argument)",
    "grow(argument)",
    "keep(argument, acc)",
    "argument = copy.copy(argument)",
    "table['new'] = acc * 3",
    "space.extra = acc",
    "pair[1][0] = 3.0",
    "space.node.k += 2",
    "votes['a'] += 1",
    "votes['new'] += n",
    "votes.update('ab')",
    "votes.update({'a': 2})",
    "votes.subtract(a=1)",
    "groups['a'] += 1",
    "groups['fresh'] += 1",
    "order['a'] += 1",
    "order.move_to_end('a')",
    "order['w'] = order['w'] + acc",
    "order.pop('b', None)",
    "doubling['a'] = doubling['a'] + 1",
    "doubling['w'] = acc",
    "doubling['c'] = 4",
    "recent.append(n)",
    "recent[0] = 5",
    "shifted[0] = 3",
    "shifted.append(4)",
    "data[0] += 1",
    "own.k = own.k + 1",
    "own.w = own.w + acc",
    "own.d = own.d + 1",
    "own.p = own.p + 1",
    "own.fresh = acc",
    "own.log.append(n)",
    "acc = acc + own.count()",
    "acc = heir(acc)",
    "heir.w = acc",
    "globals()['frozen'] = dataclasses.replace(frozen, w=acc)",
    "nested[0][1]['k'] += 1",
    "list.append(numbers, n)",
    "dict.update(table, k=4)",
    "collections.deque.append(recent, n)",
    "heapq.heappush(numbers, n)",
    "bisect.insort(node.items, n)",
    "operator.setitem(table, 'k', 3)",
    "operator.iadd(numbers, [1])",
    "collections.Counter.update(votes, 'b')",
    "nested[1][1].append(n)",
    "acc = remember(acc)",
    "acc = counter(acc)",
    "names.add('c')",
    "names.discard('a')",
    "vars(node)['k'] += 1",
    "setattr(own, 'p', 2)",
    "node.table.update(k=5, z=acc)",
    "node.items.extend([n, 4])",
    "node.items = node.items + [1]",
    "numbers.sort(reverse=True)",
    "numbers[:] = [n]",
    "table.setdefault('made', acc)",
    "acc = acc + lens.__enter__()",
    "made.a = made.a + 1",
    "made.a, own.p = own.p, made.a",
    "made = factory(n)",
    "config['shift'] += 1",
    "config = {**config, 'shift': n}",
    "node.k, node.child.k = node.child.k, node.k",
    "node.k *= 2",
    "node.k -= 0.5",
    "node.items += [n]",
    "node.items = [v + n for v in node.items]",
    "node.table = {**node.table, 'k': 3}",
    "numbers.reverse()",
    "numbers.insert(0, n)",
    "numbers.pop() if len(numbers) > 1 else None",
    "[numbers.append(k) for k in range(n)]",
    "node.w[0] = node.k",
    "node.w[:] = acc",
    "acc += node.w",
    "acc *= n",
    "acc[0] = n",
    "node.child, node.w = Node(node.k, acc), node.child.w",
    "node.opt = [acc, node.k]",
    "node.opt = {'w': acc, 'k': node.k}",
    "node.opt = (acc, n)",
    "del node.items[2:]",
)
CONDITIONS = (
    "votes['a'] > 2",
    "len(own) < 3",
    "'a' in order",
    "recent",
    "n > 1",
    "flag",
    "node.s == 'a'",
    "node.k < 4",
    "mode == 'up'",
    "space.n",
)
OUTSIDE = (
    "node.k = 7",
    "helper.__dict__.update(calls=4)",
    "helper.__dict__.update(mark=6)",
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
    "globals().__setitem__('helper', another())",
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
    "argument.update(k=9) if has(argument) else None",
    "globals().__setitem__('argument', node.table)",
    "globals().__setitem__('argument', table)",
    *(
        f"globals().__setitem__('argument', {value})"
        for value in (
            *("votes", "groups", "order", "doubling", "own", "record", "frozen", "point", "nested", "heir"),
            *("node", "slotted", "space", "[1, array(1, 2)]", "(n_ := 2, array(1, 1))", "Pair([1, 2])"),
            *(
                "collections.Counter(a=2)",
                "collections.OrderedDict(k=1, w=array(2, 2))",
                "Heir(3, array(1, 1))",
            ),
            *(
                "Doubling({'a': 3})",
                "Record(1.5, array(1, 2))",
                "Own(2, array(1, 2))",
                "{'k': 1.5}",
                "5",
                "made",
            ),
        )
    ),
    "votes.clear()",
    "votes.update(a=3)",
    "groups.clear()",
    "order.move_to_end('a') if 'a' in order else None",
    "doubling.clear() or dict.update(doubling, a=3, w=array(1, 1))",
    "recent.extend([7, 8])",
    "shifted.insert(0, 9)",
    "data[0] = 9",
    "own.__dict__.update(k=5)",
    "own.__dict__.pop('once', None)",
    "own.p = 4",
    "setattr(Own, '__len__', lambda self: 2)",
    "Own.log.clear()",
    "heir.more['k'] = 8",
    "globals().__setitem__('color', Color.BLUE)",
    "globals().__setitem__('point', Point(2, array(0, 1)))",
    "globals().__setitem__('frozen', Frozen(2.5, array(1, 1)))",
    "globals().__setitem__('votes', collections.Counter(a=4))",
    "globals().__setitem__('own', heir)",
    "nested[0][1].update(k=6)",
    "remember.__defaults__[0].clear()",
    "globals().__setitem__('made', factory(4))",
    "globals().__setitem__('config', {'shift': 3})",
    "made.a = 9",
    "node.opt = [array(1, 2), 3]",
    "globals().__setitem__('kind_of', lambda value: 3)",
    "globals().__setitem__('decorated', lambda x, k: x * k)",
    "globals().__setitem__('part', functools.partial(lambda k, x: x + k, 2))",
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
        return "def step(acc, n, argument):\n    global made, config\n" + "".join(
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
