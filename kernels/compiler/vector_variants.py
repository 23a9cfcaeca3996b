"""Functions whose bodies LLVM sees only after it has vectorised the loops that call them.

LLVM does not vectorise a loop that contains a branch, or a call of a function without vector variants. It
vectorises calls of a function without side effects whose vector variants are declared (the vector function
ABI). `tracejit.codegen.objects.build` links in the definitions afterwards.
"""

from __future__ import annotations

from llvmlite import ir

BYTES = ir.IntType(8).as_pointer()

USED = "llvm.compiler.used"
"""The array of symbols that LLVM must keep although it sees no use of them."""


def declare(module, name, result, parameters, *attributes):
    """Declare a function that neither reads nor writes memory."""
    function = ir.Function(module, ir.FunctionType(result, parameters), name)
    # llvmlite's own method accepts only attributes that it knows, of these "nounwind".
    set.update(function.attributes, ("nounwind", "memory(none)", *attributes))
    return function


def declare_variants(function, variants):
    """Declare vector variants of `function` and keep them although nothing calls them yet.

    `variants` maps the vector function ABI's mangling of vector length and parameters, such as ``N4vu``, to
    functions.
    """
    names = ",".join(f"_ZGV_LLVM_{kind}_{function.name}({f.name})" for kind, f in variants.items())
    set.add(function.attributes, f'"vector-function-abi-variant"="{names}"')
    keep(function.module, list({f.name: f for f in variants.values()}.values()))


def keep(module, functions):
    """Add `functions` to the symbols of `module` that LLVM must keep."""
    pointers = [function.bitcast(BYTES) for function in functions]
    used = module.globals.get(USED)
    if used is None:
        used = ir.GlobalVariable(module, ir.ArrayType(BYTES, len(pointers)), USED)
        used.linkage, used.section = "appending", "llvm.metadata"
    else:
        pointers = [*used.initializer.constant, *pointers]
    used.value_type = ir.ArrayType(BYTES, len(pointers))
    used.initializer = used.value_type(pointers)
