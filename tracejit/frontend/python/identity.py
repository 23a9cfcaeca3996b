"""Objects as parts of keys that are compared by identity."""

from __future__ import annotations

from typing import Any


class Identity:
    """A key that is equal to another one if both are of the same object, which it keeps alive. (The `id` of
    an object that no longer exists may be that of another one.)

    >>> one, other = [], []
    >>> Identity(one) == Identity(one), Identity(one) == Identity(other)
    (True, False)
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"Identity({type(self.value).__name__} at {id(self.value):#x})"
