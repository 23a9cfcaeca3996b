"""Surroundings of a traced body: reached by name, guarded, taken back and watched."""
