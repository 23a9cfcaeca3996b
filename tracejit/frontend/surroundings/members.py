"""Functions, modules, classes and objects whose attributes a traced body may ask for.

The names that some code mentions are looked up on each of them once (`Seen.look_up`), before that code runs.
Each name that is found is a slot; each that is not is noted, and a replay checks that it is still absent.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python import kinds
from tracejit.frontend.python.bytecode import Mentions
from tracejit.frontend.python.content import GONE, Attributes, is_computed, is_shadowed
from tracejit.frontend.python.kinds import IDENTITY, VALUES, is_tree, trusted
from tracejit.frontend.python.purity import impure, opens, runs_library_code
from tracejit.frontend.signature.expressions import (
    Const,
    Expr,
    attribute,
    item,
)
from tracejit.frontend.signature.program import ReplayProgram, Rule
from tracejit.frontend.signature.slots import Attribute, ClassItem, Slot
from tracejit.frontend.surroundings.executed import ExecutedCode

QUIET = frozenset(
    {"__init__", "__new__", "__repr__", "__str__", "__hash__", "__eq__", "__reduce__", "__del__"}
)
"""Methods that most classes have and that rarely run: each is checked only if it ran."""

_METHODS = (types.FunctionType, staticmethod, classmethod)
_DESCRIPTORS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset"),
    functools.cached_property: ("func",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    kinds.Transparent: (),
}
"""Descriptors besides functions that are followed, and the functions that they call."""
_REFUSED = (functools.partialmethod, functools.singledispatchmethod, functools._lru_cache_wrapper)
"""Descriptors of Python's library that call code of the user's, and are not followed."""


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
        self._known = -1  # how many names were known when they were last looked up

    def namespace(self) -> Any:
        """Its own attributes, by name."""
        return vars(self.value)

    def place(self, name: str) -> Expr:
        """The expression for one of its own attributes in a replay."""
        return attribute(self.var, name)

    def look_up(self, mentions: Mentions) -> Iterable[Slot]:
        """Find the slots of the names that code mentioned since the last time. Each is made when it is asked
        for, when the ones before it have been visited.
        """
        if len(mentions.attributes) == self._known:
            return ()
        self._known = len(mentions.attributes)
        names = (mentions.attributes | self._always) - self.names
        self.names |= names
        return self._find(names, mentions)

    def check(self, code: ExecutedCode, program: ReplayProgram) -> None:
        """Require what `look_up` found besides slots: that names are still absent."""
        missing = self.absent & self._asked(code.mentions)
        if missing and hasattr(self.value, "__dict__"):
            given = Const(frozenset(missing))
            program.require(Rule.NONE_OF_KEYS, attribute(self.var, "__dict__"), given)

    def _asked(self, mentions: Mentions) -> AbstractSet[str]:
        """Names of attributes that code may look for here."""
        return mentions.attributes

    def _implied(self) -> AbstractSet[str]:
        """Names that Python and its library use though no code mentions them."""
        return frozenset()

    def _find(self, names: set[str], mentions: Mentions) -> Iterator[Slot]:
        raise NotImplementedError

    def _slot(self, name: str, found: Any) -> Slot:
        return Attribute(self.value, name, self.place(name), f"{self.path}.{name}", found)


class SeenFunction(Seen):
    """A function, which may have attributes (``step.calls += 1``)."""

    def namespace(self) -> Any:
        return Attributes(self.value).namespace()

    def _asked(self, mentions: Mentions) -> AbstractSet[str]:
        """Names that code may ask of a function: few, as functions are rarely asked."""
        asked = mentions.uses_of([getattr(self.value, "__name__", "")])
        return mentions.attributes & (mentions.stored | mentions.strings | asked)

    def _find(self, names: set[str], mentions: Mentions) -> Iterator[Slot]:
        namespace = self.namespace()
        private = "_" if isinstance(self.value, kinds.Transparent) else "__"
        for name in sorted(names):
            if name in namespace:
                if not name.startswith(private):
                    yield self._slot(name, namespace[name])
            elif not name.startswith(private):
                self.absent.add(name)


class SeenModule(Seen):
    """A module; of Python's library, only data counts, and functions that have effects."""

    def _implied(self) -> AbstractSet[str]:
        return {"__getattr__"} & vars(self.value).keys()

    def place(self, name: str) -> Expr:
        if "__getattr__" in vars(self.value):  # which is called for a missing name
            return item(attribute(self.var, "__dict__"), name)
        return super().place(name)

    def _find(self, names: set[str], mentions: Mentions) -> Iterator[Slot]:
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
                counts = has_effect or isinstance(found, (*VALUES, dict, list, set))
            if counts:
                yield self._slot(name, found)


class SeenObject(Seen):
    """An instance of some class, which is followed by itself.

    walked: the names of all its attributes, if code may walk over them.
    """

    def __init__(self, value: Any, var: Expr, path: str):
        super().__init__(value, var, path)
        self.walked = tuple(self.namespace()) if kinds.is_seen_as_tree(value) else None

    def check(self, code: ExecutedCode, program: ReplayProgram) -> None:
        super().check(code, program)
        if self.walked is not None:
            program.require(Rule.KEYS, attribute(self.var, "__dict__"), Const(self.walked))

    def _implied(self) -> AbstractSet[str]:
        if runs_library_code(type(self.value)) or kinds.is_seen_as_tree(self.value):
            return set(Attributes(self.value).names())
        return {f.name for f in dataclasses.fields(self.value)} if is_tree(self.value) else frozenset()

    def namespace(self) -> Any:
        return Attributes(self.value).namespace()

    def place(self, name: str) -> Expr:
        """The place in the object's own namespace: asking another object of the class, which may not hold the
        attribute, would call code of the user's.
        """
        if is_computed(type(self.value), name) and name in self.namespace():
            return item(attribute(self.var, "__dict__"), name)
        return super().place(name)

    def _find(self, names: set[str], mentions: Mentions) -> Iterator[Slot]:
        cls, held = type(self.value), Attributes(self.value)
        is_closed = trusted(cls.__module__) and not kinds.is_namespace(cls)
        for name in sorted(names):
            found = held.get(name)
            if name == "__class__":
                continue
            if found is GONE and not held.is_slot(name):
                self.absent.add(name)
                continue
            kind = Slot if is_closed and found is not GONE else Attribute
            slot = kind(self.value, name, self.place(name), f"{self.path}.{name}", found)
            if is_shadowed(cls, name):
                slot.refuse(f"is hidden by what {cls.__qualname__} has under this name")
            elif kind is Slot and not isinstance(found, (NDArray, *VALUES, *IDENTITY)):
                slot.refuse(f"is of a {cls.__qualname__}, whose state a replay cannot check")
            yield slot


class SeenClass(Seen):
    """A class of a user's: what code names, and the methods by which Python's operators find it."""

    def check(self, code: ExecutedCode, program: ReplayProgram) -> None:
        for name in QUIET:
            held = inspect.getattr_static(self.value, name, None)
            held = getattr(held, "__func__", held)  # `__new__` is a static method
            if getattr(held, "__code__", None) in code.ran:
                program.require(Rule.IS, attribute(Const(self.value), name), Const(held))
        super().check(code, program)
        if len(order := self.value.__mro__) > 2:
            program.require(Rule.EQUAL, attribute(self.var, "__mro__"), Const(order))

    def _asked(self, mentions: Mentions) -> AbstractSet[str]:
        return super()._asked(mentions) | self._always

    def _implied(self) -> AbstractSet[str]:
        held = [(name, value) for base in _users_bases(self.value) for name, value in vars(base).items()]
        return {n for n, value in held if n.startswith("__") and isinstance(value, _METHODS)} - QUIET

    def _find(self, names: set[str], mentions: Mentions) -> Iterator[Slot]:
        cls, bases = self.value, _users_bases(self.value)
        for name in sorted(names):
            owner = next((base for base in cls.__mro__ if name in vars(base)), None)
            if owner is cls:
                yield from self._own(name, vars(cls)[name])
            elif (
                owner is None or owner in bases
            ):  # of another base it is followed there; this class may get its own
                self.absent.add(name)
        if "__match_args__" in names:
            mentions.attributes |= set(inspect.getattr_static(cls, "__match_args__", ()))
        yield from map(class_slot, bases[1:])

    def _own(self, name: str, held: Any) -> Iterator[Slot]:
        """Find what the class itself has under a name: a descriptor, and the functions that it calls."""
        if isinstance(held, types.FunctionType) or not hasattr(type(held), "__get__"):
            yield self._slot(name, held)
            return
        place = item(attribute(self.var, "__dict__"), name)
        slot = ClassItem(self.value, name, place, f"{self.path}.{name}", held)
        if isinstance(held, _REFUSED) or not trusted(type(held).__module__):
            what = f"is a {type(held).__qualname__}, a descriptor that a replay cannot follow"
            yield slot.refuse(what, "make it a property")
            return
        for kind, parts in _DESCRIPTORS.items():
            if isinstance(held, kind):
                yield slot
                for part in parts:
                    yield Slot(held, part, attribute(place, part), slot.path, getattr(held, part))


def _users_bases(cls: type) -> list[type]:
    """The classes of the user's from which `cls` inherits; it comes first."""
    return [base for base in cls.__mro__ if not trusted(base.__module__)]


def class_slot(cls: type) -> Slot:
    """The slot of a class that an object is of, or that another class inherits from."""
    return Slot(None, cls.__name__, Const(cls), cls.__name__, cls, guarded=False)
