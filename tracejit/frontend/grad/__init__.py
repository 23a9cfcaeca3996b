"""Gradients, as nodes appended to a recording."""
