"""Golden text: what a stage prints is kept in a file and reviewed as text.

`TRACEJIT_ACCEPT=1` writes the files anew.
"""

import os
import pathlib


def check_golden(path: pathlib.Path, text: str) -> None:
    """Compare `text` with the file `path`, or write it if new text is to be accepted."""
    text = text.rstrip() + "\n"
    if os.environ.get("TRACEJIT_ACCEPT") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path} is missing: run once with TRACEJIT_ACCEPT=1 and review the file"
    assert text == path.read_text(), (
        f"{path.name} differs; if the change is meant, run with TRACEJIT_ACCEPT=1"
    )
