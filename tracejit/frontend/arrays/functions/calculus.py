"""Differences, integrals, products along axes, polynomials, convolutions: composed of other functions."""

from __future__ import annotations

__all__: list[str] = []
