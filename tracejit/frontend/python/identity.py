"""Objects as parts of keys that are compared by identity."""

from __future__ import annotations

from typing import Any


class Identity(tuple[Any, ...]):
    """A key that is equal to another one if both are of the same object, which it keeps alive. (The `id` of
    an object that no longer exists may be that of another one.)

    It is hashed and compared as the tuple it is, without Python code: weak dictionaries hash the keys of
    dying values where an exception, such as that of Ctrl-C, would be lost.

    >>> one, other = [], []
    >>> Identity(one) == Identity(one), Identity(one) == Identity(other)
    (True, False)
    """

    value: Any

    def __new__(cls, value: Any) -> Identity:
        self = super().__new__(cls, (cls, id(value)))
        self.value = value
        return self

    def __repr__(self) -> str:
        return f"Identity({type(self.value).__name__} at {id(self.value):#x})"
