"""Memory layouts used by the type slots of arrays: their state, and objects of CPython and NumPy. Imports
nothing.

Offsets are in bytes, of int64 words. The offsets within objects are part of CPython's and NumPy's binary
interfaces; `tracejit.frontend.python.objects` checks them before anything here is used. The state is a single
record, which Python fills in before the first use; it refers to objects that live as long as the process.
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
STORAGE = 80  # offsets of attributes within objects: `_storage`, `_view`, `_memory` of an array,
VIEW = 88
MEMORY = 96
BUFFER = 104  # `buffer` of a storage,
FACTS = 112  # `_facts` of a view
NEW_ARRAY = 120  # NumPy functions: PyArray_NewFromDescr
SUBSCRIPT = 128  # and the indexing slot of an array
BUSY = 136  # the set of threads that record operators
EAGER = 144  # a dict, a key in it, and the key's usual value: the size of small arrays
EAGER_KEY = 152
EAGER_VALUE = 160
CHECK = 168  # likewise: the option to compare launches, usually off
CHECK_KEY = 176
CHECK_VALUE = 184
SMALL = 192  # most elements of a small array
FLOAT32 = 200  # dtype objects
FLOAT64 = 208
POINT = 216  # the view of a zero-dimensional array
PRODUCTS = 224  # address of a table of direct calls
NUMBER = 232  # scratch: a number as an operand
ROW = 240  # scratch: arguments of a direct call, four words
COPIED = 272  # pairs: a dtype whose elements can be copied, and its size in bytes
COPIED_COUNT = 16
METHODS = COPIED + 16 * COPIED_COUNT  # Python methods to which slots fall back
STATE_BYTES = METHODS + 8 * 32

# Methods, by number: a slot falls back to its method for everything that it does not handle.
OPERATORS = ("add", "sub", "mul", "truediv")
"""Each operator has three methods, in this order: forward, backward (`__radd__`), in place."""
GETITEM, SETITEM, DELITEM, MATMUL, RMATMUL, TO_FLOAT = range(12, 18)

# --- Products: a direct-mapped table, indexed by a hash of dtype, shapes and strides ------------------------
ENTRIES = 4096  # number of entries, a power of 2
KEY_WORDS = 9  # dtype and numbers of dimensions; extents and strides of both operands
MIX = 1000003
ENTRY_CALL = 72  # in an entry: address of the direct call, or 0
ENTRY_VIEW = 80  # in an entry: the view of the result
ENTRY_BYTES = 96
