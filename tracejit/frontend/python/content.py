"""Content of containers and objects, read and written without the methods of their own classes.

A recording undoes the changes of the body and makes them again later, and both must store exactly what was
there. But `Counter.update` adds, and a class of the user's may store another value than it is given, in
``__setitem__``, ``__setattr__`` or a descriptor. So the methods of Python's own classes are used. Other
threads may read a container meanwhile: an item that stays is never missing.

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
    """The class of Python's own whose methods reach the content of a container of type `kind`."""
    return next(base for base in _BASES if issubclass(kind, base))


def own_items(kind: type) -> str | None:
    """The method by which containers of type `kind` find or store items in their own way; None if
    Python's own class does it, so that such a container can be made again from its items.
    """
    base = base_of(kind)
    if kind is base or kind.__module__ == "collections":
        return None  # a Counter differs only where a missing item is deleted
    own = (name for name in _ACCESS if getattr(kind, name, None) is not getattr(base, name, None))
    return next(own, None)


def content_of(container: Any) -> Any:
    """A copy of a container's content at one moment: a dict, set or list."""
    base = base_of(type(container))
    if issubclass(base, dict):
        return dict(container) if type(container) is dict else dict(base.items(container))
    if base is set or base is frozenset:
        return set(container)
    return list(base.__iter__(container))


class _Gone:
    """The type of `GONE`, which stands for a missing value."""

    def __repr__(self) -> str:
        return "GONE"


GONE = _Gone()


def own_attributes(cls: type) -> str | None:
    """The method by which instances of `cls` show or store attributes in their own way; None if as
    `object` does. A frozen dataclass counts as the latter: its methods only refuse.
    """
    for name in ("__getattribute__", "__getattr__", "__setattr__", "__delattr__"):
        method = getattr(cls, name, None)
        is_frozen = isinstance(method, types.FunctionType) and is_made_by_dataclass(method.__code__)
        if method is not None and not is_frozen and not isinstance(method, types.WrapperDescriptorType):
            return name
    return None


def is_made_plainly(kind: type) -> bool:
    """Whether an instance can be made without calling `kind`: it is laid out as objects are, unlike an
    exception, say.
    """
    return next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE) is object


_HEAP_TYPE = 1 << 9


def inherited(cls: type, name: str) -> Any:
    """Look a name up in a class and its bases, without descriptors; None if there is none."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def is_shadowed(cls: type, name: str) -> bool:
    """Whether a data descriptor of `cls`, a property say, hides the attribute of an instance."""
    held = inherited(cls, name)
    return hasattr(type(held), "__set__") and not isinstance(held, types.MemberDescriptorType)


def is_computed(cls: type, name: str) -> bool:
    """Whether code runs when an instance of `cls` is asked for attribute `name` and holds none."""
    held = inherited(cls, name)
    is_own = isinstance(held, types.MemberDescriptorType | types.FunctionType)
    return hasattr(type(held), "__get__") and not is_own


class Attributes:
    """The attributes of an object itself, not of its class: ``Attributes(model)["w"] = w``."""

    __slots__ = ("holder",)

    def __init__(self, holder: Any) -> None:
        self.holder = holder

    def namespace(self) -> dict[str, Any]:
        """The instance dictionary: attributes that are not slots."""
        try:
            found = object.__getattribute__(self.holder, "__dict__")
        except AttributeError:
            return {}
        return found if isinstance(found, dict) else {}

    def names(self) -> list[str]:
        """Names of the attributes that exist, slots included."""
        found = list(self.namespace())
        for base in type(self.holder).__mro__:
            if "__slots__" in vars(base) or issubclass(base, BaseException):
                found += [n for n, held in vars(base).items() if _is_slot(held) and self.get(n) is not GONE]
        return found

    def _slot(self, name: str) -> Any:
        """The descriptor of a slot (``__slots__``); None if there is none of this name."""
        for base in type(self.holder).__mro__:
            if _is_slot(held := vars(base).get(name)):
                return held
        return None

    def is_slot(self, name: str) -> bool:
        """Whether there is a slot of this name."""
        return self._slot(name) is not None

    def get(self, name: str) -> Any:
        """An attribute; `GONE` if the object has none of this name."""
        slot = self._slot(name)
        if slot is None:
            return self.namespace().get(name, GONE)
        try:
            return slot.__get__(self.holder)
        except AttributeError:
            return GONE

    def __getitem__(self, name: str) -> Any:
        found = self.get(name)
        if found is GONE:
            raise AttributeError(name)
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        slot = self._slot(name)
        if slot is None:
            object.__getattribute__(self.holder, "__dict__")[name] = value
        else:
            slot.__set__(self.holder, value)

    def remove(self, name: str) -> None:
        """Take an attribute away, if it is there."""
        slot = self._slot(name)
        if slot is None:
            self.namespace().pop(name, None)
        elif self.get(name) is not GONE:
            slot.__delete__(self.holder)

    __delitem__ = remove


def _is_slot(held: Any) -> bool:
    """Whether an attribute of a class is the descriptor of a slot."""
    return isinstance(held, types.MemberDescriptorType)


def fill(container: Any, content: Any) -> None:
    """Make the content of a container equal to `content`, a result of `content_of`."""
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


def _fill_dict(base: Any, held: Any, content: dict[Any, Any]) -> None:
    """Make a dict equal to `content`, in its order."""
    for key in list(base.__iter__(held)):
        if key not in content:
            base.pop(held, key, None)
    for key, value in content.items():
        base.__setitem__(held, key, value)
    keys, wanted = [key for key in list(base.__iter__(held)) if key in content], list(content)
    if keys != wanted or list(map(type, keys)) != list(map(type, wanted)):  # 1 and True are equal
        for key, value in content.items():
            both = (base.pop, held, key, None), (base.__setitem__, held, key, value)
            deque(starmap(operator.call, both), 0)  # one call: no interrupt and no thread comes in between


def same_items(held: Any, copy: Any) -> bool:
    """Whether a container of values has the content of `copy`, with equal types."""
    held = content_of(held)  # another thread may change it meanwhile
    if len(held) != len(copy):
        return False
    if isinstance(held, dict):
        return same_parts(held, copy) and same_parts(held.values(), copy.values())
    if isinstance(held, set):
        return bool(held == copy) and sorted(map(repr, held)) == sorted(map(repr, copy))
    return same_parts(held, copy)


def same_parts(held: Iterable[Any], copy: Iterable[Any]) -> bool:
    """Whether all parts are the same objects, or equal ones of equal types. nan equals itself, and 0.0 does
    not equal -0.0.
    """
    return all(map(operator.is_, held, copy)) or all(
        type(a) is type(b) and (a == b if a == a and a != 0 else repr(a) == repr(b))
        for a, b in zip(held, copy, strict=True)
    )


def factory_of(container: Any) -> Any:
    """The factory of a defaultdict; None for other containers."""
    return container.default_factory if isinstance(container, defaultdict) else None
