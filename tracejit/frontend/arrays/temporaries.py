"""Whether the operand of an in-place operator is on the stack of an expression only.

    v[i] += a        Python evaluates v[i], adds to it in place, and stores the result in v[i]
    row = v[i]
    row += a         changes v, as `row` is a view

In the first statement, nothing can tell whether v[i] is a view or a copy. The two differ in the number of
references to the operand, whose value depends on how the operator is called. It is compared with that of a
statement of the first kind here.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.types import CPU, ArrayType
from tracejit.ir.view import View

PROBE = Storage(ArrayType((), np.dtype("float64"), CPU))
"""The storage of arrays whose references are counted; the operator itself does nothing."""


class _References(threading.local):
    """The last number of references to an array of `PROBE` in a method of an in-place operator."""

    count = 0


references = _References()


class _Subscripted:
    def __getitem__(self, index: int) -> Any:
        return ArrayCore.concrete(PROBE, View.of_shape(()))

    def __setitem__(self, index: int, value: Any) -> None:
        pass


def is_temporary(count: int) -> bool:
    """Whether an operand with this number of references, counted in the method of an in-place operator, is
    the temporary result of a subscription.
    """
    references.count = 0
    container = _Subscripted()
    container[0] += 0.0
    return count <= references.count
