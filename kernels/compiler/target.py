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

from tracejit.kernels.compiler.code import Code, Convention, Library
from tracejit.kernels.compiler.inference import infer
from tracejit.kernels.compiler.loops import Loops
from tracejit.kernels.compiler.typing import CLASSES, LOWERING, Selection, extent

NAME = "tracejit"
"""Of this target among Numba's."""

KNOWN = 4096
"""Types of values and of calls that are remembered."""

INSTRUCTIONS = (builtins, enumimpl, numbers, rangeobj, tupleobj)
"""The modules of Numba that declare instructions for what kernels may say: importing them does."""

SIZES = {ir.IntType(1): 1, ir.HalfType(): 2, ir.FloatType(): 4, ir.DoubleType(): 8}
SIZES |= {ir.IntType(8 * size): size for size in (1, 2, 4, 8)}
"""Bytes of numbers."""


class Kernels(CPU):
    """The target's place in Numba's hierarchy."""


def _make_room(known: dict[Any, Any]) -> None:
    """Forget all, should there be much: kernels have ever new numbers."""
    if len(known) >= KNOWN:
        known.clear()


class Typing(TypingContext):
    """Knows the types of what kernels may say."""

    def init(self) -> None:
        self.selection = Selection()
        self.calls: dict[Any, Any] = {}
        self.values: dict[Any, Any] = {}

    def refresh(self) -> None:
        if self.selection.update():
            self.install_registry(self.selection.registry)

    def resolve_value_type(self, val: Any) -> Any:
        """As before, but some of Python's classes are known, and numbers and functions are looked up once."""
        if not isinstance(val, int | float | Callable):  # a tuple may equal one of other types
            return super().resolve_value_type(val)
        found = self.values.get((type(val), val))
        if found is None:
            _make_room(self.values)
            known = CLASSES.get(val) if isinstance(val, type) else None
            found = self.values[type(val), val] = known or super().resolve_value_type(val)
        return found

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """As before, but looked up once for each function and types of arguments."""
        if kws:
            return super().resolve_function_type(func, args, kws)
        found = self.calls.get((func, args))
        if found is None:
            found = super().resolve_function_type(func, args, kws)
            if found is not None:
                _make_room(self.calls)
                self.calls[func, args] = found
        return found

    def resolve_getattr(self, typ: Any, attr: str) -> Any:
        """As before, but functions are not asked for an attribute ``__call__``, once for each call."""
        if attr == "__call__" and isinstance(typ, types.Function | types.Dispatcher):
            return None
        return super().resolve_getattr(typ, attr)


class Lowering(cpu.CPUContext):
    """Knows the instructions for what kernels may say."""

    def init(self) -> None:
        self.code = Code()
        self.seen = -1
        self.implementations: dict[Any, Any] = {}

    def codegen(self) -> Code:
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
        """What an iterator gave; the way through memory that Numba takes is longer."""
        return builder.extract_value(val, 0)

    def pair_second(self, builder: ir.IRBuilder, val: ir.Value, ty: Any) -> ir.Value:
        """Whether an iterator gave something."""
        return builder.extract_value(val, 1)

    def post_lowering(self, mod: ir.Module, library: Library) -> None:
        """Nothing: no reference counting, no fast math."""

    def subtarget(self, **options: Any) -> Lowering:
        """A context for one function."""
        context = super().subtarget(**options)
        context.implementations = {}
        return context

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        """As before, but looked up once for each function that is compiled."""
        found = self.implementations.get((fn, sig))
        if found is None:
            found = self.implementations[fn, sig] = super().get_function(fn, sig, _firstcall)
        return found

    def get_abi_sizeof(self, ty: ir.Type) -> int:
        """As before, but of what kernels use without LLVM, which may be busy in another thread."""
        if isinstance(ty, ir.PointerType):
            return self.address_size // 8
        if isinstance(ty, ir.LiteralStructType) and len(set(ty.elements)) == 1:
            return len(ty.elements) * self.get_abi_sizeof(ty.elements[0])
        return SIZES.get(ty) or super().get_abi_sizeof(ty)


class Target(TargetDescriptor):
    """The two contexts, made when first used."""

    options = cpu.CPUTargetOptions

    @functools.cached_property
    def typing_context(self) -> Typing:
        return Typing()

    @functools.cached_property
    def target_context(self) -> Lowering:
        return Lowering(self.typing_context, NAME)


TARGET = Target(NAME)
FLAGS = {"nopython": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


# ----------------------------------------------------------------------------------------------------- passes


def _skip_caches(bytecode: Any) -> None:
    """Take out the places that Python's interpreter keeps for itself: in Python 3.11, Numba would go through
    them as if they were instructions, which three in five are not.
    """
    for instruction in bytecode:
        while instruction.next in bytecode and bytecode[instruction.next].opname == "CACHE":
            instruction.next = bytecode[instruction.next].next


def _assigns_again(function: Any) -> bool:
    """Whether a variable is assigned at more than one place."""
    assigned = [s.target.name for b in function.blocks.values() for s in b.find_insts(numba_ir.Assign)]
    return len(set(assigned)) < len(assigned)


class Passes:
    """What a function goes through; has the interface of Numba's pass manager."""

    pipeline_name = "kernel"

    def __init__(self, symbol: str | None) -> None:
        self.symbol = symbol
        self.exec_times: dict[str, Any] = {}

    def run(self, state: Any) -> None:
        """Bytecode to LLVM IR. Numba would also look for the lifetimes of variables, after each renaming."""
        _skip_caches(state.bc)
        untyped_passes.TranslateByteCode().run_pass(state)
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
    """Numba's IR to LLVM's, a function named `symbol` or as Numba would. Numba's own pass goes on to make an
    executable function, and asks LLVM about its reference counting, for which it would wait while LLVM is
    busy in another thread.
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
        lower = Loops(context, library, descriptor, function, metadata=state.metadata)
        lower.lower()
    if symbol is None:  # nobody calls a kernel by its name, and Numba would keep it for good
        context.insert_func_defn([(_caller(descriptor, library), library, descriptor.argtypes)])
    state.cr = compiler.compile_result(
        typing_context=state.typingctx,
        target_context=context,
        entry_point=library,  # what stands for the function among Numba's
        signature=typing.signature(state.return_type, *state.args),
        library=library,
        fndesc=descriptor,
        objectmode=False,
    )


def _caller(descriptor: Any, library: Library) -> Callable[..., ir.Value]:
    """What lowers a call of a function."""

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
    """A function of int64 words. Numba would compile it again for each constant that is an argument."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """As of a call with words."""
        for given in args:
            if not isinstance(types.unliteral(given), types.Integer | types.Boolean):
                raise TypeError(f"{self.py_func.__name__} takes words, not {given}")
        return super().get_call_template([types.int64] * len(args), kws)


target_registry[NAME] = Kernels
dispatcher_registry[Kernels] = Subroutine


def subroutine(function: Callable[..., Any]) -> Subroutine:
    """Declare a function that kernels call; its arguments may be anything that Numba can type."""
    return Subroutine(function, targetoptions=FLAGS, pipeline_class=Compiler)


def word_subroutine(function: Callable[..., Any]) -> Subroutine:
    """Declare a function that kernels call with int64 words; it is compiled once, whatever they are."""
    return WordSubroutine(function, targetoptions=FLAGS, pipeline_class=Compiler)


@global_compiler_lock
def translate(function: Callable[..., Any], signature: Any, symbol: str) -> list[Library]:
    """The LLVM IR of a Python function, as a C function named `symbol`, then that of all subroutines that it
    calls. Not optimised.
    """
    flags = compiler.Flags()
    TARGET.options.parse_as_flags(flags, FLAGS)
    result = compiler.compile_extra(
        TARGET.typing_context,
        TARGET.target_context,
        function,
        signature.args,
        signature.return_type,
        flags,
        {},
        pipeline_class=functools.partial(Compiler, symbol=symbol),
    )
    return result.library.closure()
