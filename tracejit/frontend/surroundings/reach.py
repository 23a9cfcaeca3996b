"""Reachability of a traced body: globals, closures, attributes.

The body's surroundings are over-approximated by *names*: just before a Python function runs for the first
time, every global, closure cell and attribute is visited whose name occurs in its code (`bytecode.facts`).
What other code could have changed was visited before that ran, so what is found is as it was before the
call. Each thing found is a `Slot`:

- arrays are inputs by reference: a replay reads the slot again;
- plain values (numbers, strings, flags) and functions are guarded: a change retraces. Numbers that some code
  assigns (``self.t += 1``) are run-time numbers instead: the body finds a proxy there;
- functions are guarded to be the same, and what they name is visited when they are called;
- containers are guarded by keys or length, and their items are slots; sets and long tables by content;
- objects are guarded by type, by the attributes that are named, and by those that are not there;
- what cannot be checked (iterators, NumPy's generators, objects written in C) makes the function piecewise.

An object that is found a second time is guarded to be the same. Code of Python's library, NumPy and this
package is trusted: its names do not count.
"""

from __future__ import annotations

import builtins
import collections
import functools
import operator
import sys
import types
from collections.abc import Callable, Container
from typing import Any, ClassVar

import numpy as np

from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python import kinds
from tracejit.frontend.python.bytecode import Facts, looks_up
from tracejit.frontend.python.content import GONE, content_of, factory_of, own_attributes, own_items
from tracejit.frontend.python.kinds import (
    FIXED,
    VALUES,
    is_added,
    is_of_own_class,
    is_value,
    trusted,
)
from tracejit.frontend.python.purity import REMEDY, opens
from tracejit.frontend.recording import numpy_views
from tracejit.frontend.recording.number import unproxied
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.trace_numbers import Numbers
from tracejit.frontend.signature.expressions import (
    Const,
    Derived,
    Expr,
    Var,
    attribute,
    item,
)
from tracejit.frontend.signature.slots import OUTSIDE, ClosureCell, Content, Global, Item, Slot
from tracejit.frontend.surroundings import numbers_found
from tracejit.frontend.surroundings.executed import ExecutedCode
from tracejit.frontend.surroundings.math_module import MATH
from tracejit.frontend.surroundings.members import (
    Seen,
    SeenClass,
    SeenFunction,
    SeenModule,
    SeenObject,
    class_slot,
)
from tracejit.frontend.surroundings.numpy_module import NUMPY

MOST_PLAIN = 8  # plain items; longer tables are guarded as a whole
STORED = 64  # the same, where code stores some of them
ITEMS = 4096  # other items; containers with more cannot be checked


class Reach:
    """The values that a body can reach by name, as they were before the body could change them.

    code:    what the body runs.
    rebuilt: ids of the caller's containers of which the body gets copies.
    slots:   by place, cells by identity: where the values were found.
    refused: slots that a replay cannot check.
    seen:    values whose attributes are followed.
    shadows: (globals, names of builtins): no global of such a name was there.
    """

    def __init__(self, code: ExecutedCode, numbers: Numbers, rebuilt: Container[int]):
        self.code, self.numbers, self.rebuilt = code, numbers, rebuilt
        self.slots: dict[Any, Slot] = {}
        self.refused: list[Slot] = []
        self.seen: list[Seen] = []
        self.shadows: list[tuple[Expr, set[str]]] = []
        self._fresh: list[Slot] = []  # found just now: the body has not run since
        self._functions: dict[types.CodeType, list[tuple[Any, Expr]]] = {}  # found by name
        self._vars: dict[int, Expr] = {}

    def scan(self, function: Any, objects: list[tuple[Expr, str, Any]]) -> None:
        """Visit the function and the `objects` (operand, path, object) from which the body starts."""
        name = getattr(function, "__name__", type(function).__name__)
        self.visit(Slot(None, name, Const(function), name, function, guarded=False))
        for operand, path, value in objects:
            self.visit(Slot(None, path, operand, path, value, guarded=False))
        self._look_up()

    def visit_code(self, code: types.CodeType, namespace: dict[str, Any]) -> bool:
        """Visit what a Python function names that is about to run for the first time.

        Returns whether its closure is known: the function was found by name, or made by code that was.
        """
        inside = code in self.code.defined
        self._names(self.code.add(code), namespace)
        found = self._functions.get(code, ())
        for function, base in found:
            self._closure(function, base)
        self._look_up()
        return inside or bool(found) or not set(code.co_freevars) - {"__class__"}

    def _look_up(self) -> None:
        """Look up names on objects until there are no new ones."""
        while True:
            before = len(self.code.mentions.attributes), len(self.seen)
            for seen in list(self.seen):
                for slot in seen.look_up(self.code.mentions):
                    self.visit(slot)
            if before == (len(self.code.mentions.attributes), len(self.seen)):
                return

    def take_fresh(self) -> list[Slot]:
        """Slots that were found since this was asked last."""
        fresh, self._fresh = self._fresh, []
        return fresh

    # -- visiting --------------------------------------------------------------------------------------------

    def visit(self, slot: Slot) -> None:
        """Add a slot, and visit what can be reached from its value."""
        key = ("cell", id(slot.holder)) if isinstance(slot, ClosureCell) else slot.place.key
        if slot.refusal is not None:
            self.slots[key] = slot
            self.refused.append(slot)
            return
        if key in self.slots:
            return
        self.slots[key] = slot
        if slot.value is GONE:
            if isinstance(slot, ClosureCell):
                self.refuse(slot, "holds nothing yet", "give it a value before")
            return
        self._fresh.append(slot)
        # another thread may be recording
        found = MATH.original(NUMPY.original(numpy_views.original_of(slot.value)))
        value = slot.value = slot.given = unproxied(numbers_found.original_of(found))
        if isinstance(value, str) and looks_up(value):
            self.refuse(slot, "is a format string that looks up attributes", "use an f-string")
        elif id(value) in _ACCESSORS:  # by another name: code with its own name is refused
            self.refuse(
                slot, "reaches attributes by names that a replay cannot follow", "name the attributes"
            )
        if isinstance(value, (*VALUES, *FIXED, np.ndarray)) and is_of_own_class(value):
            what = f"is a {type(value).__qualname__}, a value that may have attributes"
            self.refuse(slot, what, "keep them in an object that holds the value")
            return
        if isinstance(value, (NDArray, *VALUES)):
            return
        self.code.note_name(slot)
        known = self._vars.get(id(value))
        if known is not None:
            slot.alias = known
            return
        for group, follow in self._KINDS:
            if isinstance(value, group):
                follow(self, slot)
                return
        kind = type(value)
        if hasattr(kind, "__next__"):
            what = f"is an iterator ({kind.__name__}), which every call moves on"
            self.refuse(slot, what, "pass what it yields as an argument")
        elif kind.__module__.startswith("numpy.random") or not kinds.is_python_class(kind):
            self.refuse(slot, f"is a {kind.__module__}.{kind.__name__}, whose state a replay cannot check")
        else:
            self._object(slot)

    def _bind(self, slot: Slot) -> Expr:
        """Bind the variable for an object in a replay."""
        if slot.var is None:
            slot.var = Var("h", slot.value, slot.path) if isinstance(slot.place, Derived) else slot.place
        self._vars[id(slot.value)] = slot.var
        return slot.var

    def _part(self, slot: Slot, value: Any, name: str) -> None:
        """Visit something that belongs to a value and cannot be assigned."""
        place = attribute(self._bind(slot), name)
        self.visit(Slot(slot.value, name, place, f"{slot.path}.{name}", value))

    def _fixed(self, slot: Slot) -> None:
        value = slot.value
        is_bound = isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType)
        if is_bound and not isinstance(value.__self__, types.ModuleType | type):
            self._part(slot, value.__self__, "__self__")

    def _function(self, slot: Slot) -> None:
        function = slot.value
        base = Const(function) if slot.guarded else self._bind(slot)
        if trusted(function.__globals__.get("__name__")):
            self._closure(function, base)
            return
        self.seen.append(SeenFunction(function, base, slot.path))
        self._functions.setdefault(function.__code__, []).append((function, base))
        if function.__code__ in self.code.ran:
            self._closure(function, base)

    def _closure(self, function: Any, base: Expr) -> None:
        """Visit what a function captured, and its defaults."""
        for index, cell in enumerate(function.__closure__ or ()):
            variable = function.__code__.co_freevars[index]
            place = attribute(item(attribute(base, "__closure__"), index), "cell_contents")
            held = ClosureCell(cell, variable, place, variable, GONE)
            held.value = held.given = held.read()
            if not trusted(function.__globals__.get("__name__")) or _is_users(held.value):
                self.visit(held)
        for index, default in enumerate(function.__defaults__ or ()):
            path = f"default {index} of {function.__name__}"
            self.visit(Slot(function, index, item(attribute(base, "__defaults__"), index), path, default))
        for name, default in list((function.__kwdefaults__ or {}).items()):
            place = item(attribute(base, "__kwdefaults__"), name)
            self.visit(Item(function.__kwdefaults__, name, place, name, default))

    def _names(self, found: Facts, namespace: dict[str, Any]) -> None:
        """Visit the globals among the names in a code object, and the modules that it imports."""
        self._imports(found.imports, namespace)
        asks = found.compares_types and "type" not in namespace
        asks |= any(namespace.get(name) is type for name in found.globals)
        if asks and not self.numbers.concrete and not kinds.is_like_users(namespace.get("__name__") or ""):
            raise Restart(concrete=True)
        holder = Const(namespace)
        for name in sorted((found.globals & namespace.keys()) | found.written):
            self.visit(Global(namespace, name, item(holder, name), name, namespace.get(name, GONE)))
        missing = set(found.globals - namespace.keys())
        if missing:
            self.shadows.append((holder, missing))
        for name in sorted(missing & vars(builtins).keys()):
            if is_added(value := vars(builtins)[name]):
                place = item(Const(vars(builtins)), name)
                self.visit(Global(vars(builtins), name, place, name, value))

    def _imports(self, imports: frozenset[tuple[int, str]], namespace: dict[str, Any]) -> None:
        """Visit modules that code imports, as far as they are loaded."""
        for level, name in sorted(imports):
            if level:
                package = ".".join((namespace.get("__package__") or "").split(".")[: 1 - level or None])
                name = f"{package}.{name}" if name else package
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                full = ".".join(parts[:end])
                if full in sys.modules:
                    place = item(Const(sys.modules), full)
                    self.visit(Item(sys.modules, full, place, full, sys.modules[full]))

    def _method(self, slot: Slot) -> None:
        self._part(slot, slot.value.__self__, "__self__")
        self._part(slot, slot.value.__func__, "__func__")

    def _partial(self, slot: Slot) -> None:
        self.seen.append(SeenFunction(slot.value, self._bind(slot), slot.path))
        for part in ("func", "args", "keywords"):
            self._part(slot, getattr(slot.value, part), part)

    def _wrapped(self, slot: Slot) -> None:
        self.seen.append(SeenFunction(slot.value, self._bind(slot), slot.path))
        self._part(slot, slot.value.__wrapped__, "__wrapped__")

    def _module(self, slot: Slot) -> None:
        module = slot.value
        if module.__name__.startswith("numpy.random"):
            self.refuse(slot, "gives other numbers on every call", "use tj.random")
        else:
            self.seen.append(SeenModule(module, self._bind(slot), slot.path))

    def _class(self, slot: Slot) -> None:
        if slot.holder is not None and hasattr(slot.value, "__del__"):
            what = "has a finalizer (__del__), which would run for the recording, too"
            self.refuse(slot, what, "make its objects outside of the function")
        if opens(slot.value):
            self.refuse(slot, "opens something whenever it is called", REMEDY)
        elif not trusted(type(slot.value).__module__):
            self.refuse(slot, f"is a class with a metaclass ({type(slot.value).__qualname__})")
        elif not trusted(slot.value.__module__):
            self.seen.append(SeenClass(slot.value, self._bind(slot), slot.path))

    def _object(self, slot: Slot) -> None:
        if id(slot.value) in self.rebuilt:
            raise Restart(reached=slot.value)
        cls, var = type(slot.value), self._bind(slot)
        if (method := own_attributes(cls)) is not None and not trusted(cls.__module__):
            self.refuse(
                slot, f"is a {cls.__qualname__}, which finds or stores attributes in its own way ({method})"
            )
            return
        self.seen.append(SeenObject(slot.value, var, slot.path))
        if not trusted(cls.__module__):
            self.visit(class_slot(cls))

    def _container(self, slot: Slot) -> None:
        value = slot.value
        if id(value) in self.rebuilt:
            raise Restart(reached=value)
        var = self._bind(slot)
        if own_items(type(value)) is not None:
            self.refuse(slot, f"is a {type(value).__qualname__}, which finds or stores items in its own way")
            return
        content = content_of(value)  # at one moment: others may change it
        items = list(content.values()) if isinstance(content, dict) else list(content)
        if isinstance(content, dict) and not all(map(is_value, content)):
            self.refuse(
                slot, "has keys that are objects, which a replay cannot check", "use strings or numbers"
            )
            return
        one_of_each = {type(each): each for each in items}.values()
        plain = all(isinstance(each, VALUES) and not is_of_own_class(each) for each in one_of_each)
        whole = isinstance(value, set | frozenset) or (
            plain and len(items) > (STORED if self.code.stores_in(content) else MOST_PLAIN)
        )
        if not (plain or all(map(is_value, items)) if whole else len(items) <= ITEMS):
            what = f"holds {len(items)} objects, too many to check"
            self.refuse(slot, what, "pass what is used as an argument")
            return
        self.slots["content", var.key] = Content(value, "content", var, slot.path, content, var, deep=whole)
        if factory_of(value) is not None:
            self._part(slot, factory_of(value), "default_factory")
        if not trusted(type(value).__module__) or hasattr(value, "__dict__"):
            self._object(slot)
        if whole:
            return
        kind = Slot if isinstance(value, tuple) else Item
        for key, held in content.items() if isinstance(content, dict) else enumerate(items):
            self.visit(kind(value, key, item(var, key), f"{slot.path}[{key!r}]", held))

    def _ndarray(self, slot: Slot) -> None:
        self._bind(slot)
        if slot.value.dtype.hasobject:
            self.refuse(slot, "is a NumPy array of objects, which a replay cannot check")

    def refuse(self, slot: Slot, what: str, remedy: str = OUTSIDE) -> None:
        """Note a slot that a replay cannot check (see `Slot.refuse`)."""
        self.refused.append(slot.refuse(what, remedy))

    _KINDS: ClassVar[list[tuple[Any, Callable[[Reach, Slot], Any]]]] = [
        (types.FunctionType, _function),
        (types.MethodType, _method),
        (FIXED, _fixed),
        (functools.partial, _partial),
        (types.ModuleType, _module),
        (type, _class),
        ((dict, list, tuple, set, frozenset, collections.deque), _container),
        (np.ndarray, _ndarray),
        (kinds.Transparent, _wrapped),
    ]

    def objects(self) -> list[tuple[type, Var]]:
        """Types and variables of objects and containers that were found."""
        known = {id(var): (type(var.value), var) for var in self._vars.values() if isinstance(var, Var)}
        return list(known.values())

    def knows(self, value: Any) -> bool:
        """Whether this very object was found, so that the slots tell how it changes."""
        return id(value) in self._vars

    def var_of(self, value: Any) -> Expr | None:
        """The expression for this very object in a replay; None if there is none."""
        return self._vars.get(id(value))


def _is_users(value: Any) -> bool:
    """Whether something that the library's code captured is the user's."""
    called = (types.FunctionType, types.MethodType, functools.partial, kinds.Transparent, NDArray)
    return isinstance(value, called) or not trusted(type(value).__module__)


_ACCESSORS = frozenset(
    map(id, (getattr, hasattr, setattr, delattr, vars, dir, operator.attrgetter, operator.methodcaller))
)
"""Functions that reach attributes whose names no code mentions."""
