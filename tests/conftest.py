"""Every test run uses a kernel store of its own, so that results never depend on an earlier run."""

import os
import pathlib
import tempfile

os.environ.setdefault("TRACEJIT_VERIFY", "1")
_store = os.environ.setdefault(
    "TRACEJIT_CACHE_DIR", str(pathlib.Path(tempfile.gettempdir()) / f"tracejit-tests-{os.getpid()}")
)
