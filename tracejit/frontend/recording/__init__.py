"""Storages, numbers and the one recorder, eager or of a traced call."""
