"""Kinds of values that a traced body reaches: plain, fixed, trusted, written in Python."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import functools
import operator
import os
import re
import sys
import types
from typing import Any

import numpy as np

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_TRUSTED = frozenset(sys.stdlib_module_names) | {"numpy", "numba", "llvmlite", "tracejit", "scipy"}


class Vouched:
    """A callable of this package whose calls a trace does not watch."""


PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented)),
    *(enum.Enum, np.generic, np.dtype, range),
)
"""Values that are compared."""

FIXED: tuple[type, ...] = (
    *(types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.MethodWrapperType, types.GenericAlias, types.CodeType, np.ufunc, type(np.sum), re.Pattern),
    *(datetime.date, datetime.timedelta, datetime.tzinfo, slice, functools.cached_property),
    *(operator.itemgetter, Vouched, property),
)
"""Values that never change: the same object is the same thing."""

_C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
BASES = (object, types.SimpleNamespace, dict, list, tuple, set, frozenset, collections.deque)
"""Classes written in C whose behaviour is known."""


def is_record(cls: type) -> bool:
    """Whether instances of `cls` only hold attributes, though it is a class of Python's library."""
    return cls is types.SimpleNamespace or (cls.__module__, cls.__name__) == ("argparse", "Namespace")


def is_tree(value: Any) -> bool:
    """Whether `value` is a dataclass instance: library code may walk over its fields without naming them."""
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_instance and not is_seen_as_tree(value)


def is_seen_as_tree(value: Any) -> bool:
    """Whether an object says which tree it is, by a method ``__tree__`` that may walk over its attributes."""
    return hasattr(type(value), "__tree__")


class Transparent:
    """A callable of this package that runs the function `__wrapped__`, whose surroundings count."""


FUNCTIONS = (types.FunctionType, functools.partial, Transparent)
"""Functions to which somebody may have given attributes."""

IDENTITY = (types.FunctionType, Transparent, types.ModuleType, type, *FIXED)
"""Values of which a replay checks that they are the very same objects."""


def has_attributes(value: Any) -> bool:
    """Whether a plain or fixed value is of a class of the user's, and so may have attributes and methods.
    Those of enumerations are taken to stay.
    """
    return not trusted(type(value).__module__) and not isinstance(value, enum.Enum)


def is_added(value: Any) -> bool:
    """Whether what is found among the builtins was put there by somebody."""
    if isinstance(value, types.BuiltinFunctionType | type):
        return value.__module__ != "builtins"
    is_constant = any(value is each for each in (None, NotImplemented, Ellipsis, True, False))
    return not is_constant and type(value).__module__ != "_sitebuiltins"


def is_like_users(module: str) -> bool:
    """Whether functions of this package in `module` name items or attributes of the user's objects."""
    known = ("tracejit.optim", "tracejit.optim.adaptive", "tracejit.graphs.kept")
    return module in known or module.startswith(("tracejit.nn.modules", "tracejit.kvstore"))


def trusted(module: str | None) -> bool:
    """Whether functions of `module` are taken to have no state that matters."""
    if module is None or is_like_users(module):
        return False
    return module.partition(".")[0] in _TRUSTED and module != "__main__"


def is_python_class(cls: type) -> bool:
    """Whether all the behaviour of `cls` is written in Python (so that it is seen) or well known."""
    return all(
        base in BASES or not any(isinstance(v, _C_METHODS) for v in vars(base).values())
        for base in cls.__mro__
    )


def is_outside(function: Any) -> bool:
    """Whether a function is no code of the user's: what it names does not count."""
    name = function.__globals__.get("__name__")
    inside = function.__code__.co_filename.startswith(PACKAGE) and not is_like_users(name or "")
    return inside or trusted(name)


def is_users(value: Any) -> bool:
    """Whether something that the library's code captured is the user's."""
    kinds = (types.FunctionType, types.MethodType, functools.partial, Transparent)
    return isinstance(value, kinds) or not trusted(type(value).__module__)
