"""Traced functions: recording a call, replaying later ones, running piecewise."""
