"""The job of a serial kernel: a loop that computes single elements, as one call of one kernel."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from tracejit.assembly.cpu_kernels import serial_kernel
from tracejit.assembly.words import Job, LaunchWord, ValueAddress
from tracejit.ir.graph import Node
from tracejit.loopnest.serial import lower_serial
from tracejit.loopnest.statements import MAX_DEPTH, LoweredSerial, OperandSlot, SerialSlot

SCRATCH = 64
"""Bytes of memory of the thread: the kernel finds its thread by the address of that memory."""


def serial_job(node: Node, lowered: LoweredSerial) -> Job:
    """Return the job of a loop that is a serial kernel."""
    words: list[LaunchWord] = []
    for slot in lowered.slots:
        if isinstance(slot, OperandSlot):
            words.append(ValueAddress(node.inputs[slot.operand]))
        else:
            words.append(slot.value)
    words += [0] * (SerialSlot.ITERATIONS + MAX_DEPTH)
    return Job("loop", (serial_kernel("loop", lowered),), tuple(words), 1, 1, SCRATCH)


class FailedCheck(NamedTuple):
    """A check that failed in a serial kernel: its node, the bad index, and the iterations it failed in,
    outermost loop first.
    """

    node: Node
    bad_index: int
    iterations: list[int]


def failed_check(node: Node, job: Job, block: int) -> FailedCheck:
    """Return the check that failed in a serial kernel whose argument block is at address `block`."""
    words = (ctypes.c_int64 * len(job.words)).from_address(block)
    first = len(job.words) - SerialSlot.ITERATIONS - MAX_DEPTH
    check, depth = lower_serial(node).checks[words[first + SerialSlot.CHECK]]
    iterations = first + SerialSlot.ITERATIONS
    return FailedCheck(check, words[first + SerialSlot.INDEX], list(words[iterations : iterations + depth]))
