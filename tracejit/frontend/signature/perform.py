"""The steps of a replay from its launch on, for the recorded call: launch, create values, write back.

The program's variables refer to the values of the recorded call: the caller's own objects, not the stand-ins
that were passed to the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit import engine
from tracejit.engine.variable import mark_committed, wait_uncommitted
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.content import GONE, fill
from tracejit.frontend.recording.draws import WORD
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.expressions import Const, Expr, Literal, Var
from tracejit.frontend.signature.program import (
    ArrayOn,
    Container,
    CopyOf,
    Known,
    Make,
    Rebind,
    ReplayProgram,
    StateChange,
    StorageAddress,
)
from tracejit.frontend.signature.runtime import any_shared, variables


def launch(program: ReplayProgram, starts: Sequence[int]) -> None:
    """Launch the recorded graph, and allocate its outputs.

    starts: the first position of the call in each of its random streams.
    """
    record = program.launch
    assert record is not None
    for storage in program.outputs:
        if storage.variable is None:  # else an interrupt ended an earlier attempt
            storage.materialise()
    written = [var.value.variable for var in record.written] if record.is_awaited else []
    wait_uncommitted(*written)  # older failures are not this call's
    streams = {number: stream for number, stream, _total in record.draws}
    values: list[Any] = []
    addresses: list[int] = []
    keep: list[Storage] = []

    def add(storage: Storage, offset: int = 0) -> None:
        values.append(storage.address + offset * storage.type.dtype.itemsize)
        addresses.append(storage.variable.address)
        keep.append(storage)

    for word in record.words:
        if isinstance(word, StorageAddress):
            add(word.storage.value, 0 if word.offset is None else word.offset.value)
            continue
        if isinstance(word, Expr):
            values.append(word.value)
        elif word.drawn is None:
            values.append(streams[word.stream].key)
        else:
            values.append((starts[word.stream] + word.drawn.value) % WORD)
        addresses.append(0)
    for storage in program.outputs:
        add(storage)
    record.call(record.pack(*values, *addresses), tuple(keep))
    mark_committed(*written)


def write_back(program: ReplayProgram) -> None:
    """Create the values that are written back or used more than once, and perform the effects. Wait for all
    uses of the caller's memory if Python can see it.
    """
    for var, value in program.values:
        var.value = make(value)
    for effect in program.effects:
        _perform(effect)
    assert program.launch is not None
    storages = [var.value for var in program.launch.storages]
    if any_shared(storages):
        engine.wait(*variables(storages), exclusive=True)


def _perform(effect: StateChange) -> None:
    if isinstance(effect, Rebind):
        effect.slot.put(GONE if effect.value is GONE else make(effect.value))
    elif isinstance(container := effect.container.value, dict):
        fill(container, make(effect.value))
    else:
        container[:] = make(effect.value)


def make(value: Make) -> Any:
    """Create a value of the result."""
    if isinstance(value, Known):
        return _known(value.operand)
    if isinstance(value, ArrayOn):
        view = value.view if value.offset is None else value.view.moved(value.offset.value)
        return NDArray(value.storage.value, view)
    if isinstance(value, CopyOf):
        return value.array.copy("K")
    assert isinstance(value, Container)
    factory = None if value.factory is None else make(value.factory)
    return trees.build(value.kind, value.keys, [make(part) for part in value.parts], factory)


def _known(operand: Expr) -> Any:
    assert isinstance(operand, (Var, Const, Literal)), "computed numbers have variables"
    return operand.value
