"""Arrays joined, split, repeated, padded, and their elements placed by position."""

from __future__ import annotations

__all__: list[str] = []
