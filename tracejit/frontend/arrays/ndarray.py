"""`NDArray`: the array people use. Operators, indexing and the methods NumPy users expect.

Operators are derived from the operator declarations, methods that are functions come from the declarations of
these (`surface.Methods`). In-place operators write through the view, so that every
alias sees them. Methods that need no copy return views.
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
)
from tracejit.frontend.arrays.core import ArrayCore, refuse_trace
from tracejit.frontend.arrays.devices import as_device
from tracejit.frontend.arrays.flat import FlatArray
from tracejit.frontend.arrays.functions import elementwise, linear, manipulation, placing, sorting
from tracejit.frontend.arrays.hints import REMEDIES, Elsewhere
from tracejit.frontend.arrays.surface import Methods
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.look_loops.counters import counted_rows
from tracejit.frontend.recording.recording import thread
from tracejit.ir.op import Op


def _takes(x: Any) -> bool:
    return type(x) in OPERANDS or isinstance(x, (np.ndarray, np.generic, bool, int, float, complex))


def _binary(op: Op) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    compute = immediate.binary_of(op)

    def backward(self: Any, other: Any) -> Any:
        found = None if thread.busy else compute(other, self)
        if found is not None:
            return found
        return dispatch.record(op, other, self) if _takes(other) else NotImplemented

    def in_place(self: Any, other: Any) -> Any:
        if not thread.busy and immediate.in_place(op, self, other):
            return self
        if type(other) not in OPERANDS and not _takes(other):
            return NotImplemented
        dispatch.update(op, self, other)
        return self

    return _forward(op, compute), backward, in_place


def _forward(op: Op, compute: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def forward(self: Any, other: Any) -> Any:
        found = None if thread.busy else compute(self, other)
        if found is not None:
            return found
        if type(other) not in OPERANDS and not _takes(other):
            return NotImplemented
        return dispatch.record(op, self, other)

    return forward


def _comparison(op: Op) -> Callable[..., Any]:
    return _forward(op, immediate.binary_of(op))


def _unary(op: Op) -> Callable[..., Any]:
    compute = immediate.unary_of(op)

    def apply(self: Any) -> Any:
        found = None if thread.busy else compute(self)
        return dispatch.record(op, self) if found is None else found

    return apply


class NDArray(Methods):
    """A mutable n-dimensional array, recorded and computed lazily. Make one with `tj.asarray`, `tj.zeros`,
    ...

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
        return elementwise.pow(self, other) if _takes(other) else NotImplemented

    def __rpow__(self, other: Any) -> Any:
        return elementwise.pow(other, self) if _takes(other) else NotImplemented

    def __ipow__(self, other: Any) -> Any:
        if not _takes(other):
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
        found = in_memory.basic(self, index)
        return indexing.getitem(self, index) if found is None else found

    def __setitem__(self, index: Any, value: Any) -> None:
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
        """Extents of the dimensions; assigning others, of as many elements, makes the array another view.

        Raises ShapeError if the numbers of elements differ, ArgumentError where strides do not allow it
        without a copy. Inside a traced function only arrays made there can be changed so.

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
        seen = in_memory.view(self, np.ndarray.transpose)
        return manipulation.transpose(self) if seen is None else seen

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

        Raises AxisError if the axes are no permutation of all dimensions.

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
        wanted = shape[0] if len(shape) == 1 else shape
        seen = in_memory.reshape(self, wanted) if order == "C" and copy is None else None
        return manipulation.reshape(self, wanted, order, copy=copy) if seen is None else seen

    def flatten(self, order: str = "C") -> NDArray:
        """One dimension, always a copy; orders are those of `tj.ravel`.

        The dtype stays. Raises ArgumentError for another order.

        >>> import tracejit as tj
        >>> tj.asarray([[1, 2], [3, 4]]).flatten()
        NDArray([1, 2, 3, 4], dtype=int64)
        """
        if order == "C":
            return manipulation.reshape(self, (self.size,), copy=True)
        return manipulation.ravel(self, order).copy()

    def compress(self, condition: Any, axis: int | None = None) -> NDArray:
        """The parts along an axis for which `condition` holds; see `tracejit.compress`.

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
        return [name for name in super().__dir__() if type(getattr_static(self, name, None)) is not Elsewhere]

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

        Shape and dtype stay.

        >>> import tracejit as tj
        >>> x = tj.zeros(2)
        >>> y = x.copy()
        >>> y += 1
        >>> x
        NDArray([0., 0.], dtype=float32)
        """
        return dispatch.emit(ops.copy, self)

    def astype(self, dtype: Any, *, copy: bool = True) -> NDArray:
        """The elements cast to `dtype`; without need and with ``copy=False``, the array itself.

        The shape stays. Raises DTypeError for an unsupported dtype.

        >>> import tracejit as tj
        >>> tj.asarray([1.5, 2.5]).astype(tj.int32)
        NDArray([1, 2], dtype=int32)
        """
        wanted = promotion.supported("astype", dtype)
        if wanted == self.dtype:
            return self.copy() if copy else self
        return dispatch.emit(ops.astype, self, dtype=wanted)

    def view(self, dtype: Any = None) -> NDArray:
        """The bits of the elements read as numbers of another dtype; without one, another view of the array.

        Of dtypes of another size there are more or fewer elements along the last axis. Unlike NumPy's, an
        array of another dtype has memory of its own: it cannot be written, and does not follow later writes.
        It has no gradient.
        Raises DTypeError for an unsupported dtype, ShapeError where the last axis is no whole number of them.

        >>> import tracejit as tj
        >>> tj.asarray([1.0, -2.0]).view(tj.uint32) >> 31
        NDArray([0, 1], dtype=uint32)
        """
        return bits.seen_as(self, self.dtype if dtype is None else promotion.supported("view", dtype))

    def tobytes(self, order: str = "C") -> bytes:
        """The elements as bytes, in C order, or ("F") column by column. They are looked at.

        Raises ValueError for another order.

        >>> import tracejit as tj
        >>> tj.asarray([1, 2], dtype=tj.uint8).tobytes()
        b'\\x01\\x02'
        """
        return self._seen("tobytes()").tobytes(order)  # type: ignore[arg-type]

    def to_device(self, device: Any, /, *, stream: None = None) -> NDArray:
        """The array on `device`: itself if it lies there.

        The shape and dtype stay. The copy is made when the elements are there, by the device's workers; of
        several equal copies in one step, one is made. Gradients flow back to the device that they came from.
        Raises DeviceError for an unknown device, ArgumentError for a `stream`, which no device here has.

        >>> import tracejit as tj
        >>> tj.ones(2).to_device("cpu")
        NDArray([1., 1.], dtype=float32)
        """
        if stream is not None:
            what = f"to_device: stream is {stream!r}; arrays here are ordered by the engine, leave it out"
            raise locate(ArgumentError(what), user_location())
        place = as_device("to_device", device, self.device)
        return self if place == self.device else dispatch.emit(ops.copy_to, self, device=place, priority=0)

    def to(self, device: Any) -> NDArray:
        """The array on `device`: `to_device`, shorter.

        The shape and dtype stay.
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
"""The types of most operands."""

for _name, _remedy in REMEDIES["array"].items():
    setattr(NDArray, _name, Elsewhere("NDArray", _name, _remedy))
machine_code.watch(NDArray)
