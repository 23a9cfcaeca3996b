"""Operators and indexing of small arrays in machine code: type slots (in CPython's sense) of the type
`NDArray`.

A slot handles the common cases, and falls back to the Python method in all others, which is always permitted.
It handles a case if the arrays are `NDArray`s on `ComputedStorage` storages, with their elements in memory,
and

- no thread is recording operators, and the eager evaluation of small arrays is enabled (`is_quiet`);
- for operators: the dtypes are float32 or float64 and equal, and the shapes are equal, or one operand is a
  number;
- for indexing: the index consists of integers, slices, None and Ellipsis. NumPy interprets the index and
  creates the views; only single elements are read here.

Results have the same bits as those of the method. The GIL is held and nothing here calls back into Python
between the check that storages are `ComputedStorage` and the last access to their memory, so that no other
thread can intervene, and no lock is needed. Objects are created afterwards, because that may trigger garbage
collection.

    x[1:-1] + y            # two slots: `subscript`, `add`
"""

from __future__ import annotations

from numba.types import float32, float64, int32, int64

from tracejit.kernels.arrays.elementwise import ADD, DIVIDE, MULTIPLY, SUBTRACT, compute_row
from tracejit.kernels.arrays.layout import (
    ARRAY_DATA,
    ARRAY_DTYPE,
    ARRAY_FLAGS,
    ARRAY_NDIM,
    ARRAY_SHAPE,
    ARRAY_STRIDES,
    BUFFER,
    BUSY,
    C_CONTIGUOUS,
    CHECK,
    CHECK_KEY,
    CHECK_VALUE,
    COMPUTED,
    COPIED,
    COPIED_COUNT,
    DELITEM,
    EAGER,
    EAGER_KEY,
    EAGER_VALUE,
    ELLIPSIS,
    ENTRIES,
    ENTRY_BYTES,
    ENTRY_CALL,
    ENTRY_VIEW,
    FACTS,
    FLOAT,
    FLOAT32,
    FLOAT64,
    GETITEM,
    INTEGER,
    KEY_WORDS,
    MATMUL,
    MEMORY,
    METHODS,
    MIX,
    NDARRAY,
    NEW_ARRAY,
    NONE,
    NUMBER,
    NUMPY_ARRAY,
    NUMPY_VIEW,
    POINT,
    PRODUCTS,
    RMATMUL,
    ROW,
    SETITEM,
    SLICE,
    SMALL,
    STORAGE,
    SUBSCRIPT,
    TO_FLOAT,
    TUPLE,
    TUPLE_ITEMS,
    TUPLE_SIZE,
    VIEW,
    WRITEABLE,
)
from tracejit.kernels.arrays.python import (
    allocate,
    call2,
    call_python,
    clear_error,
    decref,
    dict_item,
    error_occurred,
    float_of,
    incref,
    int32_at,
    integer_of,
    is_subtype,
    new_array,
    new_float,
    new_tuple,
    set_item,
    set_size,
    state,
    type_of,
)
from tracejit.kernels.compiler.memory import copy_bytes, load, store
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.direct import run_direct
from tracejit.kernels.executor.threads import get, put

FORWARD, BACKWARD, IN_PLACE = range(3)
EXACT = 1 << 53  # integers up to this magnitude are exact as floats
MAX_IN_PLACE = 1024  # elements that are updated in place here: NumPy's loop is faster for more

# --- Inspection of objects ----------------------------------------------------------------------------------


@native
def is_quiet():
    """Whether no thread records operators, and small arrays are evaluated eagerly."""
    s = state()
    if set_size(get(s, BUSY)) != 0:
        return 0
    return int64(dict_item(get(s, EAGER), get(s, EAGER_KEY)) == get(s, EAGER_VALUE))


@native
def attribute(instance, offset):
    """The attribute of an object at the offset stored in the state at `offset`; 0 if there is none."""
    return get(instance, get(state(), offset))


@native
def memory_of(x):
    """The NumPy array with the elements of an `NDArray` that was evaluated eagerly; 0 for other objects."""
    s = state()
    if type_of(x) != get(s, NDARRAY):
        return 0
    storage, memory = attribute(x, STORAGE), attribute(x, MEMORY)
    if storage == 0 or memory == 0 or type_of(storage) != get(s, COMPUTED):
        return 0
    return memory if type_of(memory) == get(s, NUMPY_ARRAY) else 0


@native
def ndim_of(array):
    return int32_at(array, ARRAY_NDIM)


@native
def extent(array, axis):
    return get(get(array, ARRAY_SHAPE), 8 * axis)


@native
def stride(array, axis):
    return get(get(array, ARRAY_STRIDES), 8 * axis)


@native
def size_of(array):
    size = 1
    for axis in range(ndim_of(array)):
        size *= extent(array, axis)
    return size


@native
def has_flag(array, flag):
    return int64((int32_at(array, ARRAY_FLAGS) & flag) != 0)


@native
def float_size(array):
    """The size in bytes of an element of float32 or float64; 0 for other dtypes."""
    dtype = get(array, ARRAY_DTYPE)
    if dtype == get(state(), FLOAT32):
        return 4
    if dtype == get(state(), FLOAT64):
        return 8
    return 0


@native
def copied_size(array):
    """The size in bytes of an element, if elements of the dtype can be copied; 0 for other dtypes."""
    s, dtype = state(), get(array, ARRAY_DTYPE)
    for i in range(COPIED_COUNT):
        dtype_in_table = get(s, COPIED + 16 * i)
        if dtype_in_table == dtype:
            return get(s, COPIED + 16 * i + 8)
        if dtype_in_table == 0:
            return 0
    return 0


@native
def same_shape(a, b):
    if ndim_of(a) != ndim_of(b):
        return 0
    for axis in range(ndim_of(a)):
        if extent(a, axis) != extent(b, axis):
            return 0
    return 1


# --- Creation of objects ------------------------------------------------------------------------------------


@native
def empty_like(array):
    """Create a NumPy array in C order of the same shape and dtype; returns 0 on errors."""
    s, dtype = state(), get(array, ARRAY_DTYPE)
    incref(dtype)
    return new_array(get(s, NEW_ARRAY), get(s, NUMPY_ARRAY), dtype, ndim_of(array), get(array, ARRAY_SHAPE))


@native
def new_ndarray(storage, view, memory):
    """Create an `NDArray` of these three, whose references it steals; returns 0 on errors."""
    s = state()
    x = 0
    if storage != 0 and view != 0:
        x = allocate(get(s, NDARRAY), 0)
    if x == 0:
        if storage != 0:
            decref(storage)
        if view != 0:
            decref(view)
        decref(memory)
        return 0
    put(x, get(s, STORAGE), storage)
    put(x, get(s, VIEW), view)
    put(x, get(s, MEMORY), memory)
    return x


@native
def new_view(numpy_view, buffer):
    """Create the `NumPyView` of `numpy_view`, a NumPy view of `buffer`; returns 0 on errors."""
    s = state()
    incref(numpy_view)
    incref(buffer)
    facts = new_tuple(2)
    if facts == 0:
        decref(numpy_view)
        decref(buffer)
        return 0
    set_item(facts, 0, numpy_view)
    set_item(facts, 1, buffer)
    view = allocate(get(s, NUMPY_VIEW), 0)
    if view == 0:
        decref(facts)
        return 0
    put(view, get(s, FACTS), facts)
    return view


@native
def new_computed(out, view):
    """Create an `NDArray` of the NumPy array `out` and the view `view`, whose references it steals. If `view`
    is 0, it is created.
    """
    s = state()
    if view == 0:
        view = new_view(out, out)
    storage = allocate(get(s, COMPUTED), 0)
    if storage != 0:
        incref(out)
        put(storage, get(s, BUFFER), out)
    return new_ndarray(storage, view, out)


@native
def full_view(x, memory):
    """A new reference to the view of an array that covers its entire storage; 0 for other arrays."""
    s = state()
    if ndim_of(memory) == 0:
        view = get(s, POINT)
    else:
        view = attribute(x, VIEW)
        if memory != attribute(attribute(x, STORAGE), BUFFER) or view == 0:
            return 0
    incref(view)
    return view


# --- Indexing -----------------------------------------------------------------------------------------------


@native
def position(index, extent):
    """Convert an integer object to a position within `extent`; returns -1 if it is not one."""
    if type_of(index) != get(state(), INTEGER):
        return -1
    number = integer_of(index)
    if number == -1 and error_occurred() != 0:
        clear_error()
        return -1
    if number < 0:
        number += extent
    return number if number >= 0 and number < extent else -1


@native
def element_of(memory, index):
    """The address of the element at an index of integers, one for each dimension; 0 for other indices."""
    ndim, address = ndim_of(memory), get(memory, ARRAY_DATA)
    if type_of(index) == get(state(), TUPLE):
        if get(index, TUPLE_SIZE) != ndim:
            return 0
        for axis in range(ndim):
            i = position(get(index, TUPLE_ITEMS + 8 * axis), extent(memory, axis))
            if i < 0:
                return 0
            address += i * stride(memory, axis)
        return address
    if ndim != 1:
        return 0
    i = position(index, extent(memory, 0))
    return 0 if i < 0 else address + i * stride(memory, 0)


@native
def is_basic_item(index):
    s, kind = state(), type_of(index)
    return int64(
        kind == get(s, INTEGER) or kind == get(s, SLICE) or kind == get(s, NONE) or kind == get(s, ELLIPSIS)
    )


@native
def is_basic(index):
    """Whether an index consists of integers, slices, None and Ellipsis only."""
    if type_of(index) != get(state(), TUPLE):
        return is_basic_item(index)
    for i in range(get(index, TUPLE_SIZE)):
        if is_basic_item(get(index, TUPLE_ITEMS + 8 * i)) == 0:
            return 0
    return 1


@native
def basic_view(memory, index):
    """A new reference to the NumPy view ``memory[index]`` for a basic index; 0 if there is none."""
    s = state()
    view = call2(get(s, SUBSCRIPT), memory, index)
    if view == 0:
        clear_error()
    elif type_of(view) != get(s, NUMPY_ARRAY):
        decref(view)
        return 0
    return view


@native
def subscript(x, index):
    """``x[index]``."""
    s, memory = state(), memory_of(x)
    if memory != 0 and is_quiet() != 0:
        size, element = copied_size(memory), element_of(memory, index)
        if element != 0 and size != 0:
            dtype = get(memory, ARRAY_DTYPE)
            incref(dtype)
            out = new_array(get(s, NEW_ARRAY), get(s, NUMPY_ARRAY), dtype, 0, 0)
            if out == 0:
                return 0
            copy_element(get(out, ARRAY_DATA), element, size)
            incref(get(s, POINT))
            return new_computed(out, get(s, POINT))
        if element == 0 and is_basic(index) != 0:
            view = basic_view(memory, index)
            if view != 0:
                storage = attribute(x, STORAGE)
                incref(storage)
                return new_ndarray(storage, new_view(view, attribute(storage, BUFFER)), view)
    return call_python(get(s, METHODS + 8 * GETITEM), x, index, 0, 2)


@native
def copy_element(target, source, size):
    """Copy a single element."""
    if size == 4:
        store(target, load(source, int32))
    elif size == 8:
        put(target, 0, get(source, 0))
    else:
        copy_bytes(target, source, size)
    return 0


# --- Numbers ------------------------------------------------------------------------------------------------


@subroutine
def as_number(x, size):
    """Convert a Python number to an operand of `size` bytes. Returns the address of its bits, or 0 for other
    objects.
    """
    s, kind = state(), type_of(x)
    if kind == get(s, INTEGER):
        n = integer_of(x)
        if n == -1 and error_occurred() != 0:
            clear_error()
            return 0
        if n > EXACT or n < -EXACT:
            return 0
        value = float64(n)
    elif kind == get(s, FLOAT):
        value = float_of(x)
    else:
        return 0
    if size == 4:
        store(s + NUMBER, float32(value))
    else:
        store(s + NUMBER, value)
    return s + NUMBER


# --- Writing ------------------------------------------------------------------------------------------------


@native
def is_same(a, b):
    """Whether two arrays of the same shape have the same elements at the same addresses."""
    if get(a, ARRAY_DATA) != get(b, ARRAY_DATA):
        return 0
    for axis in range(ndim_of(a)):
        if stride(a, axis) != stride(b, axis):
            return 0
    return 1


@native
def copy_into(target, source, size):
    """Copy the elements of an array of one or two dimensions into another of the same shape and dtype."""
    rows, count = 1, extent(target, 0)
    target_address, target_row, target_step = get(target, ARRAY_DATA), 0, stride(target, 0)
    source_address, source_row, source_step = get(source, ARRAY_DATA), 0, stride(source, 0)
    if ndim_of(target) == 2:
        rows, count = count, extent(target, 1)
        target_row, target_step, source_row, source_step = (
            target_step,
            stride(target, 1),
            source_step,
            stride(source, 1),
        )
    for _ in range(rows):
        if target_step == size and source_step == size:
            copy_bytes(target_address, source_address, count * size)
        else:
            for i in range(count):
                copy_element(target_address + i * target_step, source_address + i * source_step, size)
        target_address += target_row
        source_address += source_row
    return 0


@native
def try_assign(x, index, value):
    """Perform ``x[index] = value`` if possible here. Returns whether it was performed."""
    memory = memory_of(x)
    if memory == 0 or has_flag(memory, WRITEABLE) == 0 or is_quiet() == 0:
        return 0
    size, element = copied_size(memory), element_of(memory, index)
    if size == 0:
        return 0
    source = memory_of(value)
    if source == 0:
        number = 0
        if element != 0 and float_size(memory) != 0:
            number = as_number(value, size)
        if number == 0:
            return 0
        copy_element(element, number, size)
        return 1
    if get(source, ARRAY_DTYPE) != get(memory, ARRAY_DTYPE):
        return 0
    if element != 0:
        if ndim_of(source) != 0:
            return 0
        copy_element(element, get(source, ARRAY_DATA), size)
        return 1
    if size_of(memory) > get(state(), SMALL) or is_basic(index) == 0:
        return 0
    target = basic_view(memory, index)
    if target == 0:
        return 0
    done = 0
    if same_shape(target, source) != 0:
        if attribute(x, STORAGE) == attribute(value, STORAGE):
            done = is_same(target, source)
        elif ndim_of(target) > 0 and ndim_of(target) <= 2:
            copy_into(target, source, size)
            done = 1
    decref(target)
    return done


@native
def assign_subscript(x, index, value):
    """Perform ``x[index] = value``, or ``del x[index]`` if `value` is 0."""
    s = state()
    if value == 0:
        result = call_python(get(s, METHODS + 8 * DELITEM), x, index, 0, 2)
    elif try_assign(x, index, value) != 0:
        return int32(0)
    else:
        result = call_python(get(s, METHODS + 8 * SETITEM), x, index, value, 3)
    if result == 0:
        return int32(-1)
    decref(result)
    return int32(0)


# --- Elementwise operators ----------------------------------------------------------------------------------


@native
def compute(op, size, out, a, b, shape):
    """Compute ``out = op(a, b)`` of NumPy arrays with the shape of `shape`; a negative `a` or `b` is the
    negated address of a single element. Returns 0 for layouts that are not handled here.
    """
    ndim = ndim_of(shape)
    is_flat = has_flag(out, C_CONTIGUOUS)
    if a > 0:
        is_flat = is_flat & has_flag(a, C_CONTIGUOUS)
    if b > 0:
        is_flat = is_flat & has_flag(b, C_CONTIGUOUS)
    if is_flat == 0 and (ndim == 0 or ndim > 2):
        return 0
    rows = 1
    o, o_row, o_step = get(out, ARRAY_DATA), 0, size
    p, p_row, p_step = -a, 0, 0
    q, q_row, q_step = -b, 0, 0
    if is_flat != 0:
        count = size_of(shape)
        if a > 0:
            p, p_step = get(a, ARRAY_DATA), size
        if b > 0:
            q, q_step = get(b, ARRAY_DATA), size
    else:
        axis = ndim - 1
        count, o_step = extent(shape, axis), stride(out, axis)
        if ndim == 2:
            rows, o_row = extent(shape, 0), stride(out, 0)
        if a > 0:
            p, p_step = get(a, ARRAY_DATA), stride(a, axis)
            if ndim == 2:
                p_row = stride(a, 0)
        if b > 0:
            q, q_step = get(b, ARRAY_DATA), stride(b, axis)
            if ndim == 2:
                q_row = stride(b, 0)
    for _ in range(rows):
        compute_row(op, size, o, o_step, p, p_step, q, q_step, count)
        o += o_row
        p += p_row
        q += q_row
    return 1


@native
def try_apply(op, x1, x2):
    """``op(x1, x2)`` as a new `NDArray`; 0 if the case is not handled here, or on errors."""
    a, b = memory_of(x1), memory_of(x2)
    if (a == 0 and b == 0) or is_quiet() == 0:
        return 0
    array = a if a != 0 else b
    size, x = float_size(array), x1 if a != 0 else x2
    if size == 0 or size_of(array) > get(state(), SMALL):
        return 0
    if a == 0:
        a = -as_number(x1, size)
    elif b == 0:
        b = -as_number(x2, size)
    elif get(a, ARRAY_DTYPE) != get(b, ARRAY_DTYPE):
        return 0
    elif same_shape(a, b) == 0:
        if ndim_of(b) == 0:
            b = -get(b, ARRAY_DATA)
        elif ndim_of(a) == 0:
            if size_of(b) > get(state(), SMALL):
                return 0
            array, x, a = b, x2, -get(a, ARRAY_DATA)
        else:
            return 0
    if a == 0 or b == 0:
        return 0
    out = empty_like(array)
    if out == 0:
        return 0
    if a < 0 and op in (ADD, MULTIPLY):
        a, b = b, a
    if compute(op, size, out, a, b, array) == 0:
        decref(out)
        return 0
    return new_computed(out, full_view(x, array))


@native
def method(op, which):
    """The Python method of an operator; `which`: FORWARD, BACKWARD or IN_PLACE."""
    return get(state(), METHODS + 8 * (3 * op + which))


@native
def binary(op, x1, x2):
    """The slot of an operator."""
    out = try_apply(op, x1, x2)
    if out != 0 or error_occurred() != 0:
        return out
    if is_subtype(type_of(x1), get(state(), NDARRAY)) != 0:
        return call_python(method(op, FORWARD), x1, x2, 0, 2)
    return call_python(method(op, BACKWARD), x2, x1, 0, 2)


@native
def try_in_place(op, x, operand):
    """Perform ``x = op(x, operand)`` in place if possible here. Returns whether it was performed."""
    a = memory_of(x)
    if a == 0 or has_flag(a, WRITEABLE) == 0 or is_quiet() == 0:
        return 0
    size = float_size(a)
    if size == 0 or size_of(a) > MAX_IN_PLACE:
        return 0
    b = memory_of(operand)
    if b == 0:
        b = -as_number(operand, size)
    elif get(a, ARRAY_DTYPE) != get(b, ARRAY_DTYPE):
        return 0
    elif attribute(x, STORAGE) == attribute(operand, STORAGE):
        if same_shape(a, b) == 0 or is_same(a, b) == 0:
            return 0
    elif ndim_of(b) == 0:
        b = -get(b, ARRAY_DATA)
    elif same_shape(a, b) == 0:
        return 0
    return 0 if b == 0 else compute(op, size, a, a, b, a)


@native
def in_place(op, x, operand):
    """The slot of an in-place operator."""
    if try_in_place(op, x, operand) != 0:
        incref(x)
        return x
    return call_python(method(op, IN_PLACE), x, operand, 0, 2)


@native
def add(x1, x2):
    return binary(ADD, x1, x2)


@native
def subtract(x1, x2):
    return binary(SUBTRACT, x1, x2)


@native
def multiply(x1, x2):
    return binary(MULTIPLY, x1, x2)


@native
def divide(x1, x2):
    return binary(DIVIDE, x1, x2)


@native
def add_in_place(x, other):
    return in_place(ADD, x, other)


@native
def subtract_in_place(x, other):
    return in_place(SUBTRACT, x, other)


@native
def multiply_in_place(x, other):
    return in_place(MULTIPLY, x, other)


@native
def divide_in_place(x, other):
    return in_place(DIVIDE, x, other)


# --- Products -----------------------------------------------------------------------------------------------


@native
def key_word(a, b, number):
    """Word number `number` of the key of two arrays of one or two dimensions in the table of products."""
    if number == 0:
        return float_size(a) + 16 * ndim_of(a) + 64 * ndim_of(b)
    array = a if number <= 4 else b
    number = (number - 1) & 3
    axis = number & 1
    if axis >= ndim_of(array):
        return 0
    return extent(array, axis) if number < 2 else stride(array, axis)


@native
def find_entry(a, b):
    """The address of the table entry with the direct call for the product of two arrays; 0 if there is none
    yet.
    """
    hash = 0
    for i in range(KEY_WORDS):
        hash = hash * MIX + key_word(a, b, i)
    entry = get(state(), PRODUCTS) + ENTRY_BYTES * ((hash ^ (hash >> 20)) & (ENTRIES - 1))
    for i in range(KEY_WORDS):
        if get(entry, 8 * i) != key_word(a, b, i):
            return 0
    return entry if get(entry, ENTRY_CALL) != 0 else 0


@native
def try_multiply(x1, x2):
    """``x1 @ x2`` as a new `NDArray`; 0 if the case is not handled here, or on errors."""
    s, a, b = state(), memory_of(x1), memory_of(x2)
    if a == 0 or b == 0 or get(a, ARRAY_DTYPE) != get(b, ARRAY_DTYPE) or is_quiet() == 0:
        return 0
    n, m = ndim_of(a), ndim_of(b)
    if n == 0 or m == 0 or n > 2 or m > 2 or float_size(a) == 0:
        return 0
    if dict_item(get(s, CHECK), get(s, CHECK_KEY)) != get(s, CHECK_VALUE):
        return 0
    depth = extent(a, n - 1)
    if depth != extent(b, 0):
        return 0
    entry = 0
    if depth != 0:
        entry = find_entry(a, b)
        if entry == 0:
            return 0
    dtype, shape = get(a, ARRAY_DTYPE), s + ROW
    if n == 2:
        put(shape, 0, extent(a, 0))
    if m == 2:
        put(shape, 8 * (n - 1), extent(b, 1))
    incref(dtype)
    out = new_array(get(s, NEW_ARRAY), get(s, NUMPY_ARRAY), dtype, n + m - 2, shape)
    if out == 0:
        return 0
    if depth == 0:
        clear_bytes(get(out, ARRAY_DATA), size_of(out) * float_size(out))
        return new_computed(out, 0)
    put(s, ROW + 8, a)
    put(s, ROW + 16, b)
    put(s, ROW + 24, out)
    run_direct(get(entry, ENTRY_CALL), s + ROW)
    view = get(entry, ENTRY_VIEW)
    incref(view)
    return new_computed(out, view)


@subroutine
def clear_bytes(address, count):
    for i in range(count >> 2):
        store(address + 4 * i, int32(0))
    return 0


@native
def matrix_multiply(x1, x2):
    out = try_multiply(x1, x2)
    if out != 0 or error_occurred() != 0:
        return out
    s = state()
    if is_subtype(type_of(x1), get(s, NDARRAY)) != 0:
        return call_python(get(s, METHODS + 8 * MATMUL), x1, x2, 0, 2)
    return call_python(get(s, METHODS + 8 * RMATMUL), x2, x1, 0, 2)


# --- Looks --------------------------------------------------------------------------------------------------


@native
def to_float(x):
    """``float(x)``."""
    memory = memory_of(x)
    if memory != 0 and ndim_of(memory) == 0 and is_quiet() != 0:
        size = float_size(memory)
        if size == 4:
            return new_float(float64(load(get(memory, ARRAY_DATA), float32)))
        if size == 8:
            return new_float(load(get(memory, ARRAY_DATA), float64))
    return call_python(get(state(), METHODS + 8 * TO_FLOAT), x, 0, 0, 1)


@native
def state_address():
    """The address of the state, see `layout`."""
    return state()


SLOTS = [
    ("arrays_state", state_address),
    ("arrays_subscript", subscript),
    ("arrays_assign_subscript", assign_subscript),
    ("arrays_add", add),
    ("arrays_subtract", subtract),
    ("arrays_multiply", multiply),
    ("arrays_divide", divide),
    ("arrays_add_in_place", add_in_place),
    ("arrays_subtract_in_place", subtract_in_place),
    ("arrays_multiply_in_place", multiply_in_place),
    ("arrays_divide_in_place", divide_in_place),
    ("arrays_matrix_multiply", matrix_multiply),
    ("arrays_float", to_float),
]
"""Name and function of each entry point."""
