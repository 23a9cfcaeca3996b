"""The declaration of a public function: one decorator, where the function is written.

    @public                                    # tj.flip, np.flip(array), its place in the reference
    def flip(x, axis=None): ...

    @public(names="amax", method=True)         # tj.max, tj.amax, np.max(array), np.amax(array), array.max()
    def max(x, axis=None, ...): ...

Everything that lists functions reads the declarations: the names of `tj` and the methods of arrays
(`surface`), the functions of NumPy that are called on arrays (`interop`), `tracejit.numpy`, the standard's
namespace, the pages of the reference, the stub that type checkers read, and tests of all functions. What has
no ``def``, such as a dtype, is declared by `declare`. A function of an elementwise operator is declared with
the operator (`functions.elementwise`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


class Declaration(NamedTuple):
    """One public name.

    home:   the module that declares it; its functions stand on one page of the reference.
    method: whether arrays have it as a method.
    """

    name: str
    value: Any
    home: str
    method: bool

    @property
    def is_other_name(self) -> bool:
        """Whether the function has another name of its own."""
        return getattr(self.value, "__name__", self.name) != self.name


DECLARED: dict[str, dict[str, Declaration]] = {}
"""Declarations by name, by the module that made them."""


def declare(home: str, **values: Any) -> None:
    """Make values public under these names, in the module `home`."""
    for name, value in values.items():
        _add(Declaration(name, value, home, False))


def _add(declaration: Declaration) -> None:
    known = DECLARED.setdefault(declaration.home, {})
    if declaration.name in known:
        raise ValueError(f"{declaration.home} declares {declaration.name!r} twice")
    known[declaration.name] = declaration


@overload
def public(function: F, /) -> F: ...


@overload
def public(*, names: str = "", method: bool = False) -> Callable[[F], F]: ...


def public(function: Any = None, /, *, names: str = "", method: bool = False) -> Any:
    """Make a function public under its name, and under further `names`; with `method`, arrays have it, too.

    The function itself is returned, so that its signature is what type checkers see.

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
    """The names that a module has declared, for its ``__all__``."""
    return sorted(DECLARED[home])
