"""Operators and indexing of small arrays, written as slots of a Python type: see `slots`."""
