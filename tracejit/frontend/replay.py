"""Replay functions: the Python that a repeated call runs instead of the body.

For every recorded signature a function is generated that is straight-line Python: walk the arguments, check
them (return `MISS` where they are not of this signature), compute the numbers, bind addresses, launch, write
back what the body rebound, return. Nothing in it is generic, which is what keeps a replay at a few
microseconds:

    def replay(args, kwargs):
        try:
            if len(args) != 2 or kwargs: return MISS
            v0 = args[0]
            if type(v0) is not NDArray: return MISS
            s0 = v0._storage
            if s0.type is not T0 and s0.type != T0: return MISS
            m0 = n1 * 2
            ...
        except MISFITS: return MISS
        launch(pack(s0.address, m0, t0.address, s0.variable.address, 0, t0.variable.address), (s0, t0))
        return NDArray(t0, V1)

`Source` collects its lines and constants. `Source.array` emits the checks of one array. An error in a check
(an attribute that is gone, a division by zero) is a miss as well: the body runs, and raises where it does.
Nothing after the checks can fail because of the arguments, so a replay that raises has changed nothing. An
interrupt may come anywhere: what follows the launch is done nevertheless (see `actions`).
"""

from __future__ import annotations

import functools
import itertools
import linecache
import math
import types
import weakref
from collections import deque
from typing import Any

import numpy as np

from tracejit.frontend.content import same_parts
from tracejit.frontend.ndarray import NDArray
from tracejit.frontend.number import source_of
from tracejit.frontend.storage import Storage, interned
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View


class _Miss:
    """What a replay function returns when the call is not of its signature."""

    def __repr__(self) -> str:
        return "MISS"


MISS = _Miss()
MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a check may raise when a call is not of the signature."""


_serials = itertools.count(1)
"""Tell the sources of replay functions apart; an address would come again."""

_gone: deque[str] = deque()
"""Files of functions that are gone. The next function takes them out of `linecache`; a finalizer must not, as
it may run while somebody walks through that.
"""


def _next_gone() -> str | None:
    try:
        return _gone.popleft()
    except IndexError:  # another thread may have taken the last one
        return None


@functools.lru_cache(maxsize=256)
def _compiled(text: str) -> types.CodeType:
    """The code of a replay function. Signatures that differ in shapes only have one text, mostly."""
    (code,) = (
        c for c in compile(text, "<tracejit replay>", "exec").co_consts if isinstance(c, types.CodeType)
    )
    return code


def _placed(code: types.CodeType, filename: str) -> types.CodeType:
    """`code` as if it were written in the file `filename`."""
    constants = [_placed(c, filename) if isinstance(c, types.CodeType) else c for c in code.co_consts]
    return code.replace(co_filename=filename, co_consts=tuple(constants))


def release(storage: Storage) -> None:
    """Flush the eager recording that has touched `storage`."""
    holder = storage.recording
    if holder is not None:
        holder.release(storage)


def is_block(storage: Storage, type: ArrayType) -> bool:
    """Whether `storage` is a block of the same size, dtype and device; if so, `type` describes it now.

    Views count elements of the block, so its own shape means nothing to them.
    """
    own = storage.type
    if own.dtype != type.dtype or own.size != type.size or own.device != type.device:
        return False
    storage.type = type
    return True


def disjoint(*storages: Storage) -> bool:
    """Whether no two storages whose memory Python can see overlap."""
    ranges = sorted((s.address, s.address + s.type.nbytes) for s in storages if s.shared)
    return all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))


class Source:
    """A replay function under construction: its lines, and the objects its names stand for."""

    def __init__(self) -> None:
        self.lines: list[str] = []  # the checks
        self.actions: list[str] = []  # what follows them
        self.names: dict[str, Any] = {
            "MISS": MISS, "MISFITS": MISFITS, "NDArray": NDArray, "Storage": Storage, "View": View,
            "ndarray": np.ndarray, "release": release, "is_block": is_block,
            "np": np, "nan": math.nan, "inf": math.inf,
        }  # fmt: skip
        self._constants: dict[int, str] = {}
        self._serial = 0

    def name(self, prefix: str) -> str:
        """A fresh variable."""
        self._serial += 1
        return f"{prefix}{self._serial - 1}"

    def constant(self, value: Any) -> str:
        """A name that stands for this very object; it is kept alive by the function."""
        found = self._constants.get(id(value))
        if found is None:
            found = self._constants[id(value)] = self.name("K")
            self.names[found] = value
        return found

    def inside(self, way: type, variable: str) -> str:
        """What reads and stores the content of a variable past its class: ``Items(h1)``."""
        self.names[way.__name__] = way
        return f"{way.__name__}({variable})"

    def line(self, text: str) -> None:
        """Append one line of the body."""
        self.lines.append(text)

    def require(self, condition: str) -> None:
        """The call is of this signature only if `condition` holds."""
        self.lines.append(f"if not ({condition}): return MISS")

    def bind(self, expression: str, prefix: str = "v") -> str:
        """Evaluate `expression` into a fresh variable."""
        name = self.name(prefix)
        self.lines.append(f"{name} = {expression}")
        return name

    def same(self, expression: str, value: Any) -> None:
        """Require that a plain value is what it was: equal, of the same type, and the same zero or nan."""
        kind = type(value)
        if value is None or kind is bool or value is Ellipsis:
            self.require(f"{expression} is {value!r}")
        elif kind is float and value == value and value != 0:
            self.require(f"type({expression}) is float and {expression} == {source_of(value)}")
        elif kind in (int, str, bytes):
            self.require(f"type({expression}) is {kind.__name__} and {expression} == {value!r}")
        elif kind in (float, complex) or isinstance(value, np.generic):
            constant = self.constant(value)
            self.require(f"type({expression}) is type({constant}) and repr({expression}) == {repr(value)!r}")
        elif kind is range or isinstance(value, np.dtype):
            constant = self.constant(value)
            self.require(f"type({expression}) is type({constant}) and {expression} == {constant}")
        else:
            self.require(f"{expression} is {self.constant(value)}")

    def keys(self, expression: str, keys: tuple[Any, ...]) -> None:
        """Require that a dict has these keys, in this order, and not just equal ones, as 1 and True are."""
        same = f"tuple({expression}) == {self.constant(keys)}"
        if all(type(key) is str for key in keys):
            self.require(same)
        else:
            self.names["same_parts"] = same_parts
            self.require(f"{same} and same_parts(tuple({expression}), {self.constant(keys)})")

    def array(self, variable: str, type: ArrayType, view: View, *, window: bool) -> str:
        """Require an NDArray of this type and view (any offset, for a window); bind its storage."""
        self.require(f"type({variable}) is NDArray")
        storage = self.bind(f"{variable}._storage", "s")
        if window:
            of = self.bind(f"{storage}.type")
            self.require(
                f"{of}.dtype == {self.constant(type.dtype)} and {of}.device == {self.constant(type.device)}"
            )
            seen = self.bind(f"{variable}._view")
            self.require(
                f"{seen}.shape == {self.constant(view.shape)} and "
                f"{seen}.strides == {self.constant(view.strides)} and {seen}.writable is {view.writable}"
            )
        else:
            t, v = self.constant(interned(type)), self.constant(view)
            self.line(f"if {storage}.type is not {t} and not is_block({storage}, {t}): return MISS")
            self.line(f"if {variable}._view is not {v}:")
            self.line(f"    if {variable}._view != {v}: return MISS")
            self.line(f"    {variable}._view = {v}")
        return storage

    def function(self, name: str) -> Any:
        """Compile the lines into ``replay(args, kwargs)``; its source is registered with `linecache`."""
        text = self.text
        for gone in iter(_next_gone, None):
            linecache.cache.pop(gone, None)
        filename = f"<tracejit replay of {name} #{next(_serials)}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        replay = types.FunctionType(_placed(_compiled(text), filename), self.names)
        weakref.finalize(replay, _gone.append, filename)
        return replay

    @property
    def text(self) -> str:
        """The function's source."""
        checks = "".join(f"        {line}\n" for line in self.lines)
        actions = "".join(f"    {line}\n" for line in self.actions)
        return f"def replay(args, kwargs):\n    try:\n{checks}    except MISFITS: return MISS\n{actions}"
