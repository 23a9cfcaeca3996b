"""Content of containers and objects, read and written without the methods of their own classes.

A recording undoes the changes of the body and repeats them later, and both must store exact values. However,
`Counter.update` adds, and ``__setitem__``, ``__setattr__`` or a descriptor of a user's class may store
another value than the one passed. Therefore the methods of the built-in base classes are used. Other threads
may read a container concurrently: an item that stays is never temporarily missing.

>>> from collections import Counter
>>> votes = Counter(a=1)
>>> fill(votes, {"a": 2, "b": 1})
>>> votes
Counter({'a': 2, 'b': 1})
"""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from itertools import starmap
from typing import Any

from tracejit.frontend.python.bytecode import is_made_by_dataclass

_BASES: tuple[Any, ...] = (OrderedDict, dict, list, tuple, set, frozenset, deque)

_ACCESS = ("__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__", "__len__", "get", "items")


def base_of(kind: type) -> Any:
    """Return the built-in class whose methods access the content of a container of type `kind`."""
    return next(base for base in _BASES if issubclass(kind, base))


def own_items(kind: type) -> str | None:
    """Return the name of a method by which containers of type `kind` override how items are read or stored;
    None if they use the methods of the built-in class, so that a container can be rebuilt from its items.
    """
    base = base_of(kind)
    if kind is base or kind.__module__ == "collections":
        return None  # a Counter differs only in the deletion of a missing item
    overridden = (name for name in _ACCESS if getattr(kind, name, None) is not getattr(base, name, None))
    return next(overridden, None)


def content_of(container: Any) -> Any:
    """Return a consistent copy of a container's content: a dict, set or list."""
    base = base_of(type(container))
    if issubclass(base, dict):
        return dict(container) if type(container) is dict else dict(base.items(container))
    if base is set or base is frozenset:
        return set(container)
    return list(base.__iter__(container))


class _Gone:
    """The type of `GONE`, which represents a missing value."""

    def __repr__(self) -> str:
        return "GONE"


GONE = _Gone()


def own_attributes(cls: type) -> str | None:
    """Return the name of a method by which instances of `cls` override how attributes are read or stored;
    None if they use the methods of `object`. A frozen dataclass counts as such: its methods only raise.
    """
    for name in ("__getattribute__", "__getattr__", "__setattr__", "__delattr__"):
        method = getattr(cls, name, None)
        is_frozen = isinstance(method, types.FunctionType) and is_made_by_dataclass(method.__code__)
        if method is not None and not is_frozen and not isinstance(method, types.WrapperDescriptorType):
            return name
    return None


def is_made_plainly(kind: type) -> bool:
    """Return whether an instance can be created without calling `kind`: its memory layout is that of
    `object`, unlike that of an exception, say.
    """
    return next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE) is object


_HEAP_TYPE = 1 << 9


def inherited(cls: type, name: str) -> Any:
    """Look up a name in a class and its bases without invoking descriptors; return None if it is missing."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def is_shadowed(cls: type, name: str) -> bool:
    """Return whether a data descriptor of `cls`, such as a property, hides the attribute of an instance."""
    member = inherited(cls, name)
    return hasattr(type(member), "__set__") and not isinstance(member, types.MemberDescriptorType)


def is_computed(cls: type, name: str) -> bool:
    """Return whether reading attribute `name` of an instance of `cls` runs code if the instance lacks it."""
    member = inherited(cls, name)
    is_stored = isinstance(member, types.MemberDescriptorType | types.FunctionType)
    return hasattr(type(member), "__get__") and not is_stored


class Attributes:
    """A mapping view of an object's own attributes, excluding its class: ``Attributes(model)["w"] = w``."""

    __slots__ = ("holder",)

    def __init__(self, holder: Any) -> None:
        self.holder = holder

    def namespace(self) -> dict[str, Any]:
        """Return the instance dictionary: the attributes that are not slots."""
        try:
            namespace = object.__getattribute__(self.holder, "__dict__")
        except AttributeError:
            return {}
        return namespace if isinstance(namespace, dict) else {}

    def names(self) -> list[str]:
        """Return the names of the existing attributes, slots included."""
        names = list(self.namespace())
        for base in type(self.holder).__mro__:
            if "__slots__" in vars(base) or issubclass(base, BaseException):
                names += [
                    n for n, member in vars(base).items() if _is_slot(member) and self.get(n) is not GONE
                ]
        return names

    def _slot(self, name: str) -> Any:
        """Return the descriptor of a slot (``__slots__``), or None if there is none of this name."""
        for base in type(self.holder).__mro__:
            if _is_slot(member := vars(base).get(name)):
                return member
        return None

    def is_slot(self, name: str) -> bool:
        """Return whether the object has a slot of this name."""
        return self._slot(name) is not None

    def get(self, name: str) -> Any:
        """Return an attribute, or `GONE` if the object has none of this name."""
        slot = self._slot(name)
        if slot is None:
            return self.namespace().get(name, GONE)
        try:
            return slot.__get__(self.holder)
        except AttributeError:
            return GONE

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        if value is GONE:
            raise AttributeError(name)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        slot = self._slot(name)
        if slot is None:
            object.__getattribute__(self.holder, "__dict__")[name] = value
        else:
            slot.__set__(self.holder, value)

    def remove(self, name: str) -> None:
        """Remove an attribute if it exists."""
        slot = self._slot(name)
        if slot is None:
            self.namespace().pop(name, None)
        elif self.get(name) is not GONE:
            slot.__delete__(self.holder)

    __delitem__ = remove


def _is_slot(member: Any) -> bool:
    """Return whether a class attribute is the descriptor of a slot."""
    return isinstance(member, types.MemberDescriptorType)


def fill(container: Any, content: Any) -> None:
    """Replace the content of a container by `content`, a result of `content_of`."""
    base = base_of(type(container))
    if base is list:
        list.__setitem__(container, slice(None), content)
    elif base is set:
        set.intersection_update(container, content)
        set.update(container, content)
        if not same_items(container, content):  # 1 and True are equal
            set.clear(container)
            set.update(container, content)
    elif base is deque:
        deque.clear(container)
        deque.extend(container, content)
    else:
        _fill_dict(base, container, content)


def _fill_dict(base: Any, target: Any, content: dict[Any, Any]) -> None:
    """Make a dict equal to `content`, including the order of its keys."""
    for key in list(base.__iter__(target)):
        if key not in content:
            base.pop(target, key, None)
    for key, value in content.items():
        base.__setitem__(target, key, value)
    keys, new_keys = [key for key in list(base.__iter__(target)) if key in content], list(content)
    if keys != new_keys or list(map(type, keys)) != list(map(type, new_keys)):  # 1 and True are equal
        for key, value in content.items():
            steps = (base.pop, target, key, None), (base.__setitem__, target, key, value)
            deque(starmap(operator.call, steps), 0)  # one C call: atomic for interrupts and threads


def same_items(container: Any, copy: Any) -> bool:
    """Return whether a container of values has the content of `copy`, with equal types."""
    content = content_of(container)  # a snapshot: another thread may change the container
    if len(content) != len(copy):
        return False
    if isinstance(content, dict):
        return same_parts(content, copy) and same_parts(content.values(), copy.values())
    if isinstance(content, set):
        return bool(content == copy) and sorted(map(repr, content)) == sorted(map(repr, copy))
    return same_parts(content, copy)


def same_parts(items: Iterable[Any], copy: Iterable[Any]) -> bool:
    """Return whether all items are the same objects, or have equal types and values. Here nan equals itself,
    and 0.0 does not equal -0.0.
    """
    return all(map(operator.is_, items, copy)) or all(
        type(a) is type(b) and (a == b if a == a and a != 0 else repr(a) == repr(b))
        for a, b in zip(items, copy, strict=True)
    )


def factory_of(container: Any) -> Any:
    """Return the factory of a defaultdict, or None for other containers."""
    return container.default_factory if isinstance(container, defaultdict) else None
