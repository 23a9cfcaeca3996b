"""`NDArray`, the array of the public interface: operators, indexing and the methods of NumPy's arrays.

Operators are derived from the operator declarations. Methods that are also functions are derived from the
declarations of the functions (`surface.Methods`). In-place operators write through the view, so all aliases
see the result. Methods that need no copy return views.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from inspect import getattr_static
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import (
    assignment,
    bits,
    dispatch,
    immediate,
    in_memory,
    indexing,
    interop,
    machine_code,
    namespace,
    promotion,
    temporaries,
)
from tracejit.frontend.arrays.core import ArrayCore, refuse_trace
from tracejit.frontend.arrays.devices import as_device
from tracejit.frontend.arrays.flat import FlatArray
from tracejit.frontend.arrays.functions import creation, elementwise, linear, manipulation, placing, sorting
from tracejit.frontend.arrays.hints import REMEDIES, MissingAttribute
from tracejit.frontend.arrays.surface import Methods
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.look_loops.counters import counted_rows
from tracejit.frontend.recording.recording import thread
from tracejit.ir.op import Op


def _is_operand(x: Any) -> bool:
    """Whether binary operators accept `x`; for other objects they return NotImplemented."""
    return type(x) in OPERANDS or isinstance(x, (np.ndarray, np.generic, bool, int, float, complex))


def _binary(op: Op) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    compute = immediate.binary_of(op)

    def backward(self: Any, other: Any) -> Any:
        result = None if thread.busy else compute(other, self)
        if result is not None:
            return result
        return dispatch.record(op, other, self) if _is_operand(other) else NotImplemented

    def in_place(self: Any, other: Any) -> Any:
        if not thread.busy and immediate.in_place(op, self, other):
            return self
        if type(other) not in OPERANDS and not _is_operand(other):
            return NotImplemented
        if self._storage is temporaries.PROBE:
            temporaries.references.count = sys.getrefcount(self)
            return self
        trace = thread.trace
        if trace is not None and self._storage in trace.numpy_numbers and not self._view.shape:
            return dispatch.record(op, self, other)  # NumPy's numbers are immutable
        if (
            trace is not None
            and trace.is_pick(self._storage)
            and temporaries.is_temporary(sys.getrefcount(self))
        ):
            result = dispatch.record(op, self, other)
            if result.dtype == self.dtype and result.shape == self.shape:
                return result
        dispatch.update(op, self, other)
        return self

    return _forward(op, compute), backward, in_place


def _forward(op: Op, compute: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def forward(self: Any, other: Any) -> Any:
        result = None if thread.busy else compute(self, other)
        if result is not None:
            return result
        if type(other) not in OPERANDS and not _is_operand(other):
            return NotImplemented
        return dispatch.record(op, self, other)

    return forward


def _comparison(op: Op) -> Callable[..., Any]:
    return _forward(op, immediate.binary_of(op))


def _unary(op: Op) -> Callable[..., Any]:
    compute = immediate.unary_of(op)

    def apply(self: Any) -> Any:
        result = None if thread.busy else compute(self)
        return dispatch.record(op, self) if result is None else result

    return apply


class NDArray(Methods):
    """A mutable n-dimensional array, recorded and computed lazily, as created by `tj.asarray` or `tj.zeros`.

    >>> import tracejit as tj
    >>> x = tj.arange(6).reshape(2, 3)
    >>> x[0] += 10
    >>> x
    NDArray([[10, 11, 12],
             [ 3,  4,  5]], dtype=int64)
    """

    __slots__ = ()

    __neg__ = _unary(ops.negative)
    __pos__ = _unary(ops.copy)
    __abs__ = _unary(ops.abs)
    __invert__ = _unary(ops.bitwise_invert)
    __lt__ = _comparison(ops.less)
    __le__ = _comparison(ops.less_equal)
    __gt__ = _comparison(ops.greater)
    __ge__ = _comparison(ops.greater_equal)
    __eq__ = _comparison(ops.equal)
    __ne__ = _comparison(ops.not_equal)
    __hash__ = None  # type: ignore[assignment]

    __add__, __radd__, __iadd__ = _binary(ops.add)
    __sub__, __rsub__, __isub__ = _binary(ops.subtract)
    __mul__, __rmul__, __imul__ = _binary(ops.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _binary(ops.divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary(ops.floor_divide)
    __mod__, __rmod__, __imod__ = _binary(ops.remainder)
    __and__, __rand__, __iand__ = _binary(ops.bitwise_and)
    __or__, __ror__, __ior__ = _binary(ops.bitwise_or)
    __xor__, __rxor__, __ixor__ = _binary(ops.bitwise_xor)
    __lshift__, __rlshift__, __ilshift__ = _binary(ops.bitwise_left_shift)
    __rshift__, __rrshift__, __irshift__ = _binary(ops.bitwise_right_shift)

    def __pow__(self, other: Any) -> Any:
        return elementwise.pow(self, other) if _is_operand(other) else NotImplemented

    def __rpow__(self, other: Any) -> Any:
        return elementwise.pow(other, self) if _is_operand(other) else NotImplemented

    def __ipow__(self, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        dispatch.in_place("pow", elementwise.pow, self, other)
        return self

    def __matmul__(self, other: Any) -> Any:
        return linear.matmul(self, other) if isinstance(other, (ArrayCore, np.ndarray)) else NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        return linear.matmul(other, self) if isinstance(other, np.ndarray) else NotImplemented

    def __imatmul__(self, other: Any) -> Any:
        dispatch.in_place("matmul", linear.matmul, self, other)
        return self

    def __getitem__(self, index: Any) -> Any:
        result = in_memory.basic(self, index)
        return indexing.getitem(self, index) if result is None else result

    def __setitem__(self, index: Any, value: Any) -> None:
        if type(value) in (list, tuple):
            value = creation.asarray(value, dtype=self.dtype, device=self.device)
        if not in_memory.set_basic(self, index, value):
            assignment.setitem(self, index, value)

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise locate(ArgumentError("cannot iterate over an array without dimensions"), user_location())
        if thread.trace is not None:
            rows = counted_rows(thread.trace, sys._getframe(1), self)
            if rows is not None:
                return rows
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    # -- views -----------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the dimensions; an assignment reshapes the array in place.

        Raises ShapeError if the numbers of elements differ, ArgumentError if the strides do not allow it
        without a copy. In a traced function, only arrays created there can be reshaped in place.

        >>> import tracejit as tj
        >>> x = tj.ones((2, 3))
        >>> x.shape = 3, -1
        >>> x.shape
        (3, 2)
        """
        return self._view.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        if thread.trace is not None and self._storage.pending is None:
            refuse_trace("the shape of an array from outside (use reshape)")
        self._view = manipulation.reshape(self, shape, copy=False)._view
        self._memory = None

    @property
    def flat(self) -> FlatArray:
        """The elements in C order as one dimension, for iteration, indexing and assignment.

        >>> import tracejit as tj
        >>> x = tj.zeros((2, 2)).T
        >>> x.flat[1:3] = 5
        >>> x
        NDArray([[0., 5.],
                 [5., 0.]], dtype=float32)
        """
        return FlatArray(self)

    @flat.setter
    def flat(self, values: Any) -> None:
        self.flat[:] = values

    @property
    def T(self) -> NDArray:
        """The array with all dimensions reversed (a view).

        >>> import tracejit as tj
        >>> tj.ones((2, 3)).T.shape
        (3, 2)
        """
        view = in_memory.view(self, np.ndarray.transpose)
        return manipulation.transpose(self) if view is None else view

    @property
    def real(self) -> NDArray:
        """The real part; see `tracejit.real`.

        >>> import tracejit as tj
        >>> tj.asarray([1 + 2j]).real
        NDArray([1.], dtype=float32)
        """
        return elementwise.real(self)

    @real.setter
    def real(self, value: Any) -> None:
        self[...] = placing.with_parts(self, value, None)

    @property
    def imag(self) -> NDArray:
        """The imaginary part; see `tracejit.imag`.

        >>> import tracejit as tj
        >>> tj.asarray([1 + 2j]).imag
        NDArray([2.], dtype=float32)
        """
        return elementwise.imag(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        self[...] = placing.with_parts(self, None, value)

    @property
    def mT(self) -> NDArray:
        """The array with its last two dimensions exchanged (a view).

        Raises ShapeError for fewer than 2 dimensions.

        >>> import tracejit as tj
        >>> tj.ones((4, 2, 3)).mT.shape
        (4, 3, 2)
        """
        return manipulation.matrix_transpose(self)

    def transpose(self, *axes: Any) -> NDArray:
        """Dimensions in another order (a view); reversed by default.

        Raises AxisError if the axes are not a permutation of all dimensions.

        >>> import tracejit as tj
        >>> tj.ones((2, 3, 4)).transpose(1, 0, 2).shape
        (3, 2, 4)
        """
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return manipulation.transpose(self, order or None)

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> NDArray:
        """Like `tj.reshape`; the shape may also be given as several integers.

        Raises ShapeError if the numbers of elements differ, and what `tj.reshape` raises.

        >>> import tracejit as tj
        >>> tj.arange(6).reshape(2, -1).shape
        (2, 3)
        """
        new_shape = shape[0] if len(shape) == 1 else shape
        view = in_memory.reshape(self, new_shape) if order == "C" and copy is None else None
        return manipulation.reshape(self, new_shape, order, copy=copy) if view is None else view

    def flatten(self, order: str = "C") -> NDArray:
        """One dimension, always a copy; orders are those of `tj.ravel`.

        The dtype is unchanged. Raises ArgumentError for another order.

        >>> import tracejit as tj
        >>> tj.asarray([[1, 2], [3, 4]]).flatten()
        NDArray([1, 2, 3, 4], dtype=int64)
        """
        if order == "C":
            return manipulation.reshape(self, (self.size,), copy=True)
        return manipulation.ravel(self, order).copy()

    def compress(self, condition: Any, axis: int | None = None) -> NDArray:
        """The slices along an axis for which `condition` is true; see `tracejit.compress`.

        >>> import tracejit as tj
        >>> tj.asarray([1, 2, 3]).compress([True, False, True])
        NDArray([1, 3], dtype=int64)
        """
        return placing.compress(condition, self, axis)

    conjugate = elementwise.conj

    def sort(self, axis: int = -1, kind: str | None = None, order: None = None, **options: Any) -> None:
        """Sort the elements along an axis in place; `tj.sort` returns a copy.

        Arguments and errors are those of `tj.sort`. Raises ReadOnlyError for a view that cannot be written.

        >>> import tracejit as tj
        >>> x = tj.asarray([3, 1, 2])
        >>> x.sort()
        >>> x
        NDArray([1, 2, 3], dtype=int64)
        """
        dispatch.write(self, sorting.sort(self, axis, kind, order, **options), "sort")

    def partition(self, kth: Any, axis: int = -1, kind: str = "introselect", order: None = None) -> None:
        """Order the elements along an axis in place, as `tj.partition` does.

        Raises what `tj.partition` raises, and ReadOnlyError for a view that cannot be written.

        >>> import tracejit as tj
        >>> x = tj.asarray([3, 1, 2])
        >>> x.partition(1)
        >>> x[1]
        NDArray(2, dtype=int64)
        """
        dispatch.write(self, sorting.partition(self, kth, axis, kind, order), "partition")

    def __dir__(self) -> list[str]:
        return [
            name
            for name in super().__dir__()
            if type(getattr_static(self, name, None)) is not MissingAttribute
        ]

    # -- NumPy's protocols -----------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return interop.call_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return interop.call_function(function, args, options)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version is not None and api_version not in namespace.VERSIONS:
            what = f"version {api_version!r} of the array API is not known; known are {namespace.VERSIONS}"
            raise locate(ArgumentError(what), user_location())
        return sys.modules["tracejit"]

    # -- copies ----------------------------------------------------------------------------------------------

    def copy(self) -> NDArray:
        """A new array with the same elements.

        Shape and dtype are unchanged.

        >>> import tracejit as tj
        >>> x = tj.zeros(2)
        >>> y = x.copy()
        >>> y += 1
        >>> x
        NDArray([0., 0.], dtype=float32)
        """
        return dispatch.emit(ops.copy, self)

    def astype(self, dtype: Any, *, copy: bool = True) -> NDArray:
        """The elements cast to `dtype`; the array itself if it has this dtype and ``copy=False``.

        The shape is unchanged. Raises DTypeError for an unsupported dtype.

        >>> import tracejit as tj
        >>> tj.asarray([1.5, 2.5]).astype(tj.int32)
        NDArray([1, 2], dtype=int32)
        """
        target = promotion.supported("astype", dtype)
        if target == self.dtype:
            return self.copy() if copy else self
        return dispatch.emit(ops.astype, self, dtype=target)

    def view(self, dtype: Any = None) -> NDArray:
        """The bits of the elements reinterpreted as another dtype; without one, another view of the array.

        With a dtype of another size, the extent of the last axis changes accordingly. Unlike in NumPy, an
        array of another dtype has its own memory: it is read-only, and does not reflect later writes. It has
        no gradient.
        Raises DTypeError for an unsupported dtype, ShapeError if the bytes of the last axis are not a
        multiple of its size.

        >>> import tracejit as tj
        >>> tj.asarray([1.0, -2.0]).view(tj.uint32) >> 31
        NDArray([0, 1], dtype=uint32)
        """
        return bits.reinterpreted(self, self.dtype if dtype is None else promotion.supported("view", dtype))

    def tobytes(self, order: str = "C") -> bytes:
        """The elements as bytes, in C order, or ("F") column by column. This is a look.

        Raises ValueError for another order.

        >>> import tracejit as tj
        >>> tj.asarray([1, 2], dtype=tj.uint8).tobytes()
        b'\\x01\\x02'
        """
        return self._seen("tobytes()").tobytes(order)  # type: ignore[arg-type]

    def to_device(self, device: Any, /, *, stream: None = None) -> NDArray:
        """The array on `device`; the array itself if it is already there.

        The shape and dtype are unchanged. The device's workers perform the copy when the elements are
        computed; equal copies in one step are merged. Gradients flow back to the original device.
        Raises DeviceError for an unknown device, ArgumentError for a `stream`, which no device supports.

        >>> import tracejit as tj
        >>> tj.ones(2).to_device("cpu")
        NDArray([1., 1.], dtype=float32)
        """
        if stream is not None:
            what = f"to_device: stream is {stream!r}; arrays here are ordered by the engine, leave it out"
            raise locate(ArgumentError(what), user_location())
        target = as_device("to_device", device, self.device)
        return self if target == self.device else dispatch.emit(ops.copy_to, self, device=target, priority=0)

    def to(self, device: Any) -> NDArray:
        """The array on `device`; a short form of `to_device`.

        The shape and dtype are unchanged.
        Raises DeviceError for an unknown device.

        >>> import tracejit as tj
        >>> x = tj.ones(2).to(tj.cpu(1))
        >>> x + 1
        NDArray([2., 2.], dtype=float32)
        """
        return self.to_device(device)

    def __copy__(self) -> NDArray:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> NDArray:
        return self.copy()

    def fill(self, value: Any) -> None:
        """Set every element to `value`.

        `value` is a number or an array that broadcasts to the shape; it is cast to the dtype.
        Raises ShapeError if it does not broadcast, ReadOnlyError for a view that cannot be written.

        >>> import tracejit as tj
        >>> x = tj.zeros(2)
        >>> x.fill(3)
        >>> x
        NDArray([3., 3.], dtype=float32)
        """
        dispatch.write(self, value, "fill", casts=True)


OPERANDS = frozenset({*dispatch.NATIVE, NDArray})
"""The types of most operands, for a fast test."""

for _name, _remedy in REMEDIES["array"].items():
    setattr(NDArray, _name, MissingAttribute("NDArray", _name, _remedy))
machine_code.watch(NDArray)
