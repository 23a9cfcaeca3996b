"""Functions whose bodies LLVM sees only after it has vectorised the loops that call them.

LLVM does not vectorise a loop with a branch, or with a call of a function without vector variants. It does
so for a function without side effects whose vector variants are declared (the vector function ABI). Their
definitions are linked in afterwards, by `tracejit.codegen.objects.build`.
"""

from __future__ import annotations

from llvmlite import ir

BYTES = ir.IntType(8).as_pointer()

USED = "llvm.compiler.used"
"""The array of symbols that LLVM must keep although it sees no use."""


def declare(module, name, result, parameters, *attributes):
    """Declare a function that neither reads nor writes memory."""
    function = ir.Function(module, ir.FunctionType(result, parameters), name)
    set.update(function.attributes, ("nounwind", "memory(none)", *attributes))  # llvmlite knows the first one
    return function


def declare_variants(function, variants):
    """Declare vector variants of `function`, by the vector function ABI's mangling of elements and
    parameters, such as ``N4vu``. They are kept although nothing calls them yet.
    """
    names = ",".join(f"_ZGV_LLVM_{kind}_{function.name}({f.name})" for kind, f in variants.items())
    set.add(function.attributes, f'"vector-function-abi-variant"="{names}"')
    keep(function.module, list({f.name: f for f in variants.values()}.values()))


def keep(module, functions):
    """Make LLVM keep `functions`."""
    places = [function.bitcast(BYTES) for function in functions]
    kept = module.globals.get(USED)
    if kept is None:
        kept = ir.GlobalVariable(module, ir.ArrayType(BYTES, len(places)), USED)
        kept.linkage, kept.section = "appending", "llvm.metadata"
    else:
        places = [*kept.initializer.constant, *places]
    kept.value_type = ir.ArrayType(BYTES, len(places))
    kept.initializer = kept.value_type(places)
