"""Small native kernels for the tests, and helpers that make programs of them.

Block of every kernel: slot 0 is the address of an int64 output, slot 1 of an int64 input, slot 2 a number.
"""

import functools
import os
import pathlib
import struct
import tempfile

from numba.types import int64

from tracejit import engine
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.linker import link
from tracejit.kernels.compiler.memory import load, pointer, store


def nothing(block, low, high, scratch):
    return 0


def mix(block, low, high, scratch):
    """output = output * 31 + input * 7 + number, over and over again: order matters."""
    output, number = load(block, int64), load(block + 16, int64)
    value = load(load(block + 8, int64), int64)
    store(output, load(output, int64) * 31 + value * 7 + number)
    return 0


def fill(block, low, high, scratch):
    """output[i] = number + i for the units, through scratch memory."""
    output, number = pointer(load(block, int64), int64), load(block + 16, int64)
    room = pointer(scratch, int64)
    for i in range(low, high):
        room[i - low] = number + i
    for i in range(low, high):
        output[i] = room[i - low]
    return 0


def spin(block, low, high, scratch):
    """Work: output[unit] = a hash of the unit, `number` rounds each."""
    output, rounds = pointer(load(block, int64), int64), load(block + 16, int64)
    for i in range(low, high):
        x = int64(i + 1)
        for _ in range(rounds):
            x ^= x << 13
            x ^= x >> 7
            x ^= x << 17
        output[i] = x
    return 0


def count(block, low, high, scratch):
    """output[i] += 1 for the units."""
    output = pointer(load(block, int64), int64)
    for i in range(low, high):
        output[i] += 1
    return 0


def check(block, low, high, scratch):
    """Fail with 1 + i for the first i of the units whose input[i] is negative."""
    values = pointer(load(block + 8, int64), int64)
    for i in range(low, high):
        if values[i] < 0:
            return i + 1
    return 0


def trail(block, low, high, scratch):
    """Note that the chunk from `low` on runs now: output[0] is how many have run."""
    output = pointer(load(block, int64), int64)
    output[0] += 1
    output[output[0]] = low
    return 0


OBJECTS = pathlib.Path(os.environ.setdefault("TRACEJIT_TEST_OBJECTS", tempfile.mkdtemp("tracejit-objects")))
"""Object code that this process or the one that started it has compiled."""


def compiled(name, entries):
    """Addresses of the entries, compiled once for a test run and the scripts that it starts."""
    file = OBJECTS / name
    if not file.exists():
        written = OBJECTS / f"{name}.{os.getpid()}"
        written.write_bytes(build_object(entries).object_code)
        written.replace(file)  # in one step: other processes of the run read it at any time
    return link(name, file.read_bytes(), [entry.name for entry in entries])


KERNELS = nothing, mix, fill, spin, count, check, trail


@functools.cache
def addresses():
    return compiled("kernels", [EntryPoint(f.__name__, f) for f in KERNELS])


def task(kernel, block=0, units=1, chunk=1, **rest):
    rest.setdefault("name", kernel)
    rest.setdefault("location", f"{kernel}.py:1")
    return engine.Task(function=addresses()[kernel], block=block, units=units, chunk=chunk, **rest)


def pack(*arguments):
    """(value, variable or None) for each argument."""
    values = [value for value, _ in arguments]
    variables = [variable.address if variable else 0 for _, variable in arguments]
    return struct.pack(f"{2 * len(arguments)}q", *values, *variables)
