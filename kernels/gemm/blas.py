"""OpenBLAS, with its LAPACK: entry points as addresses. Needs no Numba.

OpenBLAS is provided by the package `scipy-openblas32`, a private copy that is limited to one thread: the
engine parallelises by panels, and the OpenBLAS inside the user's NumPy is not touched. The package is built
for at most 64 concurrent callers, the size of its table of buffers, so the engine must not run more than 64
workers that call it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import pathlib
from collections.abc import Iterator

LAPACK = ("dgeqrf", "zgeqrf", "dorgqr", "zungqr", "ssyevd", "dsyevd", "cheevd", "zheevd")
"""Routines of LAPACK that do not exist for all dtypes, or not with the same name."""


@functools.cache
def entry_points() -> dict[str, int]:
    """Return the addresses of ``sgemm``, ``dgemm``, ``sgemv``, ``dgemv`` (the C interfaces), and of LAPACK's
    ``gesv`` and ``potrf`` prefixed with each of its four letters, and those in `LAPACK` (the Fortran
    interface, with 32-bit integers).

    The library is opened by path, not through its package, whose import would make its symbols global and so
    capture the calls of a SciPy that is loaded later.
    """
    package = importlib.util.find_spec("scipy_openblas32")
    if package is None or package.origin is None:
        raise ImportError("tracejit needs the package scipy-openblas32 for matrix products: pip install it")
    (path,) = (pathlib.Path(package.origin).parent / "lib").glob("libscipy_openblas.*")
    with _one_thread():
        library = ctypes.CDLL(str(path))
    library.scipy_openblas_set_num_threads(1)
    names = ["sgemm", "dgemm", "sgemv", "dgemv"]
    functions = {name: getattr(library, f"scipy_cblas_{name}") for name in names}
    functions |= {name: getattr(library, f"scipy_{name}_") for name in LAPACK}
    for routine in ("gesv", "potrf"):
        functions |= {
            f"{letter}{routine}": getattr(library, f"scipy_{letter}{routine}_") for letter in "sdcz"
        }
    return {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in functions.items()}


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Prevent a library that is opened in this context from starting threads: it would start one for each
    further processor, and each would spin for a tenth of a second.
    """
    previous = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if previous is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = previous
