"""Kinds of values that a traced body reaches, and the owners of the code that runs.

>>> is_value((1, "a", float)), is_value(([],))
(True, False)
>>> OWNER["numpy.linalg"] == LIBRARY, OWNER["tracejit.ops"] == OURS, OWNER["my_model"] == USERS
(True, True, True)
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import functools
import operator
import re
import sys
import types
from typing import Any

import numpy as np

_TRUSTED = frozenset(sys.stdlib_module_names) | {"numpy", "numba", "llvmlite", "scipy"}


def bound(function: Any, instance: Any) -> Any:
    """Bind a callable that is an attribute of a class as a function would be: to a method of `instance`, or
    not at all if that is None.
    """
    return function if instance is None else types.MethodType(function, instance)


class Vouched:
    """A callable of this package whose calls a trace does not watch."""


VALUES = (
    *(bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented)),
    *(enum.Enum, np.generic, np.dtype, range, datetime.date, datetime.time, datetime.timedelta),
)
"""Classes of values that replays compare by their value."""

FIXED: tuple[type, ...] = (
    *(types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.MethodWrapperType, types.GenericAlias, types.CodeType, np.ufunc, type(np.sum), re.Pattern),
    *(datetime.tzinfo, slice, functools.cached_property, operator.itemgetter, Vouched, property),
    *(staticmethod, classmethod),
)
"""Classes of values that never change, so that replays compare them by identity."""

_C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
BASES = (object, types.SimpleNamespace, dict, list, tuple, set, frozenset, collections.deque)
"""Classes written in C whose behaviour is known."""


def is_namespace(cls: type) -> bool:
    """Whether instances of `cls` only hold attributes, though it is a class of Python's library."""
    return cls is types.SimpleNamespace or (cls.__module__, cls.__name__) == ("argparse", "Namespace")


def is_tree(value: Any) -> bool:
    """Whether `value` is a dataclass instance: library code may walk over its fields without naming them."""
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_instance and not is_seen_as_tree(value)


def is_seen_as_tree(value: Any) -> bool:
    """Whether an object shows itself as a tree, by a method ``__tree__``, which may walk over attributes."""
    return hasattr(type(value), "__tree__")


class Transparent:
    """A callable of this package that runs the function `__wrapped__`, whose names are followed."""


FUNCTIONS = (types.FunctionType, functools.partial, Transparent)
"""Classes of functions that may have attributes."""

IDENTITY = (types.FunctionType, Transparent, types.ModuleType, type, *FIXED)
"""Classes of values that replays compare by identity."""


def is_of_own_class(value: Any) -> bool:
    """Whether a value or array is of a class of the user's, and so may have attributes and methods. Members
    of enumerations do not count: theirs are assumed to stay.
    """
    return not trusted(type(value).__module__) and not isinstance(value, enum.Enum)


def is_added(value: Any) -> bool:
    """Whether a value among the builtins is none of Python's own."""
    if isinstance(value, types.BuiltinFunctionType | type):
        return value.__module__ != "builtins"
    is_constant = any(value is each for each in (None, NotImplemented, Ellipsis, True, False))
    return not is_constant and type(value).__module__ != "_sitebuiltins"


def is_value(key: Any) -> bool:
    """Whether a key can be compared: by its value, or by its identity if it never changes."""
    if type(key) is tuple:
        return all(map(is_value, key))
    return isinstance(key, (*VALUES, type, *FIXED)) and not is_of_own_class(key)


# -- whose code ----------------------------------------------------------------------------------------------

USERS, OURS, LIBRARY = 0, 1, 2


class _Owner(dict[Any, int]):
    """The owner of code, by its module's name. Asked at every call, so answers are kept.

    The constructor that Python generates for a named tuple has nothing of the user's: it counts as ours.
    """

    def __missing__(self, module: str | None) -> int:
        root = (module or "").partition(".")[0]
        is_generated = root.startswith("namedtuple_") and root not in sys.modules
        is_ours = root == "tracejit" or is_generated
        self[module] = OURS if is_ours else LIBRARY if root in _TRUSTED else USERS
        if module is not None and is_like_users(module):
            self[module] = USERS
        return self[module]


OWNER = _Owner()


def is_like_users(module: str) -> bool:
    """Whether functions of this package in `module` name items or attributes of the user's objects."""
    known = ("tracejit.optim", "tracejit.optim.adaptive", "tracejit.graphs.kept")
    return module in known or module.startswith(("tracejit.nn.modules", "tracejit.kvstore"))


def trusted(module: str | None) -> bool:
    """Whether functions of `module` are assumed to have no state that matters."""
    return OWNER[module] != USERS


def is_python_class(cls: type) -> bool:
    """Whether all the behaviour of `cls` is written in Python (so that it is seen) or well known."""
    return all(
        base in BASES or not any(isinstance(v, _C_METHODS) for v in vars(base).values())
        for base in cls.__mro__
    )
