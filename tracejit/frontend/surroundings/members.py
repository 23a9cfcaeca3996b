"""Functions, modules, classes and objects whose attributes a traced body may ask for.

Of each, the names that some code mentions are looked up once (`Seen.look_up`), before that code runs. What is
found is a slot that the visitor goes on from; what is not is noted: a replay checks that it is still absent.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python import kinds
from tracejit.frontend.python.content import GONE, Attributes, is_computed, is_found_plainly
from tracejit.frontend.python.kinds import IDENTITY, PLAIN, is_tree, trusted
from tracejit.frontend.python.purity import impure, opens, runs_library_code
from tracejit.frontend.signature.program import Const, Expr, Form, attribute, item
from tracejit.frontend.signature.slots import Attribute, ClassItem, Slot

if TYPE_CHECKING:
    from tracejit.frontend.surroundings.reach import Visitor

QUIET = frozenset(
    {"__init__", "__new__", "__repr__", "__str__", "__hash__", "__eq__", "__reduce__", "__del__"}
)
"""Methods that classes of data have, too. What they assign is rarely changed later."""

_METHODS = (types.FunctionType, staticmethod, classmethod)
_DESCRIPTORS = (property, functools.cached_property, functools._lru_cache_wrapper, kinds.Transparent)
"""Descriptors besides functions that are followed."""
_REFUSED = (functools.partialmethod, functools.singledispatchmethod)
"""Descriptors of Python's library that call code of the user's, and are not."""


class Seen:
    """Something whose attributes are followed; `var` stands for it in a replay.

    names:  what was looked up so far.
    absent: of these, what it does not have.
    """

    def __init__(self, value: Any, var: Expr, path: str):
        self.value, self.var, self.path = value, var, path
        self.names: set[str] = set()
        self.absent: set[str] = set()
        self._always: AbstractSet[str] = self._implied()
        self._reach = (-1, -1)  # how many names were known when they were last looked up

    def namespace(self) -> Any:
        """Its own attributes, by name."""
        return vars(self.value)

    def place(self, name: str) -> Expr:
        """The expression for one of its own attributes in a replay."""
        return attribute(self.var, name)

    def look_up(self, visitor: Visitor) -> None:
        """Visit what the names hold that code mentioned since the last time."""
        reach = len(visitor.names), len(visitor.peeked_names)
        if reach != self._reach:
            self._reach = reach
            names = (visitor.names | self._always) - self.names
            self.names |= names
            self._find(names, visitor)

    def _implied(self) -> AbstractSet[str]:
        """Names that Python and its library use without saying them."""
        return frozenset()

    def _find(self, names: set[str], visitor: Visitor) -> None:
        raise NotImplementedError


class SeenFunction(Seen):
    """A function: somebody may have given it attributes (``step.calls += 1``)."""

    def namespace(self) -> Any:
        return Attributes(self.value).namespace()

    def _find(self, names: set[str], visitor: Visitor) -> None:
        namespace = self.namespace()
        private = "_" if isinstance(self.value, kinds.Transparent) else "__"
        for name in sorted(names):
            if name in namespace:
                if not name.startswith(private):
                    _visit(self, name, namespace[name], visitor)
            elif not name.startswith(private):
                self.absent.add(name)


class SeenModule(Seen):
    """A module; of Python's library, only data counts, and functions that have effects."""

    def _implied(self) -> AbstractSet[str]:
        return {"__getattr__"} & vars(self.value).keys()

    def place(self, name: str) -> Expr:
        if "__getattr__" in vars(self.value):  # would be called for a name that is gone
            return item(Form("{}.__dict__", self.var), name)
        return super().place(name)

    def _find(self, names: set[str], visitor: Visitor) -> None:
        module, namespace = self.value.__name__, vars(self.value)
        is_library = trusted(module)
        if not is_library:
            self.absent |= names - namespace.keys()
        for name in sorted(names & namespace.keys()):
            found = namespace[name]
            counts = not is_library or (module == "tracejit" and name == "optim")
            if not counts and module in sys.stdlib_module_names:
                is_function = isinstance(found, types.BuiltinFunctionType)
                has_effect = impure(found) is not None if is_function else opens(found)
                counts = has_effect or isinstance(found, (*PLAIN, dict, list, set))
            if counts:
                _visit(self, name, found, visitor)


class SeenObject(Seen):
    """An instance of some class. What its class has is found there.

    walked: the names of all its attributes, if code may walk over them.
    """

    def __init__(self, value: Any, var: Expr, path: str):
        super().__init__(value, var, path)
        self.walked = tuple(self.namespace()) if kinds.is_seen_as_tree(value) else None

    def _implied(self) -> AbstractSet[str]:
        if runs_library_code(type(self.value)) or kinds.is_seen_as_tree(self.value):
            return set(Attributes(self.value).names())
        return {f.name for f in dataclasses.fields(self.value)} if is_tree(self.value) else frozenset()

    def namespace(self) -> Any:
        return Attributes(self.value).namespace()

    def place(self, name: str) -> Expr:
        """By another object of the class, which may not hold it, no code of the user's is called."""
        cls = type(self.value)
        if is_found_plainly(cls, name):
            if not is_computed(cls, name):
                return super().place(name)
            if name in self.namespace():
                return item(Form("{}.__dict__", self.var), name)
        return item(Form("Attributes({})", self.var), name)

    def _find(self, names: set[str], visitor: Visitor) -> None:
        cls, held = type(self.value), Attributes(self.value)
        is_closed = trusted(cls.__module__) and not kinds.is_record(cls)
        for name in sorted(names):
            found = held.get(name)
            if name == "__class__":
                continue
            if found is GONE and held.is_slot(name):
                empty = Attribute(self.value, name, self.place(name), f"{self.path}.{name}", GONE)
                visitor.slots.setdefault(empty.place.key, empty)
            elif found is GONE:
                self.absent.add(name)
            elif not is_closed:
                _visit(self, name, found, visitor)
            else:
                self._closed(name, found, visitor)

    def _closed(self, name: str, found: Any, visitor: Visitor) -> None:
        """An attribute of an object whose class is of Python's library, NumPy or this package."""
        slot = Slot(self.value, name, self.place(name), f"{self.path}.{name}", found)
        if isinstance(found, (NDArray, *PLAIN, *IDENTITY)):
            visitor.visit(slot)
            return
        what = f"{self.path} is a {type(self.value).__qualname__}, whose state a replay cannot check"
        visitor.slots[slot.place.key] = slot
        visitor.refuse(slot, what, "use it outside and pass the result as an argument")


class SeenClass(Seen):
    """A class of a user's: what code names, and the methods by which Python's operators find it."""

    def _implied(self) -> AbstractSet[str]:
        held = [(name, value) for base in _users_bases(self.value) for name, value in vars(base).items()]
        return {n for n, value in held if n.startswith("__") and isinstance(value, _METHODS)} - QUIET

    def _find(self, names: set[str], visitor: Visitor) -> None:
        bases = _users_bases(self.value)
        for name in sorted(names):
            base = next((base for base in self.value.__mro__ if name in vars(base)), None)
            if base in bases:
                self._inherited(name, base, visitor)
            elif base is None:
                self.absent.add(name)
        for name in visitor.peeked_names - self.names:
            method = inspect.getattr_static(self.value, name, None)
            if isinstance(method, types.FunctionType):
                visitor.peek(method)
        if "__match_args__" in names:
            fields = set(inspect.getattr_static(self.value, "__match_args__", ()))
            visitor.names |= fields
            visitor.matched |= fields
        for base in bases[1:]:
            visitor.visit_class(base)

    def _inherited(self, name: str, base: type, visitor: Visitor) -> None:
        """Visit what the class has from `base`, or itself. Data stays where it is: a class that rebinds what
        it inherits has an attribute of its own.
        """
        held = vars(base)[name]
        if base is self.value or hasattr(type(held), "__get__"):
            self._own(name, held, base, visitor)
            return
        self.absent.add(name)
        visitor.visit_class(base)

    def _own(self, name: str, held: Any, base: type, visitor: Visitor) -> None:
        path = f"{self.path}.{name}"
        if isinstance(held, types.FunctionType) or not hasattr(type(held), "__get__"):
            _visit(self, name, held, visitor)
        elif isinstance(held, staticmethod | classmethod):
            found = getattr(self.value, name)
            step = ".__func__" if isinstance(held, classmethod) else ""
            place = attribute(self.var, name + step)
            visitor.visit(Slot(self.value, name, place, path, getattr(found, "__func__", found)))
        elif isinstance(held, _REFUSED) or not trusted(type(held).__module__):
            what = f"{path} is a {type(held).__qualname__}, a descriptor that a replay cannot follow"
            visitor.refuse(ClassItem(base, name, self.var, path, held), what, "make it a property")
        elif isinstance(held, _DESCRIPTORS):
            place = item(Form("{}.__dict__", self.var if base is self.value else Const(base)), name)
            visitor.visit(ClassItem(base, name, place, path, held))
            for part in ("fget", "fset", "func"):
                if isinstance(held, property | functools.cached_property) and hasattr(held, part):
                    visitor.visit(Slot(held, part, attribute(place, part), path, getattr(held, part)))


def _users_bases(cls: type) -> list[type]:
    """The classes of the user's from which `cls` inherits; it comes first."""
    return [base for base in cls.__mro__ if not trusted(base.__module__)]


def _visit(seen: Seen, name: str, found: Any, visitor: Visitor) -> None:
    visitor.visit(Attribute(seen.value, name, seen.place(name), f"{seen.path}.{name}", found))
