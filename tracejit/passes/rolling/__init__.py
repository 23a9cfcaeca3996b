"""Runs of equal rounds become loops: finding them, proving them equal, making the loop's node."""
