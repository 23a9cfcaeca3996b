"""Golden texts of replay functions: what a repeated call runs, one file for each kind of signature.

A case makes a function and the arguments of its first call. Below the text, its file tells what the names
in it stand for.
"""

import collections
import dataclasses
import enum
import functools
import math
import pathlib
import re
import types

import numpy as np
import pytest

import tracejit as tj
from tests.golden import check_golden
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature import many
from tracejit.frontend.signature.text import Writer
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View

GOLDEN = pathlib.Path(__file__).parent / "golden" / "replay"
CASES = {}
ONCE = set()
WORD = re.compile(r"\w+")


def case(make):
    """Register a function that makes ``(traced function, args, kwargs)``."""
    CASES[make.__name__] = make
    return make


def once(make):
    """As `case`, for a call that changes its arguments so that the same call again is another signature."""
    ONCE.add(make.__name__)
    return case(make)


def call(function, *args, **kwargs):
    return tj.jit(function), args, kwargs


def ones(*shape):
    return tj.asarray(np.ones(shape, np.float32))


# -- what the names stand for --------------------------------------------------------------------------------


def describe(value):
    """What a constant is, without an address."""
    match value:
        case ArrayType():
            return f"{value}"
        case View():
            return f"View(offset={value.offset}, {value.shape}, {value.strides}, writable={value.writable})"
        case Storage():
            return f"storage of {value.type}"
        case tj.NDArray():
            return f"array of {value.dtype}{list(value.shape)}"
        case np.ndarray():
            return f"NumPy array of {value.dtype}{list(value.shape)}"
        case types.ModuleType():
            return f"module {value.__name__.rpartition('.')[2]}"
        case enum.Enum():
            return str(value)
        case type():
            return f"class {value.__qualname__}"
        case types.CodeType():
            return f"code of {value.co_qualname}"
        case functools.partial():
            return f"partial of {describe(value.func)}"
        case types.FunctionType() | types.BuiltinFunctionType() | types.MethodType():
            return f"function {value.__qualname__}"
        case dict() if "__name__" in value and "__builtins__" in value:
            return f"namespace of module {value['__name__'].rpartition('.')[2]}"
        case tuple() if type(value) is tuple:
            return f"({', '.join(map(describe, value))}{',' * (len(value) == 1)})"
        case set() | frozenset():
            return f"{type(value).__name__} of {', '.join(sorted(map(describe, value)))}"
        case None | bool() | int() | float() | complex() | str() | bytes() | range() | np.generic():
            return repr(value)
        case np.dtype():
            return f"dtype {value}"
    return f"object of class {type(value).__qualname__}"


def number_in(name):
    """Order K2 before K10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def text_of(function):
    """The newest entry's replay function, and a line for each of its constants."""
    entry = function._entries[0]
    known = Writer().names
    used = set(WORD.findall(entry.text))
    names = {k: v for k, v in entry.replay.__globals__.items() if k in used and k not in known}
    names.pop("__builtins__", None)
    constants = [f"# {name} = {describe(names[name])}" for name in sorted(names, key=number_in)]
    return entry.text.rstrip() + "\n\n" + "\n".join(constants)


# -- how arguments are passed --------------------------------------------------------------------------------


@case
def arrays_positional():
    def dense(x, w, b):
        return tj.tanh(x @ w + b)

    return call(dense, ones(8, 4), ones(4, 3), ones(3))


@case
def arrays_keyword():
    def dense(x, *, weight, bias):
        return x @ weight + bias

    return call(dense, ones(8, 4), bias=ones(3), weight=ones(4, 3))


@case
def many_arrays():
    def decayed(arrays, rate):
        for x in arrays:
            x *= rate
        return [x + 1 for x in arrays]

    return call(decayed, [ones(2) for _ in range(many.MANY)], 0.5)


@case
def defaults():
    def normalize(x, scale=2.0, shift=None):
        return x * scale if shift is None else x * scale + shift

    return call(normalize, ones(6))


@case
def star_arguments():
    def total(*arrays, **weights):
        return sum(a * weights[k] for a, k in zip(arrays, weights, strict=True))

    return call(total, ones(4), ones(4), first=0.25, second=0.75)


# -- numbers and other plain values --------------------------------------------------------------------------


@case
def learning_rate():
    def descend(w, gradient, rate):
        w -= rate * gradient

    return call(descend, ones(4), ones(4), 0.1)


@case
def step_counter():
    def corrected(m, beta, step):
        return m / (1 - beta**step)

    return call(corrected, ones(4), 0.9, 3)


@case
def branch_on_number():
    def warmup(w, rate, step):
        if step < 10:
            rate = rate * step / 10
        w -= rate * w

    return call(warmup, ones(4), 0.1, 3)


@case
def flags_and_names():
    def layer(x, training, activation, mask):
        x = tj.tanh(x) if activation == "tanh" else x
        x = x * 0.5 if training else x
        return x if mask is None else x * mask

    return call(layer, ones(4), True, "tanh", None)


class Mode(enum.Enum):
    TRAIN = 1
    TEST = 2


@case
def enum_argument():
    def layer(x, mode):
        return x * 2 if mode is Mode.TRAIN else x + 1

    return call(layer, ones(4), Mode.TRAIN)


# -- containers ----------------------------------------------------------------------------------------------


@case
def nested_parameters_in_place():
    def descend(layers, rate):
        for layer in layers:
            layer["w"] -= rate * layer["w"]
            layer["b"] -= rate

    return call(descend, [{"w": ones(4, 3), "b": ones(3)}, {"w": ones(3, 2), "b": ones(2)}], 0.1)


@case
def nested_parameters_assigned():
    def descend(params, rate):
        for layer in params.values():
            layer["w"] = layer["w"] - rate * layer["w"]

    return call(descend, {"first": {"w": ones(4, 3)}, "second": {"w": ones(3, 2)}}, 0.1)


Moments = collections.namedtuple("Moments", "first second")


@case
def tuple_and_namedtuple():
    def update(moments, pair):
        g, rate = pair
        return Moments(moments.first + rate * g, moments.second + rate * g * g)

    return call(update, Moments(ones(4), ones(4)), (ones(4), 0.1))


@dataclasses.dataclass
class Parameters:
    w: tj.NDArray
    b: tj.NDArray
    steps: int = 0


for each in (Moments, Parameters):
    if "__replace__" in vars(each):  # from Python 3.13 on; a function more would be another number in names
        del each.__replace__


@case
def dataclass_rebound():
    def descend(p, rate):
        p.w -= rate * p.w
        p.b = p.b - rate
        p.steps += 1

    return call(descend, Parameters(ones(4, 3), ones(3)), 0.1)


@once
def keys_change():
    def count(cache, x):
        cache["seen"] = x * 2
        cache.pop("old")

    return call(count, {"old": ones(4)}, ones(4))


@case
def default_dict():
    def accumulate(sums, gradients):
        for name, gradient in gradients.items():
            sums[name] += gradient

    sums = collections.defaultdict(lambda: ones(4), w=ones(4))
    return call(accumulate, sums, {"w": ones(4)})


# -- results and storages ------------------------------------------------------------------------------------


@case
def new_containers_returned():
    def split(x, rate):
        return {"halves": [x[:2], x[2:]], "rate": rate * 2, "name": "split", "sum": (x.sum(),)}

    return call(split, ones(4), 0.5)


@case
def argument_returned():
    def scale(x, y):
        x *= 2
        return x, y

    return call(scale, ones(4), ones(4))


@case
def view_of_argument_returned():
    def inner(x):
        x += 1
        return x[1:-1].T

    return call(inner, ones(4, 3))


@case
def window_of_storage():
    def scale(row):
        row *= 2

    return call(scale, ones(4, 3)[1])


@case
def two_arguments_on_one_storage():
    def shift(a, b):
        a += b

    x = ones(8)
    return call(shift, x[1:], x[:-1])


@case
def numpy_argument():
    def forward(w, batch):
        return batch @ w

    return call(forward, ones(4, 3), np.ones((8, 4), np.float32))


# -- what the body finds by name -----------------------------------------------------------------------------

TABLE = np.arange(4, dtype=np.float32)
WEIGHTS = ones(4)
CONSTANT = 0.044715
calls = 0


@case
def captured_numpy():
    def scale(x):
        return x * TABLE

    return call(scale, ones(4))


@case
def captured_arrays():
    bias, owner = ones(4), types.SimpleNamespace(scale=ones(4))

    def layer(x):
        return x * WEIGHTS * owner.scale + bias

    return call(layer, ones(4))


def gelu(x):
    return 0.5 * x * (1 + tj.tanh(math.sqrt(2 / math.pi) * (x + CONSTANT * x * x * x)))


@case
def helper_with_constant():
    def layer(x, w):
        return gelu(x @ w)

    return call(layer, ones(8, 4), ones(4, 3))


@case
def global_counter():
    def decay(x):
        global calls
        calls += 1
        return x / calls

    return call(decay, ones(4))


@case
def nonlocal_counter():
    count = 0

    def decay(x):
        nonlocal count
        count += 1
        return x / count

    return call(decay, ones(4))


# -- objects -------------------------------------------------------------------------------------------------


class Momentum:
    def __init__(self, params, rate):
        self.params, self.rate, self.t = params, rate, 0
        self.velocity = [tj.zeros_like(p) for p in params]

    @tj.jit
    def method_step(self, gradients):
        self._step(gradients)

    def _step(self, gradients):
        self.t += 1
        for p, v, g in zip(self.params, self.velocity, gradients, strict=True):
            v *= 0.9
            v += g
            p -= self.rate / self.t * v


@case
def optimizer_object():
    optimizer = Momentum([ones(4, 3), ones(3)], 0.1)

    def step(gradients):
        optimizer._step(gradients)

    return call(step, [ones(4, 3), ones(3)])


@case
def method():
    traced = tj.jit(vars(Momentum)["method_step"].__wrapped__)
    return traced, (Momentum([ones(4, 3), ones(3)], 0.1), [ones(4, 3), ones(3)]), {}


class Linear:
    def __init__(self, inputs, outputs):
        self.w, self.b = ones(inputs, outputs), ones(outputs)

    def __call__(self, x):
        return x @ self.w + self.b


class Sequential:
    def __init__(self, *layers):
        self.layers = layers

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@case
def module_tree():
    def forward(model, x):
        return model(x)

    return call(forward, Sequential(Linear(4, 3), tj.nn.relu, Linear(3, 2)), ones(8, 4))


class Guarded:
    def __init__(self, w):
        self._w, self.t = w, 0

    @property
    def w(self):
        return self._w


@case
def attributes_behind_a_property():
    def descend(model, rate):
        model._w = model.w - rate * model.w
        model.t += 1

    return call(descend, Guarded(ones(4)), 0.1)


# -- effects and the library ---------------------------------------------------------------------------------


@case
def random_draws():
    def noisy(x):
        return x + tj.random.normal(shape=x.shape) * tj.random.uniform(shape=x.shape)

    return call(noisy, ones(4))


@case
def dropout_and_adam():
    def step(params, state, x, y, rate):
        def loss_of(params):
            hidden = tj.nn.dropout(tj.nn.relu(x @ params["w"] + params["b"]), 0.5)
            return tj.nn.cross_entropy(hidden, y)

        loss, gradients = tj.value_and_grad(loss_of)(params)
        tj.optim.adam(params, gradients, state, rate)
        return loss

    params = {"w": ones(4, 3), "b": ones(3)}
    labels = tj.asarray(np.zeros(8, np.int64))
    return call(step, params, tj.optim.adam_state(params), ones(8, 4), labels, 1e-3)


@case
def value_and_grad_step():
    def step(w, x, y, rate):
        loss, gradient = tj.value_and_grad(lambda w: ((x @ w - y) ** 2).mean())(w)
        w -= rate * gradient
        return loss

    return call(step, ones(4, 3), ones(8, 4), ones(8, 3), 0.1)


@case
def checked_index_and_rebinding():
    def embed(state, table, indices):
        state["last"] = table[indices]
        state["steps"] += 1

    return call(embed, {"last": ones(3, 2), "steps": 0}, ones(5, 2), tj.asarray(np.array([0, 2, 4])))


def report(value, step):
    pass


@case
def callback():
    def step(x, n):
        x += 1
        tj.callback(report, x, n)

    return call(step, ones(4), 3)


@tj.jit
def inner(x, rate):
    return tj.exp(x * rate)


@case
def nested_jit():
    def outer(x, rate):
        return inner(x, rate) + inner(x, 2 * rate)

    return call(outer, ones(4), 0.5)


@case
def partial():
    def scale(factor, x, shift):
        return x * factor + shift

    return tj.jit(functools.partial(scale, 2.0, shift=1.0)), (ones(4),), {}


@case
def lambda_argument():
    def apply(activation, x):
        return activation(x) * 2

    return call(apply, lambda v: tj.tanh(v), ones(4))


@case
def piecewise():
    def clipped(x, limit, verbose):
        if verbose and max(x.tolist()) > limit:
            return x / x.sum()
        return x

    return call(clipped, ones(4), 2.0, True)


@case
def looks():
    def halved(x, limit):
        norm = float(x.sum())
        while norm > limit:
            x = x * 0.5
            norm = float(x.sum())
        return x, norm

    return call(halved, ones(4), 0.5)


# -- the texts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_text(name):
    function, args, kwargs = CASES[name]()
    function(*args, **kwargs)
    text = text_of(function)
    if name not in ONCE and name != "piecewise":  # which is recorded again
        function(*args, **kwargs)
        assert function.cache_info().traces == 1  # it is the text that has run
    tj.wait_all()
    check_golden(GOLDEN / f"{name}.txt", text)


def test_every_file_has_a_case():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)


def test_descriptions_have_no_addresses():
    for path in GOLDEN.glob("*.txt"):
        assert not re.search(r"\b0x[0-9a-f]{6,}", path.read_text()), path.name
