"""The Numba target for kernels: Numba's front end, with only what kernels need.

Numba's CPU target knows all of Python's containers and of NumPy, runs 27 passes over each function,
optimises each one twice and links it into the process. All of this costs time in every cold start, and a
kernel needs none of it: its code is bytecode, integers, loads, stores and calls of intrinsics, and its
functions are optimised once, together (`tracejit.codegen.objects.build`). So this target has its own

- typing rules (`tracejit.kernels.compiler.typing`),
- passes: bytecode to Numba's IR, type inference, lowering; no rewriting, no inlining, no parallel loops,
- code libraries, which only collect the LLVM IR of functions and of those they call.

It is built on Numba's interface for targets (`numba.core.target_extension`).

    @subroutine                               # can be called from kernels; compiled once for each signature
    def slot(block, index):
        return load(block + 8 * index, int64)

    library, *others = translate(kernel, signature, "kernel")     # LLVM IR, also of subroutines it calls
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
from tracejit.kernels.compiler.typing import CLASSES, LOWERING, TypingRules, extent

NAME = "tracejit"
"""The name of this target in Numba's registry."""

CACHED = 4096
"""The most types of values, and of calls, that are cached."""

INSTRUCTIONS = (builtins, enumimpl, numbers, rangeobj, tupleobj)
"""The modules of Numba whose import declares the lowering of the operators of kernels."""

SIZES = {ir.IntType(1): 1, ir.HalfType(): 2, ir.FloatType(): 4, ir.DoubleType(): 8}
SIZES |= {ir.IntType(8 * size): size for size in (1, 2, 4, 8)}
"""The sizes of number types in bytes."""


class Kernels(CPU):
    """The target's place in Numba's hierarchy."""


def _limit(known: dict[Any, Any]) -> None:
    """Clear a full cache: kernels keep introducing new constants."""
    if len(known) >= CACHED:
        known.clear()


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
        """Resolve a value as Numba does, but some Python classes directly, numbers and functions once."""
        if not isinstance(val, int | float | Callable):  # a tuple may equal one of other types
            return super().resolve_value_type(val)
        found = self.values.get((type(val), val))
        if found is None:
            _limit(self.values)
            known = CLASSES.get(val) if isinstance(val, type) else None
            found = self.values[type(val), val] = known or super().resolve_value_type(val)
        return found

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """Resolve a call as Numba does, but once for each function and types of arguments."""
        if kws:
            return super().resolve_function_type(func, args, kws)
        found = self.calls.get((func, args))
        if found is None:
            found = super().resolve_function_type(func, args, kws)
            if found is not None:
                _limit(self.calls)
                self.calls[func, args] = found
        return found

    def resolve_getattr(self, typ: Any, attr: str) -> Any:
        """Resolve an attribute as Numba does, but skip ``__call__`` of functions, looked up for each call."""
        if attr == "__call__" and isinstance(typ, types.Function | types.Dispatcher):
            return None
        return super().resolve_getattr(typ, attr)


class Lowering(cpu.CPUContext):
    """The lowering context: the instructions of operators and functions in kernels."""

    def init(self) -> None:
        self.code = KernelCodegen()
        self.seen = -1
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
        size = extent(imputils.builtin_registry, imputils.RegistryLoader)
        if size != self.seen:
            self.seen = size
            self.install_registry(imputils.builtin_registry)
            self.install_registry(LOWERING)

    @property
    def call_conv(self) -> Convention:
        return Convention(self)

    def get_env_name(self, fndesc: Any) -> str:
        return f"{fndesc.mangled_name}.environment"

    def pair_first(self, builder: ir.IRBuilder, val: ir.Value, ty: Any) -> ir.Value:
        """The value that an iterator yielded, without Numba's detour through memory."""
        return builder.extract_value(val, 0)

    def pair_second(self, builder: ir.IRBuilder, val: ir.Value, ty: Any) -> ir.Value:
        """Whether an iterator yielded a value."""
        return builder.extract_value(val, 1)

    def post_lowering(self, mod: ir.Module, library: Library) -> None:
        """Do nothing: there is no reference counting, and no fast math."""

    def subtarget(self, **options: Any) -> Lowering:
        """A context for one function."""
        context = super().subtarget(**options)
        context.implementations = {}
        return context

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        """Look up an implementation as Numba does, but once for each compiled function."""
        found = self.implementations.get((fn, sig))
        if found is None:
            found = self.implementations[fn, sig] = super().get_function(fn, sig, _firstcall)
        return found

    def get_abi_sizeof(self, ty: ir.Type) -> int:
        """The size of a type; of number types without LLVM, which may be busy in another thread."""
        if isinstance(ty, ir.PointerType):
            return self.address_size // 8
        if isinstance(ty, ir.LiteralStructType) and len(set(ty.elements)) == 1:
            return len(ty.elements) * self.get_abi_sizeof(ty.elements[0])
        return SIZES.get(ty) or super().get_abi_sizeof(ty)


class CompilerTarget(TargetDescriptor):
    """The two contexts, made when first used."""

    options = cpu.CPUTargetOptions

    @functools.cached_property
    def typing_context(self) -> Typing:
        return Typing()

    @functools.cached_property
    def target_context(self) -> Lowering:
        return Lowering(self.typing_context, NAME)


TARGET = CompilerTarget(NAME)
FLAGS = {"nopython": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


# ----------------------------------------------------------------------------------------------------- passes


def _skip_caches(bytecode: Any) -> None:
    """Remove the interpreter's inline cache entries: on Python 3.11, Numba would walk them like instructions,
    three in five of which they are.
    """
    for instruction in bytecode:
        while instruction.next in bytecode and bytecode[instruction.next].opname == "CACHE":
            instruction.next = bytecode[instruction.next].next


REWRITTEN = {"LIST_EXTEND", "CALL_FUNCTION_EX", "DICT_MERGE", "DICT_UPDATE", "BEFORE_WITH", "LOAD_SPECIAL"}
"""Instructions for `with` and for unpacked arguments, of which Numba rewrites what it has translated."""


class Reader(interpreter.Interpreter):
    """Numba's translation of bytecode; Numba would look at each statement six times for what to rewrite."""

    def post_process(self, peepholes: Any, func_ir: Any) -> Any:
        """Rewrite functions that have any of the instructions for which this is needed."""
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

    def __init__(self, symbol: str | None) -> None:
        self.symbol = symbol
        self.exec_times: dict[str, Any] = {}

    def run(self, state: Any) -> None:
        """Translate bytecode to LLVM IR. Numba would also compute lifetimes of variables, after each step."""
        _skip_caches(state.bc)
        state.func_ir = Reader(state.func_id).interpret(state.bc)
        untyped_passes.FixupArgs().run_pass(state)
        function = state.func_ir
        function.blocks = transforms.canonicalize_cfg(function.blocks)
        function.generator_info = None
        again = _assigns_again(function)
        if again:  # each assignment may have a type of its own
            ssa.reconstruct_ssa(function)
            function._definitions = ir_utils.build_definitions(function.blocks)
        infer(state)
        if again:
            state.func_ir = function = typed_passes.PreLowerStripPhis()._strip_phi_nodes(function)
            function._definitions = ir_utils.build_definitions(function.blocks)
        _lower(state, self.symbol)


def _lower(state: Any, symbol: str | None) -> None:
    """Lower Numba's IR to LLVM's, as a function named `symbol`, or mangled if that is None. Numba's own pass
    would also make an executable function, and prune its reference counting with LLVM, which may be busy in
    another thread.
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
        lower.lower()
    if symbol is None:  # a kernel is not called by name, and Numba would keep it forever
        context.insert_func_defn([(_caller(descriptor, library), library, descriptor.argtypes)])
    state.cr = compiler.compile_result(
        typing_context=state.typingctx,
        target_context=context,
        entry_point=library,  # stands for the function in Numba's tables
        signature=typing.signature(state.return_type, *state.args),
        library=library,
        fndesc=descriptor,
        objectmode=False,
    )


def _caller(descriptor: Any, library: Library) -> Callable[..., ir.Value]:
    """The lowering of a call of a function."""

    def call(context: Lowering, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        function = context.declare_function(builder.module, descriptor)
        return context.call_conv.call(builder, function, descriptor, args)

    call.libs = (library,)  # Numba links what it finds here
    return call


class Compiler(compiler.CompilerBase):
    """Numba's driver, with these passes."""

    def __init__(self, *details: Any, symbol: str | None = None) -> None:
        super().__init__(*details)
        self.symbol = symbol

    def define_pipelines(self) -> list[Passes]:
        return [Passes(self.symbol)]


class Subroutine(dispatcher.Dispatcher):
    """A function that kernels call."""

    targetdescr = TARGET

    def add_overload(self, cres: Any) -> None:
        """Keep a compiled version, for kernels only: Python cannot call it."""
        self.overloads[tuple(cres.signature.args)] = cres

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__} can only be called from kernels")


class WordSubroutine(Subroutine):
    """A function of int64 words. Numba would compile it again for each constant argument."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Resolve the call with all arguments typed int64."""
        for kind in args:
            if not isinstance(types.unliteral(kind), types.Integer | types.Boolean):
                raise TypeError(f"{self.py_func.__name__} takes words, not {kind}")
        return super().get_call_template([types.int64] * len(args), kws)


target_registry[NAME] = Kernels
dispatcher_registry[Kernels] = Subroutine


def subroutine(function: Callable[..., Any]) -> Subroutine:
    """Declare a function that kernels call; its arguments may be anything that Numba can type."""
    return Subroutine(function, targetoptions=FLAGS, pipeline_class=Compiler)


def word_subroutine(function: Callable[..., Any]) -> Subroutine:
    """Declare a function that kernels call with int64 words; it is compiled once."""
    return WordSubroutine(function, targetoptions=FLAGS, pipeline_class=Compiler)


@global_compiler_lock
def translate(
    function: Callable[..., Any], signature: Any, symbol: str, target: CompilerTarget = TARGET
) -> list[Library]:
    """Translate a Python function to LLVM IR, not optimised, as a C function named `symbol`; return its
    library, then those of all subroutines that it calls.
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
