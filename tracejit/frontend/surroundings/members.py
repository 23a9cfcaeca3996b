"""Functions, modules, classes and objects whose attributes a traced body may access.

Before code runs, the names that it mentions are looked up once on each of these values (`Followed.look_up`).
An existing attribute becomes a slot; a missing one is recorded, and a replay checks that it is still absent.
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
"""Methods that most classes have and that rarely run: a method is checked only if it ran."""

_METHODS = (types.FunctionType, staticmethod, classmethod)
_DESCRIPTORS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset"),
    functools.cached_property: ("func",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    kinds.Transparent: (),
}
"""Descriptors other than functions that are followed, and the attributes with the functions they call."""
_REFUSED = (functools.partialmethod, functools.singledispatchmethod, functools._lru_cache_wrapper)
"""Descriptors of the standard library that call user code, and are not followed."""


class Followed:
    """A value whose attributes are followed; `var` is bound to it in a replay.

    names:  the names looked up so far.
    absent: the subset of `names` that the value does not have.
    """

    def __init__(self, value: Any, var: Expr, path: str):
        self.value, self.var, self.path = value, var, path
        self.names: set[str] = set()
        self.absent: set[str] = set()
        self._always: AbstractSet[str] = self._implied()
        self._known = -1  # number of mentioned names at the last look-up

    def namespace(self) -> Any:
        """Return the value's own attributes, by name."""
        return vars(self.value)

    def expression_of(self, name: str) -> Expr:
        """Return the expression that reads one of the value's own attributes in a replay."""
        return attribute(self.var, name)

    def look_up(self, mentions: Mentions) -> Iterable[Slot]:
        """Yield the slots of the names mentioned since the last look-up. The iterator is lazy: it creates a
        slot after the caller has visited the preceding slots.
        """
        if len(mentions.attributes) == self._known:
            return ()
        self._known = len(mentions.attributes)
        names = (mentions.attributes | self._always) - self.names
        self.names |= names
        return self._find(names, mentions)

    def check(self, code: ExecutedCode, program: ReplayProgram) -> None:
        """Require that the names `look_up` did not find are still absent."""
        missing = self.absent & self._asked(code.mentions)
        if missing and hasattr(self.value, "__dict__"):
            names = Const(frozenset(missing))
            program.require(Rule.NONE_OF_KEYS, attribute(self.var, "__dict__"), names)

    def _asked(self, mentions: Mentions) -> AbstractSet[str]:
        """Return the names of attributes that code may look up on this value."""
        return mentions.attributes

    def _implied(self) -> AbstractSet[str]:
        """Return the names that Python and its library use although no code mentions them."""
        return frozenset()

    def _find(self, names: set[str], mentions: Mentions) -> Iterator[Slot]:
        raise NotImplementedError

    def _slot(self, name: str, member: Any) -> Slot:
        return Attribute(self.value, name, self.expression_of(name), f"{self.path}.{name}", member)


class FollowedFunction(Followed):
    """A function, which may have attributes (``step.calls += 1``)."""

    def namespace(self) -> Any:
        return Attributes(self.value).namespace()

    def _asked(self, mentions: Mentions) -> AbstractSet[str]:
        """Return the names that code may look up on a function: only those that code stores, has as strings,
        or accesses on something with the function's name.
        """
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


class FollowedModule(Followed):
    """A module. Of the standard library's modules, only data and functions with side effects are followed."""

    def _implied(self) -> AbstractSet[str]:
        return {"__getattr__"} & vars(self.value).keys()

    def expression_of(self, name: str) -> Expr:
        if "__getattr__" in vars(self.value):  # reading a missing attribute would call it
            return item(attribute(self.var, "__dict__"), name)
        return super().expression_of(name)

    def _find(self, names: set[str], mentions: Mentions) -> Iterator[Slot]:
        module, namespace = self.value.__name__, vars(self.value)
        is_library = trusted(module)
        if not is_library:
            self.absent |= names - namespace.keys()
        for name in sorted(names & namespace.keys()):
            member = namespace[name]
            is_followed = not is_library or (module == "tracejit" and name == "optim")
            if not is_followed and module in sys.stdlib_module_names:
                is_function = isinstance(member, types.BuiltinFunctionType)
                has_effect = impure(member) is not None if is_function else opens(member)
                is_followed = has_effect or isinstance(member, (*VALUES, dict, list, set))
            if is_followed:
                yield self._slot(name, member)


class FollowedObject(Followed):
    """An instance of a class; the class is followed separately.

    walked: the names of all its attributes if code may iterate over them, else None.
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

    def expression_of(self, name: str) -> Expr:
        """Return the expression for an attribute. If user code computes the attribute where it is missing,
        the expression reads the object's own namespace: the object of a replay may lack the attribute.
        """
        if is_computed(type(self.value), name) and name in self.namespace():
            return item(attribute(self.var, "__dict__"), name)
        return super().expression_of(name)

    def _find(self, names: set[str], mentions: Mentions) -> Iterator[Slot]:
        cls, attributes = type(self.value), Attributes(self.value)
        is_closed = trusted(cls.__module__) and not kinds.is_namespace(cls)
        for name in sorted(names):
            member = attributes.get(name)
            if name == "__class__":
                continue
            if member is GONE and not attributes.is_slot(name):
                self.absent.add(name)
                continue
            kind = Slot if is_closed and member is not GONE else Attribute
            slot = kind(self.value, name, self.expression_of(name), f"{self.path}.{name}", member)
            if is_shadowed(cls, name):
                slot.refuse(f"is hidden by a descriptor of {cls.__qualname__} with this name")
            elif kind is Slot and not isinstance(member, (NDArray, *VALUES, *IDENTITY)):
                slot.refuse(f"is of a {cls.__qualname__}, whose state a replay cannot check")
            yield slot


class FollowedClass(Followed):
    """A user's class: the attributes that code names, and the special methods that operators call."""

    def check(self, code: ExecutedCode, program: ReplayProgram) -> None:
        for name in QUIET:
            method = inspect.getattr_static(self.value, name, None)
            method = getattr(method, "__func__", method)  # `__new__` is a static method
            if getattr(method, "__code__", None) in code.ran:
                program.require(Rule.IS, attribute(Const(self.value), name), Const(method))
        super().check(code, program)
        if len(order := self.value.__mro__) > 2:
            program.require(Rule.EQUAL, attribute(self.var, "__mro__"), Const(order))

    def _asked(self, mentions: Mentions) -> AbstractSet[str]:
        return super()._asked(mentions) | self._always

    def _implied(self) -> AbstractSet[str]:
        members = [(name, value) for base in _users_bases(self.value) for name, value in vars(base).items()]
        return {n for n, value in members if n.startswith("__") and isinstance(value, _METHODS)} - QUIET

    def _find(self, names: set[str], mentions: Mentions) -> Iterator[Slot]:
        cls, bases = self.value, _users_bases(self.value)
        for name in sorted(names):
            owner = next((base for base in cls.__mro__ if name in vars(base)), None)
            if owner is cls:
                yield from self._own(name, vars(cls)[name])
            elif (
                owner is None or owner in bases
            ):  # an attribute of another base is followed there, and this class may come to define its own
                self.absent.add(name)
        if "__match_args__" in names:
            mentions.attributes |= set(inspect.getattr_static(cls, "__match_args__", ()))
        yield from map(class_slot, bases[1:])

    def _own(self, name: str, member: Any) -> Iterator[Slot]:
        """Yield the slots of an attribute in the class's own namespace: the attribute, or a descriptor and
        the functions that it calls.
        """
        if isinstance(member, types.FunctionType) or not hasattr(type(member), "__get__"):
            yield self._slot(name, member)
            return
        expression = item(attribute(self.var, "__dict__"), name)
        slot = ClassItem(self.value, name, expression, f"{self.path}.{name}", member)
        if isinstance(member, _REFUSED) or not trusted(type(member).__module__):
            what = f"is a {type(member).__qualname__}, a descriptor that a replay cannot follow"
            yield slot.refuse(what, "make it a property")
            return
        for kind, functions in _DESCRIPTORS.items():
            if isinstance(member, kind):
                yield slot
                for function in functions:
                    yield Slot(
                        member,
                        function,
                        attribute(expression, function),
                        slot.path,
                        getattr(member, function),
                    )


def _users_bases(cls: type) -> list[type]:
    """Return the user's classes among `cls` and its bases, in method resolution order."""
    return [base for base in cls.__mro__ if not trusted(base.__module__)]


def class_slot(cls: type) -> Slot:
    """Return the slot of the class of an object, or of a base class."""
    return Slot(None, cls.__name__, Const(cls), cls.__name__, cls, guarded=False)
