"""Reachability of a traced body: globals, closures, attributes.

The body's surroundings are over-approximated by *names*: just before a Python function runs for the first
time, every global, closure cell and attribute whose name occurs in its code (`bytecode.facts`) is visited.
All values that code can change are visited before that code runs, so a visit sees the state before the call.
Each visited location is a `Slot`:

- arrays are inputs by reference: a replay reads the slot again;
- built-in values (numbers, strings, flags) are guarded: a change retraces. Numbers that some code assigns
  (``self.t += 1``) are run-time numbers instead: the slot then contains a proxy;
- functions are guarded by identity, and by their code if it ran; the values that they name are visited before
  they first run;
- containers are guarded by keys or length, and their items are slots; sets and long tables by content;
- objects are guarded by type, by the attributes that code names, and by the absence of missing attributes;
- values that cannot be checked (iterators, NumPy's generators, objects written in C) make the function
  piecewise.

An object reached a second time is guarded to be the same object. Code of the standard library, NumPy and this
package is trusted: its names are not visited.
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
    Followed,
    FollowedClass,
    FollowedFunction,
    FollowedModule,
    FollowedObject,
    class_slot,
)
from tracejit.frontend.surroundings.module_stand_ins import StandIns
from tracejit.frontend.surroundings.numpy_module import NUMPY

MAX_VALUES = 8  # items of built-in types that are checked one by one; longer ones by their content
MAX_STORED_VALUES = 64  # the same limit for containers of which code stores items
MAX_OBJECTS = 4096  # other items; larger containers cannot be checked


class Reach:
    """The values that a body can reach by name, in their state before the body could change them.

    code:     the code that the body runs.
    random:   the stand-ins for `numpy.random`, if the body may create generators.
    rebuilt:  ids of the caller's containers of which the body receives copies.
    slots:    the slots visited, by the key of their expression; closure cells by identity.
    refused:  slots that a replay cannot check.
    followed: values whose attributes are followed.
    shadows:  pairs of globals and names of builtins that are absent from these globals.
    """

    def __init__(self, code: ExecutedCode, numbers: Numbers, rebuilt: Container[int], random: StandIns):
        self.code, self.numbers, self.rebuilt, self.random = code, numbers, rebuilt, random
        self.slots: dict[Any, Slot] = {}
        self.refused: list[Slot] = []
        self.followed: list[Followed] = []
        self.shadows: list[tuple[Expr, set[str]]] = []
        self._fresh: list[Slot] = []  # visited since the body last ran
        self._functions: dict[types.CodeType, list[tuple[Any, Expr]]] = {}  # functions reached by name
        self._vars: dict[int, Expr] = {}

    def scan(self, function: Any, objects: list[tuple[Expr, str, Any]]) -> None:
        """Visit the function and the `objects` (operand, path, object) from which the body starts."""
        name = getattr(function, "__name__", type(function).__name__)
        self.visit(Slot(None, name, Const(function), name, function, guarded=False))
        for operand, path, value in objects:
            self.visit(Slot(None, path, operand, path, value, guarded=False))
        self._look_up()

    def visit_code(self, code: types.CodeType, namespace: dict[str, Any]) -> bool:
        """Visit the values named by a Python function that is about to run for the first time.

        Return whether its closure is known: the function was reached by name, or created by such a function.
        """
        is_defined = code in self.code.defined
        self._names(self.code.add(code), namespace)
        functions = self._functions.get(code, ())
        for function, base in functions:
            self._closure(function, base)
        self._look_up()
        return is_defined or bool(functions) or not set(code.co_freevars) - {"__class__"}

    def _look_up(self) -> None:
        """Look up the mentioned names on the followed objects until there are no new names and objects."""
        while True:
            before = len(self.code.mentions.attributes), len(self.followed)
            for value in list(self.followed):
                for slot in value.look_up(self.code.mentions):
                    self.visit(slot)
            if before == (len(self.code.mentions.attributes), len(self.followed)):
                return

    def take_fresh(self) -> list[Slot]:
        """Return the slots visited since the last call of this method."""
        fresh, self._fresh = self._fresh, []
        return fresh

    # -- visiting --------------------------------------------------------------------------------------------

    def visit(self, slot: Slot) -> None:
        """Add a slot, and visit the slots that are reachable from its value."""
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
                self.refuse(slot, "has no value yet", "assign it before the call")
            return
        self._fresh.append(slot)
        # The slot may contain a stand-in installed by another thread that is recording.
        original = MATH.original(NUMPY.original(self.random.original(numpy_views.original_of(slot.value))))
        value = slot.value = slot.given = unproxied(numbers_found.original_of(original))
        if isinstance(value, str) and looks_up(value):
            self.refuse(slot, "is a format string that looks up attributes", "use an f-string")
        elif id(value) in _ACCESSORS:  # under another name: code that mentions its own name is refused
            self.refuse(
                slot, "accesses attributes by names that a replay cannot follow", "name the attributes"
            )
        if isinstance(value, (*VALUES, *FIXED, np.ndarray)) and is_of_own_class(value):
            what = f"is a {type(value).__qualname__}, a value that may have attributes"
            self.refuse(slot, what, "keep them in an object that holds the value")
            return
        if isinstance(value, (NDArray, *VALUES)):
            return
        self.code.note_name(slot)
        if self.random.stand_in(value) is not None and self._is_replaced(slot):
            self._fixed(slot)
            return
        alias = self._vars.get(id(value))
        if alias is not None:
            slot.alias = alias
            return
        for group, follow in self._KINDS:
            if isinstance(value, group):
                follow(self, slot)
                return
        kind = type(value)
        if hasattr(kind, "__next__"):
            what = f"is an iterator ({kind.__name__}), which every call advances"
            self.refuse(slot, what, "pass the items it yields as arguments")
        elif kind.__module__.startswith("numpy.random") or not kinds.is_python_class(kind):
            self.refuse(slot, f"is a {kind.__module__}.{kind.__name__}, whose state a replay cannot check")
        else:
            self._object(slot)

    def _is_replaced(self, slot: Slot) -> bool:
        """Whether the body finds a stand-in for `numpy.random.default_rng` there (see `random_module`)."""
        is_default_rng = getattr(slot.value, "__name__", None) == "default_rng"
        is_global = isinstance(slot, Global) and slot.assignable
        return is_default_rng and (is_global or slot.holder is np.random)

    def _bind(self, slot: Slot) -> Expr:
        """Return the variable to which a replay binds the slot's value, creating it if needed."""
        if slot.var is None:
            slot.var = Var("h", slot.value, slot.path) if isinstance(slot.place, Derived) else slot.place
        self._vars[id(slot.value)] = slot.var
        return slot.var

    def _component(self, slot: Slot, value: Any, name: str) -> None:
        """Visit a component of the slot's value that cannot be assigned."""
        expression = attribute(self._bind(slot), name)
        self.visit(Slot(slot.value, name, expression, f"{slot.path}.{name}", value))

    def _fixed(self, slot: Slot) -> None:
        value = slot.value
        is_bound = isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType)
        if is_bound and not isinstance(value.__self__, types.ModuleType | type):
            self._component(slot, value.__self__, "__self__")

    def _function(self, slot: Slot) -> None:
        function = slot.value
        base = Const(function) if slot.guarded else self._bind(slot)
        if trusted(function.__globals__.get("__name__")):
            self._closure(function, base)
            return
        self.followed.append(FollowedFunction(function, base, slot.path))
        self._functions.setdefault(function.__code__, []).append((function, base))
        if function.__code__ in self.code.ran:
            self._closure(function, base)

    def _closure(self, function: Any, base: Expr) -> None:
        """Visit the variables that a function captured, and its defaults."""
        for index, cell in enumerate(function.__closure__ or ()):
            variable = function.__code__.co_freevars[index]
            expression = attribute(item(attribute(base, "__closure__"), index), "cell_contents")
            slot = ClosureCell(cell, variable, expression, variable, GONE)
            slot.value = slot.given = slot.read()
            if not trusted(function.__globals__.get("__name__")) or _is_users(slot.value):
                self.visit(slot)
        for index, default in enumerate(function.__defaults__ or ()):
            path = f"default {index} of {function.__name__}"
            self.visit(Slot(function, index, item(attribute(base, "__defaults__"), index), path, default))
        for name, default in list((function.__kwdefaults__ or {}).items()):
            expression = item(attribute(base, "__kwdefaults__"), name)
            self.visit(Item(function.__kwdefaults__, name, expression, name, default))

    def _names(self, names: Facts, namespace: dict[str, Any]) -> None:
        """Visit the globals named by a code object, and the modules that it imports."""
        self._imports(names.imports, namespace)
        asks_type = names.compares_types and "type" not in namespace
        asks_type |= any(namespace.get(name) is type for name in names.globals)
        if (
            asks_type
            and not self.numbers.concrete
            and not kinds.is_like_users(namespace.get("__name__") or "")
        ):
            raise Restart(concrete=True)
        holder = Const(namespace)
        for name in sorted((names.globals & namespace.keys()) | names.written):
            self.visit(Global(namespace, name, item(holder, name), name, namespace.get(name, GONE)))
        missing = set(names.globals - namespace.keys())
        if missing:
            self.shadows.append((holder, missing))
        for name in sorted(missing & vars(builtins).keys()):
            if is_added(value := vars(builtins)[name]):
                expression = item(Const(vars(builtins)), name)
                self.visit(Global(vars(builtins), name, expression, name, value))

    def _imports(self, imports: frozenset[tuple[int, str]], namespace: dict[str, Any]) -> None:
        """Visit the modules that code imports, if they are loaded."""
        for level, name in sorted(imports):
            if level:
                package = ".".join((namespace.get("__package__") or "").split(".")[: 1 - level or None])
                name = f"{package}.{name}" if name else package
            components = name.split(".")
            for end in range(1, len(components) + 1):
                full_name = ".".join(components[:end])
                if full_name in sys.modules:
                    expression = item(Const(sys.modules), full_name)
                    self.visit(Item(sys.modules, full_name, expression, full_name, sys.modules[full_name]))

    def _method(self, slot: Slot) -> None:
        self._component(slot, slot.value.__self__, "__self__")
        self._component(slot, slot.value.__func__, "__func__")

    def _partial(self, slot: Slot) -> None:
        self.followed.append(FollowedFunction(slot.value, self._bind(slot), slot.path))
        for name in ("func", "args", "keywords"):
            self._component(slot, getattr(slot.value, name), name)

    def _wrapped(self, slot: Slot) -> None:
        self.followed.append(FollowedFunction(slot.value, self._bind(slot), slot.path))
        self._component(slot, slot.value.__wrapped__, "__wrapped__")

    def _module(self, slot: Slot) -> None:
        module = slot.value
        is_random = module.__name__.startswith("numpy.random")
        if is_random and not (slot.holder is np and self.random.stand_in(module) is not None):
            self.refuse(slot, "gives other numbers on every call", "use tj.random")
        else:
            self.followed.append(FollowedModule(module, self._bind(slot), slot.path))

    def _class(self, slot: Slot) -> None:
        if slot.holder is not None and hasattr(slot.value, "__del__"):
            what = "has a finalizer (__del__), which would run for the recording, too"
            self.refuse(slot, what, "create its objects outside of the function")
        if opens(slot.value):
            self.refuse(slot, "opens something whenever it is called", REMEDY)
        elif not trusted(type(slot.value).__module__):
            self.refuse(slot, f"is a class with a metaclass ({type(slot.value).__qualname__})")
        elif not trusted(slot.value.__module__):
            self.followed.append(FollowedClass(slot.value, self._bind(slot), slot.path))

    def _object(self, slot: Slot) -> None:
        if id(slot.value) in self.rebuilt:
            raise Restart(reached=slot.value)
        cls, var = type(slot.value), self._bind(slot)
        if (method := own_attributes(cls)) is not None and not trusted(cls.__module__):
            self.refuse(
                slot, f"is a {cls.__qualname__}, which overrides how attributes are read or stored ({method})"
            )
            return
        self.followed.append(FollowedObject(slot.value, var, slot.path))
        if not trusted(cls.__module__):
            self.visit(class_slot(cls))

    def _container(self, slot: Slot) -> None:
        value = slot.value
        if id(value) in self.rebuilt:
            raise Restart(reached=value)
        var = self._bind(slot)
        if own_items(type(value)) is not None:
            self.refuse(
                slot, f"is a {type(value).__qualname__}, which overrides how items are read or stored"
            )
            return
        content = content_of(value)  # a snapshot: other threads may change the container
        items = list(content.values()) if isinstance(content, dict) else list(content)
        if isinstance(content, dict) and not all(map(is_value, content)):
            self.refuse(
                slot, "has keys that are objects, which a replay cannot check", "use strings or numbers"
            )
            return
        one_per_type = {type(each): each for each in items}.values()
        are_values = all(isinstance(each, VALUES) and not is_of_own_class(each) for each in one_per_type)
        by_content = isinstance(value, set | frozenset) or (
            are_values and len(items) > (MAX_STORED_VALUES if self.code.stores_in(content) else MAX_VALUES)
        )
        if not (are_values or all(map(is_value, items)) if by_content else len(items) <= MAX_OBJECTS):
            what = f"contains {len(items)} objects, too many to check"
            self.refuse(slot, what, "pass the objects that are used as arguments")
            return
        self.slots["content", var.key] = Content(
            value, "content", var, slot.path, content, var, deep=by_content
        )
        if factory_of(value) is not None:
            self._component(slot, factory_of(value), "default_factory")
        if not trusted(type(value).__module__) or hasattr(value, "__dict__"):
            self._object(slot)
        if by_content:
            return
        kind = Slot if isinstance(value, tuple) else Item
        for key, child in content.items() if isinstance(content, dict) else enumerate(items):
            self.visit(kind(value, key, item(var, key), f"{slot.path}[{key!r}]", child))

    def _ndarray(self, slot: Slot) -> None:
        self._bind(slot)
        if slot.value.dtype.hasobject:
            self.refuse(slot, "is a NumPy array of objects, which a replay cannot check")

    def refuse(self, slot: Slot, what: str, remedy: str = OUTSIDE) -> None:
        """Register a slot that a replay cannot check (see `Slot.refuse`)."""
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
        """Return the types and variables of the objects and containers that were visited."""
        by_variable = {id(var): (type(var.value), var) for var in self._vars.values() if isinstance(var, Var)}
        return list(by_variable.values())

    def knows(self, value: Any) -> bool:
        """Return whether this very object was visited, so that changes to it are visible in the slots."""
        return id(value) in self._vars

    def var_of(self, value: Any) -> Expr | None:
        """Return the expression for this very object in a replay, or None."""
        return self._vars.get(id(value))


def _is_users(value: Any) -> bool:
    """Return whether a value captured by library code belongs to the user."""
    called = (types.FunctionType, types.MethodType, functools.partial, kinds.Transparent, NDArray)
    return isinstance(value, called) or not trusted(type(value).__module__)


_ACCESSORS = frozenset(
    map(id, (getattr, hasattr, setattr, delattr, vars, dir, operator.attrgetter, operator.methodcaller))
)
"""Functions that access attributes whose names no code mentions."""
