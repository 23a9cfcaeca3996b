"""Write `surface.pyi`: the public functions on arrays, and methods, as type checkers and editors see them.

Functions are imported from where they are written, so that their signatures and texts stand there only; one
of an elementwise operator, which is written nowhere, is written out. ``python -m docs.tools.stub`` writes the
file; `tests/test_reference.py` fails when it is not current.

>>> text().splitlines()[0]
'# Written by `python -m docs.tools.stub` from the declarations of public functions.'
"""

from __future__ import annotations

import inspect
import pathlib
import types
from typing import Any

from tracejit.frontend.arrays import surface
from tracejit.frontend.arrays.functions import MODULES, NAMESPACE, elementwise
from tracejit.frontend.arrays.public import DECLARED

FILE = pathlib.Path(surface.__file__).with_suffix(".pyi")
HEAD = """\
# Written by `python -m docs.tools.stub` from the declarations of public functions.

from typing import Any

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.ndarray import NDArray
"""


def _is_of_operator(value: Any) -> bool:
    """Whether `elementwise` made a function from the declaration of an operator."""
    is_function = isinstance(value, types.FunctionType) and value.__module__ == elementwise.__name__
    return is_function and value.__code__.co_name != value.__name__


def _where(name: str, value: Any) -> tuple[str, str]:
    """The module where a value is written, and its name there."""
    if isinstance(value, types.FunctionType):
        return value.__module__, value.__name__
    home = next(module for module in MODULES if name in DECLARED[module.__name__])
    known = [own for own, found in vars(home).items() if found is value]
    return home.__name__, name if name in known else known[0]


def _line(name: str, value: Any) -> str:
    """The line of the stub that says what a name is."""
    module, own = _where(name, value)
    if name != own:
        return f"{name} = {own}"
    if not _is_of_operator(value):
        return f"from {module} import {own} as {own}"
    operands = ", ".join(f"{p}: Any" for p in inspect.signature(value).parameters)
    return f"def {name}({operands}, /) -> NDArray: ..."


def text() -> str:
    """The text of the stub."""
    lines = [_line(name, value) for name, value in sorted(NAMESPACE.items())]
    imports = [line for line in lines if line.startswith("from ")]
    declared = [d for module in MODULES for d in DECLARED[module.__name__].values() if d.method]
    methods = [(d.name, *_where(d.name, d.value)) for d in declared]
    homes = [f"import {home}" for home in sorted({home for _, home, _ in methods})]
    body = [f"    {name} = {home}.{own}" for name, home, own in sorted(methods)]
    others = sorted((line for line in lines if line not in imports), key=lambda line: " = " in line)
    return "\n".join([HEAD, *homes, *imports, "", *others, "", "class Methods(ArrayCore):", *body, ""])


def main() -> None:
    """Write the file."""
    FILE.write_text(text())


if __name__ == "__main__":
    main()
