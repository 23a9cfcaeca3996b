"""The public functions on arrays: their names in `tj`, and those that are methods of arrays (`Methods`).

Both are built from the declarations (see `public`). Type checkers and editors read `surface.pyi` instead,
which ``python -m docs.tools.stub`` writes from the same declarations; `tests/test_reference.py` compares
both.
"""

from __future__ import annotations

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import MODULES, NAMESPACE
from tracejit.frontend.arrays.public import DECLARED


class Methods(ArrayCore):
    """The methods of arrays that are public functions, with the array as the first argument."""

    __slots__ = ()


for _module in MODULES:
    for _declared in DECLARED[_module.__name__].values():
        if _declared.method:
            setattr(Methods, _declared.name, _declared.value)

__all__ = list(NAMESPACE)
globals().update(NAMESPACE)  # last, because it shadows builtins such as `all`
