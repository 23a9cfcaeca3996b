"""Objects of CPython and NumPy as used by the type slots of arrays. All functions require the GIL."""

from __future__ import annotations

from llvmlite import ir
from numba.extending import intrinsic
from numba.types import float64, int32, int64, void

from tracejit.kernels.arrays.layout import OBJECT_TYPE, STATE_BYTES
from tracejit.kernels.compiler.memory import I64, external
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.threads import get

allocate = external("PyType_GenericAlloc", int64(int64, int64))
incref = external("Py_IncRef", void(int64))
decref = external("Py_DecRef", void(int64))
clear_error = external("PyErr_Clear", void())
error_occurred = external("PyErr_Occurred", int64())
new_tuple = external("PyTuple_New", int64(int64))
set_item = external("PyTuple_SetItem", int32(int64, int64, int64))
set_size = external("PySet_Size", int64(int64))
dict_item = external("PyDict_GetItem", int64(int64, int64))
integer_of = external("PyLong_AsLongLong", int64(int64))
float_of = external("PyFloat_AsDouble", float64(int64))
new_float = external("PyFloat_FromDouble", int64(float64))
is_subtype = external("PyType_IsSubtype", int32(int64, int64))
vectorcall = external("PyObject_Vectorcall", int64(int64, int64, int64, int64))


@native
def type_of(instance):
    """The type of an object; both are addresses."""
    return get(instance, OBJECT_TYPE)


@intrinsic
def state(typingctx):
    """The address of the state, see `layout`; there is a single one."""

    def codegen(context, builder, signature, args):
        name, kind = "tracejit_arrays_state", ir.ArrayType(I64, STATE_BYTES // 8)
        variable = builder.module.globals.get(name)
        if variable is None:
            variable = ir.GlobalVariable(builder.module, kind, name)
            variable.linkage, variable.initializer = "linkonce_odr", ir.Constant(kind, None)
            variable.align = 64
        return builder.ptrtoint(variable, I64)

    return int64(), codegen


@intrinsic
def call2(typingctx, function, first, second):
    """Call the C function at an address with two words."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(I64, [I64] * 2)
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return int64(int64, int64, int64), codegen


@intrinsic
def new_array(typingctx, function, type, dtype, ndim, shape):
    """Call ``PyArray_NewFromDescr(type, dtype, ndim, shape, NULL, NULL, 0, NULL)``, which steals a reference
    to `dtype`.
    """

    def codegen(context, builder, signature, args):
        i32 = ir.IntType(32)
        kind = ir.FunctionType(I64, [I64, I64, i32, I64, I64, I64, i32, I64])
        function, type, dtype, ndim, shape = args
        zero = I64(0)
        arguments = [type, dtype, builder.trunc(ndim, i32), shape, zero, zero, i32(0), zero]
        return builder.call(builder.inttoptr(function, kind.as_pointer()), arguments)

    return int64(int64, int64, int64, int64, int64), codegen


@intrinsic
def call_python(typingctx, function, first, second, third, count):
    """Call a Python object with the first `count` of three arguments. Returns a new reference, or 0."""

    def codegen(context, builder, signature, args):
        function, *values, count = args
        with builder.goto_entry_block():
            row = builder.alloca(I64, 3)
        for i, value in enumerate(values):
            builder.store(value, builder.gep(row, [I64(i)]))
        kind = ir.FunctionType(I64, [I64] * 4)
        name = "PyObject_Vectorcall"
        vectorcall = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.call(vectorcall, [function, builder.ptrtoint(row, I64), count, I64(0)])

    return int64(int64, int64, int64, int64, int64), codegen


@intrinsic
def int32_at(typingctx, record, offset):
    """The int32 at `offset` of a record, sign-extended to a word."""

    def codegen(context, builder, signature, args):
        address = builder.inttoptr(builder.add(*args), ir.IntType(32).as_pointer())
        return builder.sext(builder.load(address), I64)

    return int64(int64, int64), codegen
