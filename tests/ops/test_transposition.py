"""Forward mode of every operator: its gradient rule is linear in the cotangent and can itself be pulled back.

With J the derivative of an operator, u a cotangent and v a tangent, ``u . (J v) = (J^T u) . v``; J^T u is the
pull-back, J v the pull-back of that (see `tracejit.frontend.transforms.forward`).
"""

import numpy as np
import pytest

from tests.ops.test_registry import BETWEEN, COMPLEX, REFUSING, SAMPLES, gradient_inputs, type_of
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Builder
from tracejit.ir.op import OPS
from tracejit.passes.gradient import gradient

DIFFERENTIABLE = sorted({name for name, op in OPS.items() if op.gradient} - REFUSING - BETWEEN)


def samples(name, rng):
    if name in SAMPLES:
        return [(inputs, attrs) for inputs, attrs, *_ in SAMPLES[name] if is_smooth(inputs, attrs)]
    if OPS[name].admits <= COMPLEX:
        return [([rng.normal(size=5) + 1j * rng.normal(size=5)], {})]
    if name == "complex":
        return [(list(rng.normal(size=(2, 5))), {})]
    return list(gradient_inputs(name, rng))


def is_smooth(inputs, attrs):
    """Whether there are derivatives at all: of floats, in the forms that have some."""
    if attrs.get("complete") and inputs[0].shape[-2] > inputs[0].shape[-1]:
        return False
    if attrs.get("full") and len(set(inputs[0].shape[-2:])) > 1:
        return False
    return not attrs.get("pieces") and any(
        isinstance(x, np.ndarray) and x.dtype.kind in "fc" and x.size for x in inputs
    )


def noise(value, rng):
    x = rng.normal(size=value.type.shape)
    return np.asarray(x + 1j * rng.normal(size=x.shape) if value.type.dtype.kind == "c" else x).astype(
        value.type.dtype
    )


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_gradient_rule_can_be_transposed(name):
    op, rng = OPS[name], np.random.default_rng(11)
    cases = samples(name, rng)
    assert cases
    for inputs, attrs in cases:
        builder = Builder()
        values = [builder.input(type_of(x)) for x in inputs]
        result = builder.emit(op, *values, **attrs)
        outputs = [
            v for v in (result if isinstance(result, tuple) else (result,)) if v.type.dtype.kind in "fc"
        ]
        wrt = [v for v in values if v.type.dtype.kind in "fc" and not v.type.on_host]
        if not outputs or not wrt:
            continue
        seeds = [builder.input(v.type) for v in outputs]
        pulled = gradient(builder, list(builder.nodes), outputs, seeds, wrt)
        known = [(v, g) for v, g in zip(wrt, pulled, strict=True) if g is not None]
        if not known:
            continue
        tangents = [builder.input(v.type) for v, _ in known]
        pushed = gradient(builder, list(builder.nodes), [g for _, g in known], tangents, seeds)
        cotangent, tangent = [noise(v, rng) for v in seeds], [noise(v, rng) for v in tangents]
        graph = builder.graph([g for _, g in known] + [p for p in pushed if p is not None])
        with np.errstate(all="ignore"):
            found = evaluate(graph, [*inputs, *cotangent, *tangent])[0]
        rows = sum(float(np.sum(g * t).real) for g, t in zip(found, tangent, strict=False))
        along = iter(found[len(known) :])
        columns = sum(
            float(np.sum(ct * next(along)).real)
            for ct, p in zip(cotangent, pushed, strict=True)
            if p is not None
        )
        floating = [v.type.dtype for v in (*wrt, *outputs)]
        digits = min(dtype.itemsize // (2 if dtype.kind == "c" else 1) for dtype in floating)
        assert columns == pytest.approx(rows, rel={2: 1e-2, 4: 1e-3, 8: 1e-8}[digits], abs=1e-6)
