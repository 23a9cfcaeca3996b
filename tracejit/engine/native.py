"""Access to the native executor: its records in memory and its entry points.

The executor (`tracejit.kernels.executor.entry_points`) is machine code that `tracejit.compile` compiles or
finds in the kernel store: `install` takes a function that returns the addresses, and it is called when the
first program is made. Calls that never block for long keep the GIL, which saves handing it over (up to 5 ms
when another thread wants it); the others release it. A thread that holds the executor's lock never wants the
GIL, so both kinds may wait for the lock. The entry points of every replay are builtin functions of Python,
the others go through ctypes.

    install(loader)               # once, by tracejit.compile
    calls().launch(instance, packed, thread, started)
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tracejit.errors import EngineError
from tracejit.forking import make_rlock
from tracejit.kernels.executor.layout import (
    COMMUNICATION,
    ENGINE_BYTES,
    ENGINE_TEAM,
    HOST,
    LANE_BYTES,
    LANE_DEVICE,
    LANE_PYTHON,
    TEAM_BYTES,
)

LINE = 64  # bytes of a cache line

Loader = Callable[[], Mapping[str, int]]


class Record:
    """Zeroed int64 words at a 64-byte aligned address; `words` indexes them (byte offset divided by 8)."""

    __slots__ = ("address", "words")

    def __init__(self, nbytes: int) -> None:
        memory = np.zeros((nbytes + LINE) // 8, np.int64)
        start = -memory.ctypes.data % LINE // 8
        self.words = memory[start : start + nbytes // 8].data  # keeps the memory alive
        self.address: int = memory.ctypes.data + 8 * start


class ExecutorCalls(NamedTuple):
    """The executor's entry points (see `tracejit.kernels.executor.entry_points`)."""

    launch: Callable[[int, bytes, int, list[int]], int]
    direct: Callable[..., int]
    wait: Callable[[int, int, int, int, int], int]
    observe: Callable[[int, int], int]
    work: Callable[[int, int], int]
    help: Callable[[int, int], int]
    poll_host: Callable[[int, int, int, int], int]
    take_host: Callable[[int, int, int, int], int]
    await_host: Callable[[int, int, int, int], int]
    complete: Callable[[int, int, int], None]
    take_finished: Callable[[int, list[int]], int]
    initialize_thread: Callable[[int], None]
    add_lane: Callable[[int, int], None]
    stop_thread: Callable[[int, int], None]
    quiesce: Callable[[int, int], None]
    resume: Callable[[int], None]
    resume_child: Callable[[int], None]
    lose: Callable[[int, int], None]


ENGINE = Record(ENGINE_BYTES)
"""The engine's native record; there is one per process."""

TEAM = Record(TEAM_BYTES)
"""The native record of the threads that help with a loop."""

ENGINE.words[ENGINE_TEAM >> 3] = TEAM.address

LOCK = make_rlock()
"""Guards the engine's state in Python, off the fast paths. A fork acquires it: no child finds it locked."""

_loader: Loader | None = None
_calls: ExecutorCalls | None = None


def install(loader: Loader) -> None:
    """Set the loader of the executor: `loader()` returns the address of every entry by name.

    It is called once, at the first use. Installing another one afterwards changes nothing.
    """
    global _loader
    _loader = loader


def loaded() -> bool:
    """Whether the executor has been loaded; if not, nothing has ever been launched."""
    return _calls is not None


def calls() -> ExecutorCalls:
    """The executor's entry points, loaded at the first call."""
    return _calls or _load()


def _load() -> ExecutorCalls:
    global _calls
    with LOCK:
        if _calls is None:
            if _loader is None:
                raise EngineError(
                    "the engine has no native executor yet: import tracejit, which installs one"
                )
            addresses = _loader()
            function(addresses, "engine_initialize", 1, None, holds_gil=True)(ENGINE.address)
            calls = _bind(addresses)
            for number, lane in LANES.items():
                _add(calls, number, lane)
            _calls = calls
    return _calls


LANES: dict[int, Record] = {number: Record(LANE_BYTES) for number in (0, HOST, COMMUNICATION)}
"""The native records of lanes by number: that of a device for its kernels, HOST and COMMUNICATION for Python
tasks. Those of devices are added when something is to run there.
"""


def lane_of(number: int, device: int = 0) -> Record:
    """The lane with this number. `device`: for a new one, the address of its device's record, if that has a
    clock of its own.
    """
    found = LANES.get(number)
    if found is None:
        with LOCK:
            found = LANES.get(number)
            if found is None:
                lane = Record(LANE_BYTES)
                lane.words[LANE_DEVICE >> 3] = device
                _add(calls(), number, lane)
                found = LANES[number] = lane
    return found


def _add(calls: ExecutorCalls, number: int, lane: Record) -> None:
    lane.words[LANE_PYTHON >> 3] = number < 0
    calls.add_lane(ENGINE.address, lane.address)


def function(
    addresses: Mapping[str, int],
    name: str,
    arity: int,
    result: Any = ctypes.c_int64,
    *,
    holds_gil: bool,
) -> Callable[..., Any]:
    """The C function of this name as a Python callable; all arguments are int64."""
    prototype = ctypes.PYFUNCTYPE if holds_gil else ctypes.CFUNCTYPE
    return prototype(result, *(ctypes.c_int64,) * arity)(addresses[name])


class _Method(ctypes.Structure):
    """CPython's `PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_FASTCALL = 0x80
_methods: list[_Method] = []  # builtin functions refer to them


def builtin(addresses: Mapping[str, int], name: str, room: str = "engine") -> Callable[..., Any]:
    """An entry point that takes Python's objects (see `kernels.executor.python`) as a builtin function. room:
    what the entry points are of.
    """
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_Method), ctypes.c_void_p, ctypes.c_void_p)
    make = kind(("PyCFunction_NewEx", ctypes.pythonapi))
    _methods.append(_Method(name.encode(), addresses[f"{room}_{name}"], _METH_FASTCALL, None))
    function: Callable[..., Any] = make(ctypes.byref(_methods[-1]), None, None)
    return function


def _bind(addresses: Mapping[str, int]) -> ExecutorCalls:
    def quick(name: str, arity: int, result: Any = ctypes.c_int64) -> Callable[..., Any]:
        return function(addresses, f"engine_{name}", arity, result, holds_gil=True)

    def long(name: str, arity: int) -> Callable[..., Any]:
        return function(addresses, f"engine_{name}", arity, holds_gil=False)

    return ExecutorCalls(
        launch=builtin(addresses, "launch"),
        direct=builtin(addresses, "direct"),
        wait=builtin(addresses, "wait"),
        observe=quick("observe", 2),
        work=long("work", 2),
        help=long("help", 2),
        poll_host=quick("take_host", 4),
        take_host=long("take_host", 4),
        await_host=long("await_host", 4),
        complete=quick("complete", 3, None),
        take_finished=builtin(addresses, "take_finished"),
        initialize_thread=quick("initialize_thread", 1, None),
        add_lane=quick("add_lane", 2, None),
        stop_thread=quick("stop_thread", 2, None),
        quiesce=quick("quiesce", 2, None),
        resume=quick("resume", 1, None),
        resume_child=quick("resume_child", 1, None),
        lose=quick("lose", 2, None),
    )
