"""Kinds of values that a traced body accesses, and the owners of the code that runs.

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

_TRUSTED = frozenset(
    {*sys.stdlib_module_names, "numpy", "numba", "llvmlite", "scipy", "ml_dtypes", "_distutils_hack"}
)
"""Packages whose code counts as the library's. The last one looks for modules on behalf of setuptools."""


def bound(function: Any, instance: Any) -> Any:
    """Bind a callable that is a class attribute, as a function's ``__get__`` does: return a method of
    `instance`, or the callable itself if `instance` is None.
    """
    return function if instance is None else types.MethodType(function, instance)


class Vouched:
    """A callable of this package whose calls a trace does not watch."""


VALUES = (
    *(bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented)),
    *(enum.Enum, np.generic, np.dtype, range, datetime.date, datetime.time, datetime.timedelta),
)
"""Classes of values that replays compare by value."""

FIXED: tuple[type, ...] = (
    *(types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.MethodWrapperType, types.GenericAlias, types.CodeType, np.ufunc, type(np.sum), re.Pattern),
    *(datetime.tzinfo, slice, functools.cached_property, operator.itemgetter, Vouched, property),
    *(staticmethod, classmethod),
)
"""Classes of immutable values, which replays compare by identity."""

_C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
BASES = (object, types.SimpleNamespace, dict, list, tuple, set, frozenset, collections.deque)
"""Classes written in C whose behaviour is known."""


def is_namespace(cls: type) -> bool:
    """Return whether `cls` is a class of the standard library whose instances only store attributes."""
    return cls is types.SimpleNamespace or (cls.__module__, cls.__name__) == ("argparse", "Namespace")


def is_tree(value: Any) -> bool:
    """Return whether `value` is a dataclass instance: library code may iterate over its fields unnamed."""
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_instance and not is_seen_as_tree(value)


def is_seen_as_tree(value: Any) -> bool:
    """Return whether an object is a pytree node, by a method ``__tree__``, which may iterate over
    attributes.
    """
    return hasattr(type(value), "__tree__")


class Transparent:
    """A callable of this package that runs the function `__wrapped__`, whose names are followed."""


FUNCTIONS = (types.FunctionType, functools.partial, Transparent)
"""Classes of functions that may have attributes."""

IDENTITY = (types.FunctionType, Transparent, types.ModuleType, type, *FIXED)
"""Classes of values that replays compare by identity."""


def is_of_own_class(value: Any) -> bool:
    """Return whether a value or array is an instance of a user's class, and so may have attributes and
    methods. Members of enumerations do not count: their attributes are assumed constant.
    """
    return not trusted(type(value).__module__) and not isinstance(value, enum.Enum)


def is_added(value: Any) -> bool:
    """Return whether a value in the builtins namespace was added to Python's own."""
    if isinstance(value, types.BuiltinFunctionType | type):
        return value.__module__ != "builtins"
    is_constant = any(value is each for each in (None, NotImplemented, Ellipsis, True, False))
    return not is_constant and type(value).__module__ != "_sitebuiltins"


def is_value(key: Any) -> bool:
    """Return whether a key can be compared: by value, or by identity if it is immutable."""
    if type(key) is tuple:
        return all(map(is_value, key))
    return isinstance(key, (*VALUES, type, *FIXED)) and not is_of_own_class(key)


# -- owners of code ------------------------------------------------------------------------------------------

USERS, OURS, LIBRARY = 0, 1, 2


class _Owner(dict[Any, int]):
    """The owner of code, by its module's name. It is looked up at every call, so results are cached.

    The constructor that Python generates for a named tuple contains no user code, and counts as ours. The
    finders of packages that are installed as editable run where NumPy imports a module at its first use.
    """

    def __missing__(self, module: str | None) -> int:
        root = (module or "").partition(".")[0]
        is_generated = root.startswith("namedtuple_") and root not in sys.modules
        is_ours = root == "tracejit" or is_generated
        is_library = root in _TRUSTED or root.startswith("__editable__")
        self[module] = OURS if is_ours else LIBRARY if is_library else USERS
        return self[module]


OWNER = _Owner()


_LIKE_USERS: set[str] = set()


def treat_like_users(module: str) -> None:
    """Let the code of a module of this package count as user code, because it accesses items or attributes of
    user objects by name. The module calls this before it defines any function.
    """
    _LIKE_USERS.add(module)
    OWNER[module] = USERS


def is_like_users(module: str) -> bool:
    """Return whether `module` is a module of this package whose code counts as user code."""
    return module in _LIKE_USERS


def trusted(module: str | None) -> bool:
    """Return whether functions of `module` are assumed to have no relevant state."""
    return OWNER[module] != USERS


def is_python_class(cls: type) -> bool:
    """Return whether the methods of `cls` are written in Python (so that their code is visible), or inherited
    from classes with known behaviour.
    """
    return all(
        base in BASES or not any(isinstance(v, _C_METHODS) for v in vars(base).values())
        for base in cls.__mro__
    )
