"""Two-dimensional convolution, and its gradients with respect to input and weight.

    conv2d(x, w)                   y[n, o, i]: sum of x[n, c, i * stride + k * dilation] * w[o, c, k]
    conv2d_input_gradient(y, w)    x[n, c, j]: sum of the same products of y and w
    conv2d_weight_gradient(x, y)   w[o, c, k]: sum of the same products of x and y
    conv2d_weight_sums(x, y)       the same as partial sums, each over `rows` rows of y from all images

x has the shape (batch, channels, height, width), w (out channels, channels / groups, height, width), and y is
the result of their convolution; i, j and k are spatial positions in y, x and w. x is padded with zeros, of
which `padding` is the number on each side. With groups, input and output channels are divided into as many
blocks, and each block of output channels depends on the corresponding block of input channels only.

The first three operators are the derivatives of one scalar, ``sum(y * conv2d(x, w))``, which is linear in x,
w and y. So the gradients of each are the other two, and derivatives of any order exist. The pass
`tracejit.passes.weight_sums` replaces the third operator by the last; nothing else creates it.

>>> x, w = np.arange(9.0).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2))
>>> attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
>>> conv2d.evaluate(x, w, **attrs)
array([[[[ 8., 12.],
         [20., 24.]]]])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.kernels.split import ceil_div
from tracejit.ops.batching import BatchNode, axis_from_first, merged, unmerged
from tracejit.ops.rules import (
    FLOATING,
    FULL_PRECISION,
    check_array,
    check_count,
    check_dtype,
    check_one_device,
    check_one_dtype,
    describe_types,
)
from tracejit.ops.symbolic import Operator, Sym, SymNode

IntPair = tuple[int, int]
Padding = tuple[IntPair, IntPair]


def windows_along(extent: int, window: int, stride: int, padding: IntPair, dilation: int = 1) -> int:
    """The number of windows that fit along one dimension; 0 or less if none does.

    >>> windows_along(5, 3, 2, (1, 1))
    3
    """
    return (extent + sum(padding) - (window - 1) * dilation - 1) // stride + 1


def check_images(name: str, types: Sequence[ArrayType]) -> None:
    """Check for 4-D arrays of one floating dtype on one device, with no empty axis except the first."""
    for x in types:
        check_array(name, x)
        check_dtype(name, x.dtype, FLOATING)
        if x.ndim != 4 or 0 in x.shape[1:]:
            raise ShapeError(
                f"{name} needs arrays of four dimensions (batch or channels, channels, height, width), only "
                f"the first of which may have no elements; got {describe_types(types)}"
            )
    check_one_dtype(name, types)
    check_one_device(name, types)


def check_steps(name: str, padding: Padding, **steps: IntPair) -> None:
    """Check that `steps` (stride, dilation, window) are pairs of positive integers; check the padding."""
    for kind, pair in steps.items():
        if len(pair) != 2 or any(n < 1 for n in pair):
            raise ArgumentError(f"{name}: {kind} {pair} must be two positive integers")
    if len(padding) != 2 or any(len(pair) != 2 or n < 0 for pair in padding for n in pair):
        raise ArgumentError(
            f"{name}: padding {padding} must be ((top, bottom), (left, right)), none negative"
        )


def _check(
    name: str, types: Sequence[ArrayType], stride: IntPair, padding: Padding, dilation: IntPair, groups: int
) -> None:
    check_count(name, types, 2)
    check_images(name, types)
    check_steps(name, padding, stride=stride, dilation=dilation)
    if groups < 1:
        raise ArgumentError(f"{name}: groups must be a positive integer, got {groups}")


def _result_shape(
    name: str,
    x: Sequence[int],
    w: Sequence[int],
    stride: IntPair,
    padding: Padding,
    dilation: IntPair,
    groups: int,
) -> tuple[int, ...]:
    """The shape of the result of a convolution of shapes `x` and `w`; raises ShapeError if there is none."""
    if x[1] != w[1] * groups or w[0] % groups:
        raise ShapeError(
            f"{name} with {groups} group{'s' * (groups != 1)} of an input {tuple(x)} by a weight {tuple(w)}: "
            f"the input needs groups * {w[1]} = {groups * w[1]} channels, and the weight's first extent "
            f"must be a multiple of the groups"
        )
    extents = [
        windows_along(*geometry) for geometry in zip(x[2:], w[2:], stride, padding, dilation, strict=True)
    ]
    if min(extents) < 1:
        raise ShapeError(
            f"{name} of an input {tuple(x)} by a weight {tuple(w)} with padding {padding} and dilation "
            f"{dilation}: the window is larger than the padded input"
        )
    return (x[0], w[0], *extents)


def _infer_convolution(*types: ArrayType, **attrs: Any) -> ArrayType:
    _check("conv2d", types, **attrs)
    x, w = types
    return ArrayType(_result_shape("conv2d", x.shape, w.shape, **attrs), x.dtype, x.device)


def _infer_input_gradient(*types: ArrayType, extents: IntPair, **attrs: Any) -> ArrayType:
    name = "conv2d_input_gradient"
    _check(name, types, **attrs)
    y, w = types
    shape = (y.shape[0], w.shape[1] * attrs["groups"], *extents)
    check_result(name, y, _result_shape(name, shape, w.shape, **attrs))
    return ArrayType(shape, y.dtype, y.device)


def _infer_weight_gradient(*types: ArrayType, window: IntPair, **attrs: Any) -> ArrayType:
    name = "conv2d_weight_gradient"
    _check(name, types, **attrs)
    x, y = types
    shape = (y.shape[1], x.shape[1] // attrs["groups"], *window)
    check_result(name, y, _result_shape(name, x.shape, shape, **attrs))
    return ArrayType(shape, x.dtype, x.device)


def _infer_weight_sums(*types: ArrayType, rows: int, **attrs: Any) -> ArrayType:
    w = _infer_weight_gradient(*types, **attrs)
    if rows < 1:
        raise ArgumentError(f"conv2d_weight_sums: rows must be a positive integer, got {rows}")
    y = types[1]
    return ArrayType((ceil_div(y.shape[0] * y.shape[2], rows), *w.shape), w.dtype, w.device)


def check_result(name: str, y: ArrayType, expected: tuple[int, ...]) -> None:
    """Check that `y` has the expected shape of the result of a convolution; raises ShapeError."""
    if y.shape != expected:
        raise ShapeError(f"{name} got {y} for the result of a convolution of shape {expected}")


# ---- reference evaluation with NumPy


def padded(x: np.ndarray, padding: Padding, value: float = 0) -> np.ndarray:
    """Pad the last two dimensions of `x` with `padding` elements."""
    return np.pad(x, ((0, 0), (0, 0), *padding), constant_values=value)


def _windows(
    x: np.ndarray, window: Sequence[int], stride: IntPair, padding: Padding, dilation: IntPair
) -> Any:
    """All windows of `x`: (batch, channels, out height, out width, height, width)."""
    spans = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded(x, padding), spans, axis=(2, 3))
    return windows[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def _grouped(x: np.ndarray, axis: int, groups: int) -> np.ndarray:
    """Split `axis` of `x` into (groups, channels of a group)."""
    return x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])


def _evaluate_convolution(
    x: np.ndarray, w: np.ndarray, *, stride: IntPair, padding: Padding, dilation: IntPair, groups: int
) -> np.ndarray:
    windows = _grouped(_windows(x, w.shape[2:], stride, padding, dilation), 1, groups)
    y = np.einsum("ngcijkl,gockl->ngoij", windows, _grouped(w, 0, groups), optimize=True)
    return y.reshape(x.shape[0], w.shape[0], *y.shape[3:]).astype(x.dtype, copy=False)


def _evaluate_input_gradient(
    y: np.ndarray,
    w: np.ndarray,
    *,
    extents: IntPair,
    stride: IntPair,
    padding: Padding,
    dilation: IntPair,
    groups: int,
) -> np.ndarray:
    (top, bottom), (left, right) = padding
    shape = (y.shape[0], groups, w.shape[1], extents[0] + top + bottom, extents[1] + left + right)
    x = np.zeros(shape, y.dtype)
    rows, columns = (slice(0, (n - 1) * s + 1, s) for n, s in zip(y.shape[2:], stride, strict=True))
    for k, m in np.ndindex(*w.shape[2:]):
        products = np.einsum("ngoij,goc->ngcij", _grouped(y, 1, groups), _grouped(w[:, :, k, m], 0, groups))
        x[:, :, :, k * dilation[0] :, m * dilation[1] :][:, :, :, rows, columns] += products
    x = x.reshape(y.shape[0], groups * w.shape[1], *shape[3:])
    return x[:, :, top : top + extents[0], left : left + extents[1]]


def _evaluate_weight_gradient(
    x: np.ndarray,
    y: np.ndarray,
    *,
    window: IntPair,
    stride: IntPair,
    padding: Padding,
    dilation: IntPair,
    groups: int,
) -> np.ndarray:
    windows = _windows(x, window, stride, padding, dilation)
    w = np.einsum("ngcijkl,ngoij->gockl", _grouped(windows, 1, groups), _grouped(y, 1, groups), optimize=True)
    return w.reshape(y.shape[1], *w.shape[2:]).astype(x.dtype, copy=False)


def _evaluate_weight_sums(x: np.ndarray, y: np.ndarray, *, rows: int, **attrs: Any) -> np.ndarray:
    images, _, height, _ = y.shape
    sum_of_row = np.arange(images * height).reshape(images, 1, height, 1) // rows
    sums = range(ceil_div(images * height, rows))
    return np.stack([_evaluate_weight_gradient(x, np.where(sum_of_row == n, y, 0), **attrs) for n in sums])


# ---- gradients


def _geometry(node: SymNode) -> dict[str, Any]:
    """The attributes that convolution and its gradients share."""
    return {name: node.attrs[name] for name in ("stride", "padding", "dilation", "groups")}


def _input_gradient(y: Sym, w: Sym, x: Sym, node: SymNode) -> Sym:
    return conv2d_input_gradient(y, w, extents=x.shape[2:], **_geometry(node))


def _weight_gradient(x: Sym, y: Sym, w: Sym, node: SymNode) -> Sym:
    return conv2d_weight_gradient(x, y, window=w.shape[2:], **_geometry(node))


def _convolution_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x, w), (ct,) = node.inputs, cotangents
    return [_input_gradient(ct, w, x, node), _weight_gradient(x, ct, w, node)]


def _input_gradient_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (y, w), (ct,) = node.inputs, cotangents
    return [conv2d(ct, w, **_geometry(node)), _weight_gradient(ct, y, w, node)]


def _weight_gradient_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x, y), (ct,) = node.inputs, cotangents
    return [_input_gradient(y, ct, x, node), conv2d(x, ct, **_geometry(node))]


# ---- batching: the images of all examples form one batch, or their channels form groups


def _concatenate_channels(x: Sym) -> Sym:
    """Concatenate the channels of all examples of mapped images (examples, batch, channels, ...)."""
    moved = axis_from_first(x, 1)
    return moved.reshape((moved.shape[0], moved.shape[1] * moved.shape[2], *moved.shape[3:]))


def _convolution_batch(node: BatchNode) -> Sym:
    """Batching of `conv2d`: if only weights are mapped, the filters of all examples form one weight."""
    x, w = node.inputs
    if not node.mapped[0] and node.attrs["groups"] == 1:
        return unmerged(node.apply(x, merged(w)), node.size, 1)
    return _images_batch(node)


def _images_batch(node: BatchNode) -> Sym:
    """Batching of operators on images and a weight: examples become batch elements or, else, groups."""
    (x, w), size = node.inputs, node.size
    if not node.mapped[1]:
        return unmerged(node.apply(merged(x), w), size)
    x, w = node.mapped_operands()
    groups = node.attrs["groups"] * size
    return unmerged(node.apply(_concatenate_channels(x), merged(w), groups=groups), size, 1)


def _weight_batch(node: BatchNode) -> Sym:
    x, y = node.inputs
    groups = node.attrs["groups"]
    if not node.mapped[0] and groups == 1:
        return unmerged(node.apply(x, _concatenate_channels(y)), node.size)
    x, y = node.mapped_operands()
    result = node.apply(_concatenate_channels(x), _concatenate_channels(y), groups=groups * node.size)
    return unmerged(result, node.size)


def _work(y: int, w: int) -> Any:
    """Return an `Op.work` function that counts multiplications.

    `y` and `w` are the positions, among the shapes of operands and result, of the convolution's result and
    weight.
    """
    return lambda shapes, attrs: math.prod(shapes[y]) * math.prod(shapes[w][1:])


LIBRARY = frozenset({Trait.LIBRARY})

conv2d = Operator(
    "conv2d",
    _infer_convolution,
    _evaluate_convolution,
    _convolution_gradient,
    traits=LIBRARY,
    doc="Sums of products of a weight with windows of images (cross-correlation), in groups of channels.",
    admits=FLOATING,
    work=_work(y=2, w=1),
    batch=_convolution_batch,
)
register(conv2d)

conv2d_input_gradient = Operator(
    "conv2d_input_gradient",
    _infer_input_gradient,
    _evaluate_input_gradient,
    _input_gradient_gradient,
    traits=LIBRARY,
    doc="Gradient of a convolution with respect to its input, from the cotangent and the weight.",
    admits=FLOATING,
    work=_work(y=0, w=1),
    batch=_images_batch,
)
register(conv2d_input_gradient)

conv2d_weight_gradient = Operator(
    "conv2d_weight_gradient",
    _infer_weight_gradient,
    _evaluate_weight_gradient,
    _weight_gradient_gradient,
    traits=LIBRARY,
    doc="Gradient of a convolution with respect to its weight, from its input and the cotangent.",
    admits=FLOATING,
    work=_work(y=1, w=2),
    batch=_weight_batch,
)
register(conv2d_weight_gradient)

conv2d_weight_sums = Operator(
    "conv2d_weight_sums",
    _infer_weight_sums,
    _evaluate_weight_sums,
    traits=LIBRARY | {Trait.COMPILED},
    doc="Gradient of a convolution with respect to its weight, as partial sums.",
    admits=FULL_PRECISION,
    work=lambda shapes, attrs: math.prod(shapes[1]) * math.prod(shapes[2][2:]),
)
register(conv2d_weight_sums)
