"""Discrete Fourier transforms without scaling, computed by NumPy (trait HOST).

fft(x; axes, inverse)      y[k] = sum over n of x[n] exp(-2 pi i k n / N) along each axis; inverse: +2 pi i
rfft(x; axis)              the first N // 2 + 1 elements of the transform of real numbers
irfft(y; axis, size)       size * x, for the `size` real numbers x whose transform begins with y

The transforms are linear and their matrices symmetric, so the pull-back of `fft` is `fft` itself; see
`tracejit.ops.complex_numbers` for the convention of complex cotangents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tracejit.errors import ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.ops.arithmetic import logical_and
from tracejit.ops.batching import shifting
from tracejit.ops.complex_numbers import complex_dtype, conj, part_dtype, real
from tracejit.ops.creation import iota
from tracejit.ops.movement import update
from tracejit.ops.rules import (
    COMPLEX,
    FACTORABLE,
    FULL_PRECISION,
    check_array,
    check_axis,
    check_count,
    check_dtype,
)
from tracejit.ops.select import where
from tracejit.ops.symbolic import Operator, Sym, SymNode, number

ROUTINE = frozenset({Trait.HOST})


def _check(
    name: str, types: Sequence[ArrayType], axes: Sequence[int], admits: frozenset[np.dtype]
) -> ArrayType:
    check_count(name, types, 1)
    (x,) = types
    check_array(name, x)
    check_dtype(name, x.dtype, admits)
    for axis in axes:
        check_axis(name, x, axis)
        if not x.shape[axis]:
            raise ShapeError(f"{name} along axis {axis} of {x}: there are no elements")
    return x


def _with_extent(x: ArrayType, axis: int, extent: int, dtype: np.dtype) -> ArrayType:
    return ArrayType((*x.shape[:axis], extent, *x.shape[axis + 1 :]), dtype, x.device)


def _infer_fft(*types: ArrayType, axes: tuple[int, ...], inverse: bool) -> ArrayType:
    return _check("fft", types, axes, COMPLEX)


def _infer_rfft(*types: ArrayType, axis: int) -> ArrayType:
    x = _check("rfft", types, (axis,), FULL_PRECISION)
    return _with_extent(x, axis, x.shape[axis] // 2 + 1, complex_dtype(x.dtype))


def _infer_irfft(*types: ArrayType, axis: int, size: int) -> ArrayType:
    x = _check("irfft", types, (axis,), COMPLEX)
    if size < 1 or size // 2 + 1 != x.shape[axis]:
        raise ShapeError(f"irfft of {x} along axis {axis}: {size} numbers have {size // 2 + 1} coefficients")
    return _with_extent(x, axis, size, part_dtype(x.dtype))


def _fft(x: np.ndarray, *, axes: tuple[int, ...], inverse: bool) -> np.ndarray:
    return np.fft.ifftn(x, axes=axes, norm="forward") if inverse else np.fft.fftn(x, axes=axes)


def _fft_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    return [fft(cotangents[0], **node.attrs)]


def _rfft_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    """The real part of the transform of the cotangent, zero-padded to the extent of the input."""
    (x,), (ct,), axis = node.inputs, cotangents, node.attrs["axis"]
    zeros = number(0, ct.dtype).full(x.shape, x.device)
    padded = update(zeros, ct, view=zeros.identity_view().slice_axis(axis, 0, ct.shape[axis]))
    return [real(fft(padded, axes=(axis,), inverse=False))]


def _irfft_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    """The conjugate transform; coefficients that represent a conjugate pair are counted twice."""
    (y,), (ct,), axis, size = node.inputs, cotangents, node.attrs["axis"], node.attrs["size"]
    half = conj(rfft(ct, axis=axis))
    position = iota(size=y.shape[axis], device=y.device)
    position = position.spread(tuple(a for a in range(len(y.shape)) if a != axis), y.shape)
    is_pair = logical_and(position > 0, position < (size + 1) // 2)
    return [where(is_pair, half * 2, half)]


def _routine(
    name: str,
    infer: Callable[..., ArrayType],
    evaluate: Callable[..., np.ndarray],
    gradient: Callable[..., list[Sym | None]],
    doc: str,
) -> Operator:
    op = Operator(
        name,
        infer,
        evaluate,
        gradient,
        traits=ROUTINE,
        doc=doc,
        admits=FACTORABLE,
        batch=shifting("axes" if name == "fft" else "axis"),
    )
    register(op)
    return op


fft: Operator = _routine("fft", _infer_fft, _fft, _fft_gradient, "Discrete Fourier transform, unscaled.")
rfft: Operator = _routine(
    "rfft",
    _infer_rfft,
    lambda x, *, axis: np.fft.rfft(x, axis=axis),
    _rfft_gradient,
    "The first half of the Fourier transform of real numbers.",
)
irfft: Operator = _routine(
    "irfft",
    _infer_irfft,
    lambda y, *, axis, size: np.fft.irfft(y, size, axis=axis, norm="forward"),
    _irfft_gradient,
    "Real numbers from the first half of their Fourier transform, unscaled.",
)
