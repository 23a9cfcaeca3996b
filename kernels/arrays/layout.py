"""Layouts that the slots of arrays know: their own state, CPython's and NumPy's objects. Imports nothing.

Offsets are in bytes, of int64 words. Those of objects are part of CPython's and NumPy's binary interfaces;
`tracejit.frontend.python.objects` checks them before anything here is used. The state is one record, which
Python fills in before the first use; it refers to objects that live as long as the process.
"""

from __future__ import annotations

# --- Objects of CPython -------------------------------------------------------------------------------------
OBJECT_TYPE = 8
TUPLE_SIZE = 16
TUPLE_ITEMS = 24

# --- NumPy's arrays -----------------------------------------------------------------------------------------
ARRAY_DATA = 16
ARRAY_NDIM = 24  # int32
ARRAY_SHAPE = 32  # addresses of int64
ARRAY_STRIDES = 40
ARRAY_DTYPE = 56
ARRAY_FLAGS = 64  # int32
C_CONTIGUOUS = 0x1
WRITEABLE = 0x400

# --- State --------------------------------------------------------------------------------------------------
NDARRAY = 0  # types
COMPUTED = 8
NUMPY_VIEW = 16
NUMPY_ARRAY = 24
INTEGER = 32
FLOAT = 40
SLICE = 48
NONE = 56
ELLIPSIS = 64
TUPLE = 72
STORAGE = 80  # where objects have their attributes: `_storage`, `_view`, `_memory` of an array,
VIEW = 88
MEMORY = 96
BUFFER = 104  # `buffer` of a storage,
FACTS = 112  # `_facts` of a view
NEW_ARRAY = 120  # functions of NumPy: PyArray_NewFromDescr
SUBSCRIPT = 128  # and indexing
BUSY = 136  # the set of threads that record operators
EAGER = 144  # a dict, a key in it, and its usual value: the size of small arrays
EAGER_KEY = 152
EAGER_VALUE = 160
CHECK = 168  # the same: that launches are not compared
CHECK_KEY = 176
CHECK_VALUE = 184
SMALL = 192  # elements
FLOAT32 = 200  # dtypes, objects
FLOAT64 = 208
POINT = 216  # the view of an array without dimensions
PRODUCTS = 224  # address of a table of direct calls
NUMBER = 232  # scratch: a number as an operand
ROW = 240  # scratch: arguments of a direct call, four words
COPIED = 272  # pairs: dtypes of elements that are copied, and their bytes
COPIED_COUNT = 16
METHODS = COPIED + 16 * COPIED_COUNT  # Python's methods, of which slots are a part
STATE_BYTES = METHODS + 8 * 32

# Methods, by their numbers: what a slot calls for all that it does not do.
OPERATORS = ("add", "sub", "mul", "truediv")
"""Each has three methods, in this order: forward, backward (`__radd__`), in place."""
GETITEM, SETITEM, DELITEM, MATMUL, RMATMUL, TO_FLOAT = range(12, 18)

# --- Products: a table in which a form has one place --------------------------------------------------------
PLACES = 4096  # a power of 2
KEY_WORDS = 9  # dtype and dimensions; extents and strides of the first, of the second
MIX = 1000003
PLACE_CALL = 72  # address of the direct call, or 0
PLACE_VIEW = 80  # the view of its result
PLACE_BYTES = 96
