"""LLVM IR of kernels and subroutines, as Numba's front end emits it, and the calling convention.

Nothing is optimised, linked or loaded here: a `Library` collects LLVM assembly for
`tracejit.codegen.objects.build`.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import callconv, cgutils, codegen


@functools.cache
def features() -> dict[str, bool]:
    """The features of this machine's processor, by LLVM's names."""
    return dict(llvm.get_host_cpu_features())


@functools.cache
def processor() -> str:
    """LLVM's name for the processor of this machine."""
    return str(llvm.get_host_cpu_name())


def on_gpu(builder: ir.IRBuilder) -> bool:
    """Whether the module under construction targets a GPU."""
    return bool(builder.module.triple.startswith("nvptx"))


class Library(codegen.CodeLibrary):
    """The LLVM IR of a function, and the libraries of the functions it calls.

    text:    the LLVM module as assembly.
    defined: the names of the functions that the module exports.
    called:  the libraries of the functions that it calls, in a dict that serves as an ordered set.
    """

    def __init__(self, owner: KernelCodegen, name: str) -> None:
        super().__init__(owner, name)
        self.text = ""
        self.defined: list[str] = []
        self.called: dict[Library, None] = {}

    def add_ir_module(self, ir_module: ir.Module) -> None:
        for value in ir_module.global_values:
            if value.linkage == "common":  # the pointer to a function's Python environment, unused here
                value.linkage = "internal"
            elif isinstance(value, ir.Function) and not (value.is_declaration or value.linkage):
                self.defined.append(value.name)
        self.text += cgutils.normalize_ir_text(str(ir_module))

    def add_linking_library(self, library: Library) -> None:
        self.called[library] = None

    def finalize(self) -> None:
        self._finalized = True

    def closure(self) -> list[Library]:
        """Return this library and all its direct and indirect dependencies, each once."""
        libraries: dict[Library, None] = {}
        pending = [self]
        while pending:
            library = pending.pop()
            if library not in libraries:
                libraries[library] = None
                pending.extend(library.called)
        return list(libraries)

    def get_llvm_str(self) -> str:
        return self.text

    def get_function(self, name: str) -> Any:
        raise NotImplementedError("kernels are linked by tracejit.codegen.objects.linker")

    get_asm_str = get_function


class KernelCodegen(codegen.Codegen):
    """A factory of empty modules for the host; it optimises and loads nothing."""

    _library_class = Library

    def __init__(self) -> None:
        features()  # cache them now: later, LLVM may be busy in another thread
        data = self.machine().target_data
        self._target_data, self._data_layout = data, str(data)  # Numba reads these two attributes

    @functools.cached_property
    def triple(self) -> str:
        """LLVM's target triple of the machine."""
        return str(llvm.get_process_triple())

    def machine(self) -> llvm.TargetMachine:
        """Create a target machine, which has the data layout of the target."""
        llvm.initialize_native_target()
        return llvm.Target.from_default_triple().create_target_machine()

    def _create_empty_module(self, name: str) -> ir.Module:
        module = ir.Module(cgutils.normalize_ir_text(name))
        module.triple, module.data_layout = self.triple, self._data_layout
        return module

    def _add_module(self, module: Any) -> None:
        raise NotImplementedError("kernels are linked by tracejit.codegen.objects.linker")


class Convention(callconv.BaseCallConv):
    """The C calling convention: arguments and result are passed by value, and no exception is raised."""

    def get_function_type(self, restype: Any, argtypes: Any) -> ir.FunctionType:
        arguments = self._get_arg_packer(argtypes).argument_types
        return ir.FunctionType(self.context.get_return_type(restype), arguments)

    def decorate_function(self, fn: ir.Function, args: Any, fe_argtypes: Any, noalias: bool = False) -> None:
        names = [f"arg.{name}" for name in args]
        self._get_arg_packer(fe_argtypes).assign_names(self.get_arguments(fn), names)

    def get_arguments(self, func: ir.Function) -> Any:
        return func.args

    def return_value(self, builder: ir.IRBuilder, retval: ir.Value) -> None:
        builder.ret(retval)

    def call(self, builder: ir.IRBuilder, callee: ir.Function, descriptor: Any, args: Any) -> ir.Value:
        """Call a function of this target."""
        arguments = self._get_arg_packer(descriptor.argtypes).as_arguments(builder, args)
        return self.context.get_returned_value(builder, descriptor.restype, builder.call(callee, arguments))

    def return_user_exc(self, builder: ir.IRBuilder, exc: Any, *details: Any, **more: Any) -> None:
        raise TypeError(f"kernels cannot raise exceptions, here {exc}")

    def _make_call_helper(self, builder: ir.IRBuilder) -> None:
        """Do nothing: there is no helper, but Numba requires the method."""
