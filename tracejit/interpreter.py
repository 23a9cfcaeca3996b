"""The requirements on the interpreter, checked before other modules are imported.

The Python code of the engine relies on the GIL, and there is one engine per process.
"""

from __future__ import annotations

import sys


def check() -> None:
    """Raise `ImportError` in an interpreter in which results could be wrong."""
    # Testing the GIL's current state is not sufficient: in a free-threaded build any import may change it.
    if "free-threading" in sys.version or getattr(sys, "abiflags", "").find("t") >= 0:
        raise ImportError(
            "tracejit needs the GIL, and this is a free-threaded build of Python: use the usual build of "
            f"CPython {sys.version_info.major}.{sys.version_info.minor}"
        )
    if not _is_main():
        raise ImportError(
            "tracejit runs in the main interpreter of a process only, and this is a subinterpreter: "
            "use threads or processes instead"
        )


def _is_main() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # since 3.13; before
        try:
            interpreters = __import__(name)
        except ImportError:
            continue
        current = interpreters.get_current()
        number = current[0] if isinstance(current, tuple) else current
        return int(number) == 0
    return True


check()
