"""Averages, order statistics, functions that ignore nan, covariances and histograms."""

from __future__ import annotations

__all__: list[str] = []
