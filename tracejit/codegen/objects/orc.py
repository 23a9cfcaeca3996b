"""LLVM's linker, called in llvmlite's shared library without importing llvmlite.

llvmlite consists of that library and some fifty Python modules (twenty of its own), whose import takes three
times as long as loading the library. Loading a stored kernel needs nine of its C functions. Their signatures
here are those of `llvmlite.binding` in the versions `KNOWN`; this module is not used with other versions.

    linker = Linker(library_of_llvmlite())
    addresses, tracker = linker.link("add", object_code, ["kernel"])     # {"kernel": address}
    linker.unload(tracker)

Numba may import llvmlite at any time; both then share the loaded library.
"""

from __future__ import annotations

import ctypes
import importlib.util
import pathlib
import sys
from collections.abc import Sequence
from ctypes import POINTER, c_bool, c_char_p, c_int, c_size_t, c_uint8, c_uint64, c_void_p
from typing import Any

KNOWN = ("0.48.", "0.49.", "0.50.")
"""The versions of llvmlite in which these functions have the same signatures."""

OBJECT_CODE, LIBRARY = 2, 3

JIT_LINK = True
"""Use LLVM's JITLink, which allocates code and constants of an object together. RuntimeDyld, the default,
maps them one by one, and aborts the process if they are 2 GiB apart.
"""


class Element(ctypes.Structure):
    """An input of the linker: object code, or a library of symbols by its name (the empty name means the
    process).
    """

    _fields_ = (("kind", c_uint8), ("content", c_char_p), ("size", c_size_t))


class Symbol(ctypes.Structure):
    """A symbol and, after linking, its address."""

    _fields_ = (("name", c_char_p), ("address", c_uint64))


def library_of_llvmlite() -> pathlib.Path | None:
    """Return the path of llvmlite's library, or None if it is not at its known path."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or not spec.submodule_search_locations:
        return None
    name = "libllvmlite.dylib" if sys.platform == "darwin" else "libllvmlite.so"
    path = pathlib.Path(spec.submodule_search_locations[0]) / "binding" / name
    return path if path.is_file() else None


class Linker:
    """The loaded library with its linker, which retains linked objects until they are unloaded."""

    def __init__(self, path: pathlib.Path) -> None:
        self._library = ctypes.CDLL(str(path))
        for component in ("Target", "AsmPrinter"):
            self._function(f"InitializeNative{component}", None)()
        create = self._function("CreateLLJITCompiler", c_void_p, c_void_p, c_bool, c_bool, POINTER(c_char_p))
        self._dispose = self._function("DisposeString", None, c_char_p)
        elements, symbols = (POINTER(Element), c_size_t), (POINTER(Symbol), c_size_t)
        self._link = self._function(
            "LLJIT_Link", c_void_p, c_void_p, c_char_p, *elements, *symbols, *symbols, POINTER(c_char_p)
        )
        self._unload = self._function("LLJIT_Dylib_Tracker_Dispose", c_bool, c_void_p, POINTER(c_char_p))
        message = c_char_p()
        self._jit = create(None, False, JIT_LINK, message)
        error = self._text(message)
        if not self._jit:
            raise RuntimeError(error)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, f"LLVMPY_{name}")
        function.restype, function.argtypes = result, arguments
        return function

    def _text(self, text_pointer: c_char_p) -> str:
        """Return a text that the library has allocated, and free it."""
        text = (text_pointer.value or b"").decode()
        self._dispose(text_pointer)
        return text

    def _text_of(self, name: str) -> str:
        """Return the text that the library's function `name` produces."""
        text = c_char_p()
        self._function(name, c_int, POINTER(c_char_p))(text)
        return self._text(text)

    def host(self) -> tuple[str, str, str]:
        """Return the host's triple, processor name and features, like
        `tracejit.codegen.objects.linker.host`.
        """
        features = {
            feature[1:]: feature for feature in self._text_of("GetHostCPUFeatures").split(",") if feature
        }
        flat = ",".join(features[name] for name in sorted(features))
        return self._text_of("GetProcessTriple"), self._text_of("GetHostCPUName"), flat

    def link(self, name: str, object_code: bytes, symbols: Sequence[str]) -> tuple[dict[str, int], Any]:
        """Return the addresses of `symbols`, and a tracker for `unload`. `name` becomes the name of a new
        library.
        """
        elements = (Element * 2)(
            Element(OBJECT_CODE, object_code, len(object_code)), Element(LIBRARY, b"", 0)
        )
        resolved = (Symbol * len(symbols))(*[Symbol(symbol.encode()) for symbol in symbols])
        message = c_char_p()
        tracker = self._link(self._jit, name.encode(), elements, 2, None, 0, resolved, len(symbols), message)
        error = self._text(message)
        if not tracker:
            raise RuntimeError(error)
        return {symbol: item.address for symbol, item in zip(symbols, resolved, strict=True)}, tracker

    def unload(self, tracker: Any) -> None:
        """Unload a library. Its addresses become invalid."""
        message = c_char_p()
        failed = self._unload(tracker, message)
        error = self._text(message)
        if failed:
            raise RuntimeError(error)
