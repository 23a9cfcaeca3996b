"""The Numba target for kernels: Numba's front end, reduced to the features that kernels need.

Numba's CPU target supports all of Python's containers and of NumPy, runs 27 passes over each function,
optimises each function twice and links it into the process. All of this costs time in every cold start, and a
kernel needs none of it: it consists of integer arithmetic, loads, stores and calls of intrinsics, and its
functions are optimised once, together (`tracejit.codegen.objects.build`). So this target has its own

- typing rules (`tracejit.kernels.compiler.typing`),
- passes: bytecode to Numba's IR, type inference, lowering; no rewriting, no inlining, no parallel loops,
- code libraries, which only collect the LLVM IR of a function and of its callees.

It is built on Numba's interface for targets (`numba.core.target_extension`).

    @subroutine                               # can be called from kernels; compiled once for each signature
    def slot(block, index):
        return load(block + 8 * index, int64)

    library, *callees = translate(kernel, signature, "kernel")     # LLVM IR of the kernel and its subroutines
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import (
    compiler,
    cpu,
    dispatcher,
    funcdesc,
    imputils,
    interpreter,
    ir_utils,
    ssa,
    transforms,
    typed_passes,
    typing,
    untyped_passes,
)
from numba.core import ir as numba_ir
from numba.core.compiler_lock import global_compiler_lock
from numba.core.descriptors import TargetDescriptor
from numba.core.target_extension import CPU, dispatcher_registry, target_registry
from numba.core.typing.context import BaseContext as TypingContext
from numba.cpython import builtins, enumimpl, numbers, rangeobj, tupleobj

from tracejit.kernels.compiler.code import Convention, KernelCodegen, Library
from tracejit.kernels.compiler.inference import infer
from tracejit.kernels.compiler.loops import LoopLowering
from tracejit.kernels.compiler.typing import LOWERING, TypingRules, declaration_count

NAME = "tracejit"
"""The name of this target in Numba's registry."""

MAX_CACHE_ENTRIES = 4096
"""The maximum number of entries in each cache of types."""

INSTRUCTIONS = (builtins, enumimpl, numbers, rangeobj, tupleobj)
"""The Numba modules whose import declares the lowering of the operators that kernels use."""

SIZES = {ir.IntType(1): 1, ir.HalfType(): 2, ir.FloatType(): 4, ir.DoubleType(): 8}
SIZES |= {ir.IntType(8 * size): size for size in (1, 2, 4, 8)}
"""The size of each number type in bytes."""


class Kernels(CPU):
    """The class of the target in Numba's target hierarchy."""


def _limit(cache: dict[Any, Any]) -> None:
    """Clear a full cache: kernels keep introducing new constants."""
    if len(cache) >= MAX_CACHE_ENTRIES:
        cache.clear()


class Typing(TypingContext):
    """The typing context: the types of operators and functions in kernels."""

    def init(self) -> None:
        self.selection = TypingRules()
        self.calls: dict[Any, Any] = {}
        self.values: dict[Any, Any] = {}

    def refresh(self) -> None:
        if self.selection.update():
            self.install_registry(self.selection.registry)

    def resolve_value_type(self, val: Any) -> Any:
        """Resolve a value as Numba does, but cache numbers and callables, and look up classes first in the
        registered rules: Numba would first import its containers, and compare the class with them.
        """
        if not isinstance(val, int | float | Callable):  # equal tuples may have elements of different types
            return super().resolve_value_type(val)
        kind = self.values.get((type(val), val))
        if kind is None:
            _limit(self.values)
            class_type = self._lookup_global(val) if isinstance(val, type) else None
            kind = self.values[type(val), val] = class_type or super().resolve_value_type(val)
        return kind

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """Resolve a call as Numba does, but only once for each function and argument types."""
        if kws:
            return super().resolve_function_type(func, args, kws)
        signature = self.calls.get((func, args))
        if signature is None:
            signature = super().resolve_function_type(func, args, kws)
            if signature is not None:
                _limit(self.calls)
                self.calls[func, args] = signature
        return signature

    def resolve_getattr(self, typ: Any, attr: str) -> Any:
        """Resolve an attribute as Numba does, but skip the ``__call__`` of functions.

        Numba looks it up for each call.
        """
        if attr == "__call__" and isinstance(typ, types.Function | types.Dispatcher):
            return None
        return super().resolve_getattr(typ, attr)


class Lowering(cpu.CPUContext):
    """The lowering context: the instructions of operators and functions in kernels."""

    def init(self) -> None:
        self.code = KernelCodegen()
        self.builtin_count = -1
        self.implementations: dict[Any, Any] = {}

    def codegen(self) -> KernelCodegen:
        return self.code

    def create_module(self, name: str) -> ir.Module:
        return self.code.create_library(name).create_ir_module(name)

    @property
    def target_data(self) -> llvm.TargetData:
        return self.code.target_data

    def refresh(self) -> None:
        self.typing_context.refresh()
        count = declaration_count(imputils.builtin_registry, imputils.RegistryLoader)
        if count != self.builtin_count:
            self.builtin_count = count
            self.install_registry(imputils.builtin_registry)
            self.install_registry(LOWERING)

    @property
    def call_conv(self) -> Convention:
        return Convention(self)

    def get_env_name(self, fndesc: Any) -> str:
        return f"{fndesc.mangled_name}.environment"

    def pair_first(self, builder: ir.IRBuilder, val: ir.Value, ty: Any) -> ir.Value:
        """Return the value that an iterator yielded; Numba's own method stores and loads it."""
        return builder.extract_value(val, 0)

    def pair_second(self, builder: ir.IRBuilder, val: ir.Value, ty: Any) -> ir.Value:
        """Return whether an iterator yielded a value."""
        return builder.extract_value(val, 1)

    def post_lowering(self, mod: ir.Module, library: Library) -> None:
        """Do nothing: there is neither reference counting nor fast math."""

    def subtarget(self, **options: Any) -> Lowering:
        """Create a context for one function, with its own cache of implementations."""
        context = super().subtarget(**options)
        context.implementations = {}
        return context

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        """Look up an implementation as Numba does, but only once for each compiled function."""
        implementation = self.implementations.get((fn, sig))
        if implementation is None:
            implementation = self.implementations[fn, sig] = super().get_function(fn, sig, _firstcall)
        return implementation

    def get_abi_sizeof(self, ty: ir.Type) -> int:
        """Return the size of a type in bytes.

        For numbers and tuples of one type it does not call LLVM, which may be busy in another thread.
        """
        if isinstance(ty, ir.PointerType):
            return self.address_size // 8
        if isinstance(ty, ir.ArrayType):
            return int(ty.count) * self.get_abi_sizeof(ty.element)
        if isinstance(ty, ir.LiteralStructType) and len(set(ty.elements)) == 1:
            return len(ty.elements) * self.get_abi_sizeof(ty.elements[0])
        return SIZES.get(ty) or super().get_abi_sizeof(ty)


class CompilerTarget(TargetDescriptor):
    """The typing and lowering contexts of the target, created on first use."""

    options = cpu.CPUTargetOptions

    @functools.cached_property
    def typing_context(self) -> Typing:
        return Typing()

    @functools.cached_property
    def target_context(self) -> Lowering:
        return Lowering(self.typing_context, NAME)


TARGET = CompilerTarget(NAME)
FLAGS = {
    "nopython": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,  # values are not counted references
}


# ----------------------------------------------------------------------------------------------------- passes


def _skip_caches(bytecode: Any) -> None:
    """Remove the interpreter's inline cache entries.

    On Python 3.11, Numba would process them like instructions, and they are three in five instructions.
    """
    following = None
    for instruction in reversed(bytecode.table.values()):
        if following is not None and following.opname == "CACHE":
            instruction.next = following.next
        following = instruction


REWRITTEN = {"LIST_EXTEND", "CALL_FUNCTION_EX", "DICT_MERGE", "DICT_UPDATE", "BEFORE_WITH", "LOAD_SPECIAL"}
"""The instructions, for `with` and unpacked arguments, whose translation Numba rewrites afterwards."""


class Reader(interpreter.Interpreter):
    """Numba's translation of bytecode; for rewriting, Numba itself would scan each statement six times."""

    def post_process(self, peepholes: Any, func_ir: Any) -> Any:
        """Rewrite the function only if it contains an instruction of `REWRITTEN`."""
        if any(instruction.opname in REWRITTEN for instruction in self.bytecode):
            return super().post_process(peepholes, func_ir)
        return func_ir


def _assigns_again(function: Any) -> bool:
    """Whether a variable is assigned more than once."""
    assigned = [s.target.name for b in function.blocks.values() for s in b.find_insts(numba_ir.Assign)]
    return len(set(assigned)) < len(assigned)


class Passes:
    """The compiler passes of a function, with the interface of Numba's pass manager."""

    pipeline_name = "kernel"

    def __init__(self, symbol: str | None, is_inlined: bool) -> None:
        self.symbol, self.is_inlined = symbol, is_inlined
        self.exec_times: dict[str, Any] = {}

    def run(self, state: Any) -> None:
        """Translate bytecode to LLVM IR; Numba would also compute live ranges after each step."""
        _skip_caches(state.bc)
        state.func_ir = Reader(state.func_id).interpret(state.bc)
        untyped_passes.FixupArgs().run_pass(state)
        function = state.func_ir
        function.blocks = transforms.canonicalize_cfg(function.blocks)
        function.generator_info = None
        needs_ssa = _assigns_again(function)
        if needs_ssa:  # each assignment may have a type of its own
            ssa.reconstruct_ssa(function)
            function._definitions = ir_utils.build_definitions(function.blocks)
        infer(state)
        if needs_ssa:
            state.func_ir = function = typed_passes.PreLowerStripPhis()._strip_phi_nodes(function)
            function._definitions = ir_utils.build_definitions(function.blocks)
        _lower(state, self.symbol, self.is_inlined)


def _lower(state: Any, symbol: str | None, is_inlined: bool) -> None:
    """Lower Numba's IR to LLVM's, as a function named `symbol`, or with a mangled name if that is None.

    Numba's own pass would also build an executable function, and prune its reference counting with LLVM,
    which may be busy in another thread.
    """
    context, flags, function = state.targetctx, state.flags, state.func_ir
    descriptor = funcdesc.PythonFunctionDescriptor.from_specialized_function(
        function,
        state.typemap,
        state.return_type,
        state.calltypes,
        mangler=context.mangler if symbol is None else lambda *names, **tags: symbol,
        inline=flags.forceinline,
        noalias=flags.noalias,
        abi_tags=[flags.get_mangle_string()],
    )
    library = context.codegen().create_library(state.func_id.func_qualname)
    with context.push_code_library(library):
        lower = LoopLowering(context, library, descriptor, function, metadata=state.metadata)
        lower.is_inlined = is_inlined
        lower.lower()
    if symbol is None:  # no code calls a kernel by name, and Numba would keep it alive forever
        context.insert_func_defn([(caller(descriptor, library), library, descriptor.argtypes)])
    state.cr = compiler.compile_result(
        typing_context=state.typingctx,
        target_context=context,
        entry_point=library,  # stands for the function in Numba's tables
        signature=typing.signature(state.return_type, *state.args),
        library=library,
        fndesc=descriptor,
        objectmode=False,
    )


def caller(descriptor: Any, library: Library) -> Callable[..., ir.Value]:
    """Return the lowering of a call of the function with `descriptor`, which is in `library`."""

    def call(context: Lowering, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        function = context.declare_function(builder.module, descriptor)
        return context.call_conv.call(builder, function, descriptor, args)

    call.libs = (library,)  # Numba links the libraries in this attribute
    return call


class Compiler(compiler.CompilerBase):
    """Numba's compiler driver with the passes of `Passes`."""

    def __init__(self, *details: Any, symbol: str | None = None, is_inlined: bool = True) -> None:
        super().__init__(*details)
        self.symbol, self.is_inlined = symbol, is_inlined

    def define_pipelines(self) -> list[Passes]:
        return [Passes(self.symbol, self.is_inlined)]


class Subroutine(dispatcher.Dispatcher):
    """A function that kernels can call, compiled for each signature."""

    targetdescr = TARGET

    def add_overload(self, cres: Any) -> None:
        """Record a compiled version, for kernels only: Python cannot call it."""
        self.overloads[tuple(cres.signature.args)] = cres

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__} can only be called from kernels")


target_registry[NAME] = Kernels
dispatcher_registry[Kernels] = Subroutine


def subroutine(function: Callable[..., Any]) -> Subroutine:
    """Declare a function that kernels can call with arguments of any types known to Numba."""
    return Subroutine(function, targetoptions=FLAGS, pipeline_class=Compiler)


def noinline_subroutine(function: Callable[..., Any]) -> Subroutine:
    """Declare a subroutine that LLVM does not inline. Otherwise LLVM inlines a function that is called once,
    however long it is, and optimises it again in its caller, and again in the caller's caller.
    """
    pipeline = functools.partial(Compiler, is_inlined=False)
    return Subroutine(function, targetoptions=FLAGS, pipeline_class=pipeline)


@global_compiler_lock
def translate(
    function: Callable[..., Any], signature: Any, symbol: str, target: CompilerTarget = TARGET
) -> list[Library]:
    """Translate a Python function to unoptimised LLVM IR of a C function named `symbol`.

    Return the function's library, then the libraries of all subroutines that it calls.
    """
    flags = compiler.Flags()
    target.options.parse_as_flags(flags, FLAGS)
    result = compiler.compile_extra(
        target.typing_context,
        target.target_context,
        function,
        signature.args,
        signature.return_type,
        flags,
        {},
        pipeline_class=functools.partial(Compiler, symbol=symbol),
    )
    return result.library.closure()
