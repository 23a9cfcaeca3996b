"""Random bodies of `map` kernels: trees of exact operators over views of every kind."""

import numpy as np

from tracejit import ops
from tracejit.ir.graph import Builder
from tracejit.ir.op import OPS, Trait
from tracejit.ir.types import CPU, DTYPES, HOST, ArrayType, is_floating
from tracejit.ir.view import View
from tracejit.kernels.scalar import FUNCTIONS

BOOL, INT64 = np.dtype("bool"), np.dtype("int64")
ELEMENTWISE = [
    op
    for op in OPS.values()
    if Trait.ELEMENTWISE in op.traits and Trait.EXACT in op.traits and op.arity and op.kernel in FUNCTIONS
]


def random_array(rng, type):
    """Small numbers with special values among them."""
    if type.dtype == BOOL:
        return rng.random(type.shape) < 0.5
    array = rng.integers(-9, 10, type.shape)
    if type.dtype.kind == "c":  # products and quotients of these are exact
        return (array + 1j * rng.permutation(array.reshape(-1)).reshape(type.shape)).astype(type.dtype)
    if is_floating(type.dtype):
        special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30], type.shape)
        with np.errstate(over="ignore"):
            return np.where(rng.random(type.shape) < 0.1, special, array / 4 + 0.1).astype(type.dtype)
    return array.astype(type.dtype)


def random_shape(rng, most=4):
    return tuple(
        rng.choice(
            [0, 1, 2, 3, 5, 8, 33], p=[0.03, 0.1, 0.2, 0.2, 0.2, 0.17, 0.1], size=rng.integers(0, most)
        ).tolist()
    )


def random_view(rng, shape):
    """A base shape, and a view of it with `shape`: permuted, sliced (also backwards), broadcast."""
    order = rng.permutation(len(shape)) if rng.random() < 0.4 else np.arange(len(shape))
    base, slices = [], []
    for axis in order:
        kind = rng.choice(["whole", "slice", "flip", "broadcast"], p=[0.6, 0.15, 0.1, 0.15])
        extent = shape[axis]
        step = int(rng.choice([1, 2, -1, -2])) if kind == "slice" else -1 if kind == "flip" else 1
        margin = int(rng.integers(0, 3)) if kind == "slice" else 0
        need = 1 if kind == "broadcast" else max(0, (extent - 1) * abs(step) + 1 if extent else 0)
        base.append(need + margin)
        slices.append((kind, extent, step, margin))
    view = View.of_shape(base)
    for position, (kind, extent, step, margin) in enumerate(slices):
        if kind == "broadcast":
            strides, extents = list(view.strides), list(view.shape)
            strides[position], extents[position] = 0, extent
            view = View(view.offset, tuple(extents), tuple(strides))
        elif step > 0:
            view = view.slice_axis(position, margin, margin + extent * step, step)
            view = view.slice_axis(position, 0, extent)
        else:
            view = view.slice_axis(position, None, None, step).slice_axis(position, 0, extent)
    return tuple(base), view.permute(np.argsort(order).tolist())


class BodyMaker:
    """Grows a random elementwise body over one shape."""

    def __init__(self, rng, shape):
        self.rng, self.shape = rng, shape
        self.builder = Builder()
        self.values = []

    def choose(self, items):
        return items[int(self.rng.integers(len(items)))]

    def leaf(self, dtype):
        """A new array over the domain."""
        kind = self.choose(["input", "view", "view", "iota", "full"])
        emit = self.builder.emit
        if kind == "input":
            return self.builder.input(ArrayType(self.shape, dtype))
        if kind == "full":
            return emit(ops.full, self.number(dtype), shape=self.shape, device=CPU)
        base, view = random_view(self.rng, self.shape)
        if kind == "view":
            return emit(ops.view, self.builder.input(ArrayType(base, dtype)), view=view)
        size = int(np.prod(base, dtype=int))
        return self.cast(emit(ops.view, emit(ops.iota, size=size, device=CPU), view=view), dtype)

    def number(self, dtype):
        return self.builder.input(ArrayType((), dtype, HOST))

    def cast(self, value, dtype):
        given = value.type.dtype.kind
        if (is_floating(value.type.dtype) and dtype.kind in "iu") or (
            given == "c" and dtype.kind not in "bc"
        ):
            return self.leaf(dtype)  # NumPy leaves overflow undefined; complex numbers have no real ones
        return value if value.type.dtype == dtype else self.builder.emit(ops.astype, value, dtype=dtype)

    def operand(self, dtype):
        """An array over the domain of `dtype`: an old one (cast, if need be) or a new one."""
        if self.values and self.rng.random() < 0.7:
            return self.cast(self.choose(self.values), dtype)
        return self.leaf(dtype)

    def apply(self):
        """One more operator."""
        op = self.choose(ELEMENTWISE)
        if op is ops.where:
            dtype = self.choose(DTYPES)
            inputs = [self.operand(BOOL), self.operand(dtype), self.operand(dtype)]
        elif op is ops.astype:
            inputs, dtype = [], self.choose(DTYPES)
            self.values.append(self.operand(dtype))
        else:
            dtype = self.choose([d for d in DTYPES if d in op.admits])
            inputs = [self.operand(dtype) for _ in range(op.arity)]
            if len(inputs) == 2 and self.rng.random() < 0.3:
                inputs[int(self.rng.integers(2))] = self.number(dtype)
        if inputs:
            self.values.append(self.builder.emit(op, *inputs))


def random_body(seed, nodes=6):
    """A body with a few outputs; some of them are updates of an input."""
    rng = np.random.default_rng(seed)
    maker = BodyMaker(rng, random_shape(rng))
    for _ in range(nodes):
        maker.apply()
    count = int(rng.integers(1, 3))
    outputs = [maker.values[-1 - n] for n in range(min(count, len(maker.values)))]
    for position, value in enumerate(outputs):
        if rng.random() < 0.25:
            for _ in range(10):
                base, view = random_view(rng, maker.shape)
                if not view.overlaps_itself():
                    target = maker.builder.input(ArrayType(base, value.type.dtype))
                    outputs[position] = maker.builder.emit(ops.update, target, value, view=view)
                    break
    return maker.builder.graph(dict.fromkeys(outputs))


def random_arguments(body, seed):
    """Arrays and numbers for the inputs of `body`."""
    rng = np.random.default_rng(seed)
    return [random_array(rng, value.type) for value in body.inputs]
