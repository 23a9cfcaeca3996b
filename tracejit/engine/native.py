"""Access to the native executor: its records in memory and its entry points.

The executor (`tracejit.kernels.executor.entry_points`) is machine code that `tracejit.compile` compiles or
loads from the kernel store. `install` registers a function that returns the addresses; it is called when the
first program is created. Entry points that never block for long keep the GIL, because reacquiring it takes up
to 5 ms when another thread requests it; the others release it. A thread that holds the executor's lock never
acquires the GIL, so both kinds may wait for the lock. Entry points that every replay calls are builtin
functions of Python; the others are called through ctypes.

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

ExecutorLoader = Callable[[], Mapping[str, int]]


class Record:
    """Zeroed int64 words at a 64-byte aligned address; the index into `words` is the byte offset / 8."""

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
    fail_lost_task: Callable[[int, int], None]


ENGINE = Record(ENGINE_BYTES)
"""The native record of the engine; one per process."""

TEAM = Record(TEAM_BYTES)
"""The native record of the threads that execute a parallel loop together."""

ENGINE.words[ENGINE_TEAM >> 3] = TEAM.address

LOCK = make_rlock()
"""Guards the engine's Python state outside the fast paths. A fork acquires it, so it is free in a child."""

_loader: ExecutorLoader | None = None
_calls: ExecutorCalls | None = None


def install(loader: ExecutorLoader) -> None:
    """Set the loader of the executor: `loader()` returns the addresses of all entry points by name.

    It is called once, at the first use. Installing another loader afterwards has no effect.
    """
    global _loader
    _loader = loader


def loaded() -> bool:
    """Whether the executor has been loaded; if not, there has been no launch."""
    return _calls is not None


def calls() -> ExecutorCalls:
    """Return the executor's entry points; the first call loads them."""
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
"""The native records of lanes by number: device numbers for kernels, HOST and COMMUNICATION for Python tasks.
The lanes of further devices are added when a program uses them.
"""


def lane_of(number: int, device: int = 0) -> Record:
    """Return the lane with this number, which is created if necessary.

    device: for a new lane, the address of the record of its device if that executes asynchronously, else 0
    """
    lane = LANES.get(number)
    if lane is None:
        with LOCK:
            lane = LANES.get(number)
            if lane is None:
                new_lane = Record(LANE_BYTES)
                new_lane.words[LANE_DEVICE >> 3] = device
                _add(calls(), number, new_lane)
                lane = LANES[number] = new_lane
    return lane


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
    """Wrap a C function whose arguments are int64 as a Python callable."""
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
_methods: list[_Method] = []  # kept alive for the builtin functions


def builtin(addresses: Mapping[str, int], name: str, prefix: str = "engine") -> Callable[..., Any]:
    """Wrap an entry point whose arguments are Python objects (see `kernels.executor.python`) as a builtin.

    prefix: of the symbol
    """
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_Method), ctypes.c_void_p, ctypes.c_void_p)
    new_builtin = prototype(("PyCFunction_NewEx", ctypes.pythonapi))
    _methods.append(_Method(name.encode(), addresses[f"{prefix}_{name}"], _METH_FASTCALL, None))
    function: Callable[..., Any] = new_builtin(ctypes.byref(_methods[-1]), None, None)
    return function


def _bind(addresses: Mapping[str, int]) -> ExecutorCalls:
    def short(name: str, arity: int, result: Any = ctypes.c_int64) -> Callable[..., Any]:
        return function(addresses, f"engine_{name}", arity, result, holds_gil=True)

    def long(name: str, arity: int) -> Callable[..., Any]:
        return function(addresses, f"engine_{name}", arity, holds_gil=False)

    return ExecutorCalls(
        launch=builtin(addresses, "launch"),
        direct=builtin(addresses, "direct"),
        wait=builtin(addresses, "wait"),
        observe=short("observe", 2),
        work=long("work", 2),
        help=long("help", 2),
        poll_host=short("take_host", 4),
        take_host=long("take_host", 4),
        await_host=long("await_host", 4),
        complete=short("complete", 3, None),
        take_finished=builtin(addresses, "take_finished"),
        initialize_thread=short("initialize_thread", 1, None),
        add_lane=short("add_lane", 2, None),
        stop_thread=short("stop_thread", 2, None),
        quiesce=short("quiesce", 2, None),
        resume=short("resume", 1, None),
        resume_child=short("resume_child", 1, None),
        fail_lost_task=short("lose", 2, None),
    )
