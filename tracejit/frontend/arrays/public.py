"""The declaration of a public function by a decorator at its definition.

    @public                                    # tj.flip, np.flip(array), an entry in the reference
    def flip(x, axis=None): ...

    @public(names="amax", method=True)         # tj.max, tj.amax, np.max(array), np.amax(array), array.max()
    def max(x, axis=None, ...): ...

All lists of functions derive from the declarations: the names of `tj` and the methods of arrays (`surface`),
the functions of NumPy that are called on arrays (`interop`), `tracejit.numpy`, the namespace of the array API
standard, the pages of the reference, the stub that type checkers read, and tests of all functions. Objects
without a ``def``, such as dtypes, are declared by `declare`. A function of an elementwise operator is
declared with the operator (`functions.elementwise`).
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


class Declaration(NamedTuple):
    """One public name.

    home:   the module that declares it; one page of the reference lists the functions of a module.
    method: whether it is a method of arrays.
    """

    name: str
    value: Any
    home: str
    method: bool

    @property
    def is_other_name(self) -> bool:
        """Whether the name is an alias of the function."""
        return getattr(self.value, "__name__", self.name) != self.name


DECLARED: dict[str, dict[str, Declaration]] = {}
"""Declarations by module, and by name within each module."""


def declare(home: str, **values: Any) -> None:
    """Declare values public under the given names, in the module `home`."""
    for name, value in values.items():
        _add(Declaration(name, value, home, False))


def _add(declaration: Declaration) -> None:
    declarations = DECLARED.setdefault(declaration.home, {})
    if declaration.name in declarations:
        raise ValueError(f"{declaration.home} declares {declaration.name!r} twice")
    declarations[declaration.name] = declaration


@overload
def public(function: F, /) -> F: ...


@overload
def public(*, names: str = "", method: bool = False) -> Callable[[F], F]: ...


def public(function: Any = None, /, *, names: str = "", method: bool = False) -> Any:
    """Declare a function public under its name and the aliases `names`; with `method` also as a method.

    The function itself is returned, so that type checkers see its signature.

    >>> @public(names="second")
    ... def first(x):
    ...     pass
    >>> list(DECLARED.pop(__name__))
    ['first', 'second']
    """
    if function is None:
        return lambda decorated: _published(decorated, names, method)
    return _published(function, names, method)


def _published(function: F, names: str, method: bool) -> F:
    home = function.__module__
    _add(Declaration(function.__name__, function, home, method))
    for name in names.split():
        _add(Declaration(name, function, home, False))
    return function


def names_of(home: str) -> list[str]:
    """Return the names that a module has declared, sorted, for its ``__all__``."""
    return sorted(DECLARED[home])
