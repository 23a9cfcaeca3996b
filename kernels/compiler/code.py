"""LLVM IR of kernels and subroutines, as Numba's front end emits it, and their calling convention.

Nothing is optimised, linked or loaded here: a `Library` collects texts, for `tracejit.codegen.objects.build`.
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
    """Whether what is under construction is for a GPU."""
    return bool(builder.module.triple.startswith("nvptx"))


class Library(codegen.CodeLibrary):
    """The LLVM IR of a function, and the libraries of the functions it calls.

    text:    the text of the LLVM module.
    defined: the names in it that can be linked to.
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
        """This library and all that it depends on, each once."""
        found: dict[Library, None] = {}
        waiting = [self]
        while waiting:
            library = waiting.pop()
            if library not in found:
                found[library] = None
                waiting.extend(library.called)
        return list(found)

    def get_llvm_str(self) -> str:
        return self.text

    def get_function(self, name: str) -> Any:
        raise NotImplementedError("kernels are linked by tracejit.codegen.objects.linker")

    get_asm_str = get_function


class KernelCodegen(codegen.Codegen):
    """Makes empty modules, for the host; nothing is optimised or loaded here."""

    _library_class = Library

    def __init__(self) -> None:
        features()  # cached now: later LLVM may be busy in another thread
        data = self.machine().target_data
        self._target_data, self._data_layout = data, str(data)  # Numba reads these two attributes

    @functools.cached_property
    def triple(self) -> str:
        """LLVM's name for the kind of machine."""
        return str(llvm.get_process_triple())

    def machine(self) -> llvm.TargetMachine:
        """The machine that has the target's layout of data."""
        llvm.initialize_native_target()
        return llvm.Target.from_default_triple().create_target_machine()

    def _create_empty_module(self, name: str) -> ir.Module:
        module = ir.Module(cgutils.normalize_ir_text(name))
        module.triple, module.data_layout = self.triple, self._data_layout
        return module

    def _add_module(self, module: Any) -> None:
        raise NotImplementedError("kernels are linked by tracejit.codegen.objects.linker")


class Convention(callconv.BaseCallConv):
    """The C calling convention: arguments are values, the result is returned, nothing is raised."""

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
