"""Whole training steps as graphs, for tests of fusion and planning."""

import numpy as np

from tracejit import ops
from tracejit.ir.graph import Builder, Effect, Value
from tracejit.ir.types import HOST, ArrayType
from tracejit.ops.symbolic import Sym, building
from tracejit.passes.driver import clean
from tracejit.passes.gradient import gradient

F4, I8 = np.dtype("float32"), np.dtype("int64")


class Model:
    """A graph under construction; `names` are those of its inputs."""

    def __init__(self):
        self.builder = Builder()
        self.names: dict[str, Value] = {}

    def array(self, name, *shape, dtype=F4):
        self.names[name] = self.builder.input(ArrayType(shape, dtype))
        return Sym(self.names[name])

    def number(self, name, dtype=F4):
        self.names[name] = self.builder.input(ArrayType((), dtype, HOST))
        return Sym(self.names[name])

    def call(self, op, *operands, **attrs):
        return Sym(self.builder.emit(op, *(x.value for x in operands), **attrs))

    def gradients(self, loss, parameters):
        ones = self.builder.emit(ops.constant, value=1.0, dtype=loss.dtype)
        seed = self.builder.emit(ops.full, ones, shape=loss.shape, device=loss.device)
        wrt = [self.names[name] for name in parameters]
        found = gradient(self.builder, list(self.builder.nodes), [loss.value], [seed], wrt)
        return [Sym(value) for value in found]


def cross_entropy(model, logits, labels):
    """Mean of -log softmax(logits)[label]."""
    rows, columns = logits.shape
    top = model.call(ops.stop_gradient, model.call(ops.max, logits, axes=(1,)).spread((1,), logits.shape))
    shifted = logits - top
    exponentials = model.call(ops.exp, shifted)
    total = model.call(ops.log, exponentials.sum((1,)))
    grid = model.call(ops.iota, size=columns, device=logits.device)
    grid = grid.view(grid.identity_view().broadcast((rows, columns)))
    hits = model.call(ops.equal, grid, labels.spread((1,), (rows, columns)))
    zero = model.call(ops.astype, hits, dtype=F4)
    picked = (shifted * zero).sum((1,))
    return (total - picked).sum((0,)) / float(rows)


def mlp_step(batch=128, width=(784, 512, 10), rate=True):
    """Forward, cross entropy, backward, momentum: the whole step of a two-layer network, in place."""
    model = Model()
    x = model.array("x", batch, width[0])
    labels = model.array("labels", batch, dtype=I8)
    shapes = {"w1": width[:2], "b1": width[1:2], "w2": width[1:], "b2": width[2:]}
    parameters = {name: model.array(name, *shape) for name, shape in shapes.items()}
    speeds = {name: model.array("v" + name, *shape) for name, shape in shapes.items()}
    lr, momentum = model.number("lr"), model.number("momentum")
    with building(model.builder):
        hidden = x @ parameters["w1"]
        hidden = hidden + parameters["b1"].view(parameters["b1"].identity_view().broadcast(hidden.shape))
        zeros = model.call(ops.full, _zero(model), shape=hidden.shape, device=x.device)
        active = model.call(ops.maximum, hidden, zeros)
        logits = active @ parameters["w2"]
        logits = logits + parameters["b2"].view(parameters["b2"].identity_view().broadcast(logits.shape))
        loss = cross_entropy(model, logits, labels)
        effects = []
        for name, found in zip(shapes, model.gradients(loss, shapes), strict=True):
            moved = speeds[name] * momentum + found
            stepped = parameters[name] - moved * lr
            effects.append(Effect(model.names["v" + name], moved.value))
            effects.append(Effect(model.names[name], stepped.value))
    graph = model.builder.graph([loss.value], effects)
    return clean(graph), model.names


def _zero(model):
    return Sym(model.builder.emit(ops.constant, value=0.0, dtype=F4))


def lstm_step(steps=8, batch=4, inputs=6, hidden=5):
    """An unrolled LSTM: gates from a product each for input and state, loss of the last state, gradients."""
    model = Model()
    x = model.array("x", steps, batch, inputs)
    w = model.array("w", inputs, 4 * hidden)
    u = model.array("u", hidden, 4 * hidden)
    b = model.array("b", 4 * hidden)
    state, cell = model.array("h0", batch, hidden), model.array("c0", batch, hidden)
    with building(model.builder):
        for step in range(steps):
            gates = x.view(x.identity_view().select(0, step)) @ w + state @ u
            gates = gates + b.view(b.identity_view().broadcast(gates.shape))
            parts = [
                gates.view(gates.identity_view().slice_axis(1, n * hidden, (n + 1) * hidden))
                for n in range(4)
            ]
            keep, write, read = (model.call(ops.sigmoid, part) for part in parts[:3])
            cell = keep * cell + write * model.call(ops.tanh, parts[3])
            state = read * model.call(ops.tanh, cell)
        loss = model.call(ops.square, state).sum((0, 1))
        found = model.gradients(loss, ["w", "u", "b"])
    graph = model.builder.graph([loss.value, *(f.value for f in found)])
    return clean(graph), model.names
