"""Functions whose bodies LLVM sees when loops are vectors already.

LLVM makes no vectors of a loop with a branch, or with a call of something that it cannot spread over vectors.
It does so for a function without side effects of which it knows that it has variants for vectors, by their
declarations (its vector function ABI). What these do, `tracejit.codegen.objects.build` links in afterwards.
"""

from __future__ import annotations

from llvmlite import ir

BYTES = ir.IntType(8).as_pointer()

USED = "llvm.compiler.used"
"""The array of what LLVM must not drop, although it sees no use."""


def declare(module, name, result, parameters, *attributes):
    """A function that neither reads nor writes memory."""
    function = ir.Function(module, ir.FunctionType(result, parameters), name)
    set.update(function.attributes, ("nounwind", "memory(none)", *attributes))  # llvmlite knows the first one
    return function


def give_variants(function, variants):
    """Variants of `function` for vectors: by the vector function ABI's mangling of elements and parameters,
    such as ``N4vu``. They are kept until somebody calls them.
    """
    names = ",".join(f"_ZGV_LLVM_{kind}_{function.name}({f.name})" for kind, f in variants.items())
    set.add(function.attributes, f'"vector-function-abi-variant"="{names}"')
    keep(function.module, list({f.name: f for f in variants.values()}.values()))


def keep(module, functions):
    """Have LLVM keep `functions`."""
    places = [function.bitcast(BYTES) for function in functions]
    kept = module.globals.get(USED)
    if kept is None:
        kept = ir.GlobalVariable(module, ir.ArrayType(BYTES, len(places)), USED)
        kept.linkage, kept.section = "appending", "llvm.metadata"
    else:
        places = [*kept.initializer.constant, *places]
    kept.value_type = ir.ArrayType(BYTES, len(places))
    kept.initializer = kept.value_type(places)
