"""LLVM's linker, called in llvmlite's shared library without importing llvmlite.

llvmlite is that library and some fifty Python modules (twenty of its own), whose import takes three times as
long as loading the library. A stored kernel needs nine C functions of it. They are described here as
`llvmlite.binding` describes them in the versions `KNOWN`; for other versions, nothing here is used.

    linker = Linker(library_of_llvmlite())
    addresses, tracker = linker.link("add", object_code, ["kernel"])     # {"kernel": address}
    linker.unload(tracker)

Numba may import llvmlite at any time: both then use one and the same library.
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
"""Versions of llvmlite in which these functions are the same."""

OBJECT_CODE, LIBRARY = 2, 3


class Element(ctypes.Structure):
    """An input of the linker: object code, or a library of symbols by its name (without one, the process)."""

    _fields_ = (("kind", c_uint8), ("content", c_char_p), ("size", c_size_t))


class Symbol(ctypes.Structure):
    """A symbol and, after linking, its address."""

    _fields_ = (("name", c_char_p), ("address", c_uint64))


def library_of_llvmlite() -> pathlib.Path | None:
    """The path of llvmlite's library; None if it is not where it is known to be."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or not spec.submodule_search_locations:
        return None
    name = "libllvmlite.dylib" if sys.platform == "darwin" else "libllvmlite.so"
    path = pathlib.Path(spec.submodule_search_locations[0]) / "binding" / name
    return path if path.is_file() else None


class Linker:
    """The library with its linker, which keeps what it has linked until that is unloaded."""

    def __init__(self, path: pathlib.Path) -> None:
        self._library = ctypes.CDLL(str(path))
        for part in ("Target", "AsmPrinter"):
            self._function(f"InitializeNative{part}", None)()
        create = self._function("CreateLLJITCompiler", c_void_p, c_void_p, c_bool, c_bool, POINTER(c_char_p))
        self._dispose = self._function("DisposeString", None, c_char_p)
        elements, symbols = (POINTER(Element), c_size_t), (POINTER(Symbol), c_size_t)
        self._link = self._function(
            "LLJIT_Link", c_void_p, c_void_p, c_char_p, *elements, *symbols, *symbols, POINTER(c_char_p)
        )
        self._unload = self._function("LLJIT_Dylib_Tracker_Dispose", c_bool, c_void_p, POINTER(c_char_p))
        message = c_char_p()
        self._jit = create(None, False, False, message)
        said = self._text(message)
        if not self._jit:
            raise RuntimeError(said)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, f"LLVMPY_{name}")
        function.restype, function.argtypes = result, arguments
        return function

    def _text(self, given: c_char_p) -> str:
        """A text that the library has allocated."""
        text = (given.value or b"").decode()
        self._dispose(given)
        return text

    def _said(self, name: str) -> str:
        """The text that a function returns."""
        text = c_char_p()
        self._function(name, c_int, POINTER(c_char_p))(text)
        return self._text(text)

    def host(self) -> tuple[str, str, str]:
        """The host's triple, processor and features, as in `tracejit.codegen.objects.linker.host`."""
        features = {
            feature[1:]: feature for feature in self._said("GetHostCPUFeatures").split(",") if feature
        }
        flat = ",".join(features[name] for name in sorted(features))
        return self._said("GetProcessTriple"), self._said("GetHostCPUName"), flat

    def link(self, name: str, object_code: bytes, symbols: Sequence[str]) -> tuple[dict[str, int], Any]:
        """Addresses of `symbols`, and what `unload` takes; `name` is that of a new library."""
        parts = (Element * 2)(Element(OBJECT_CODE, object_code, len(object_code)), Element(LIBRARY, b"", 0))
        found = (Symbol * len(symbols))(*[Symbol(symbol.encode()) for symbol in symbols])
        message = c_char_p()
        tracker = self._link(self._jit, name.encode(), parts, 2, None, 0, found, len(symbols), message)
        said = self._text(message)
        if not tracker:
            raise RuntimeError(said)
        return {symbol: place.address for symbol, place in zip(symbols, found, strict=True)}, tracker

    def unload(self, tracker: Any) -> None:
        """Unload a library; its addresses are invalid from then on."""
        message = c_char_p()
        failed = self._unload(tracker, message)
        said = self._text(message)
        if failed:
            raise RuntimeError(said)
