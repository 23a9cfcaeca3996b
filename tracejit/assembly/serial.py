"""The job of a serial kernel: a loop that computes single elements, as one call of one kernel."""

from __future__ import annotations

from tracejit.assembly.cpu_kernels import serial_kernel
from tracejit.assembly.words import Job, LaunchWord, ValueAddress
from tracejit.ir.graph import Node
from tracejit.loopnest.statements import LoweredSerial, OperandSlot

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
    words.append(0)  # the iteration at which the kernel continues
    return Job("loop", (serial_kernel("loop", lowered),), tuple(words), 1, 1, SCRATCH)
