"""What something costs, in calls: the same on every machine, however busy."""

import sys
from collections.abc import Callable
from typing import Any


def calls(action: Callable[[], Any]) -> int:
    """How many functions, Python's own among them, a call of `action` calls."""
    seen = 0

    def count(frame, event, arg):
        nonlocal seen
        seen += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return seen


def mappings() -> list[tuple[int, int]]:
    """First and last address of each mapping of this process's memory; Linux only."""
    with open("/proc/self/maps") as file:
        ranges = [line.split(maxsplit=1)[0].split("-") for line in file]
    return [(int(start, 16), int(stop, 16)) for start, stop in ranges]
