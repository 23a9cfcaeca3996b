"""Elementwise functions that are composed of other ones."""

from __future__ import annotations

__all__: list[str] = []
