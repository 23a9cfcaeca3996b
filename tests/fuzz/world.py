"""The world of `worlds`: the text of a module, in which `tj` is known."""

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

class Base:
    rate = 2
    def f(self, x):
        return x * self.rate

class Derived(Base):
    rate = 3
    def f(self, x):
        return super().f(x) + super().rate

class Field:
    def __init__(self, default):
        self.default = default
    def __get__(self, holder, owner):
        return self.default

class Fielded:
    field = Field(2)
    kept = functools.lru_cache(lambda self, k: k * 2)
    getter = property(operator.attrgetter('own'))
    def __init__(self):
        self.own = 1

class Titled(str):
    pass

class Bag(dict):
    pass

class Failure(Exception):
    pass

class Empty:
    __slots__ = ('k',)

@functools.cache
def settings():
    return types.SimpleNamespace(k=1)

derived, fielded, title = Derived(), Fielded(), Titled('ab')
bag, failure, empty = Bag(k=1), Failure(2), Empty()
title.k, bag.extra = 2, 3
keys = [Derived(), Derived(), Own(1, array(1, 2))]
keys[0].k, keys[1].k = 1, 2
rates, get_k = {keys[1]: 2, keys[2]: 3}, operator.attrgetter('k')
"""
