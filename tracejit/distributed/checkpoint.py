"""Checkpoints: folders with the arrays of the latest step that was saved completely.

    folder/step-12/part-0.npz  part-1.npz  tree.npz      each rank writes a subset of the leaves
    folder/latest.json                                   replaced last, when all files are complete

A job that is interrupted while it writes leaves the previous checkpoint intact. A checkpoint can be loaded on
any number of ranks. Engine tasks write it, so the program can continue in the meantime.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit import engine
from tracejit.distributed.collectives import all_gather
from tracejit.distributed.world import rank, size
from tracejit.engine.variable import wait_once
from tracejit.errors import ArgumentError, EngineError, PeerError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.functions.creation import zeros
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location

LATEST = "latest.json"
NAME = "save_checkpoint"


def save_checkpoint(folder: str | os.PathLike[str], tree: Any, step: int, wait: bool = True) -> None:
    """Save a tree of arrays that is the same on all ranks; each rank writes a subset of the leaves.

    All ranks must call this function. Earlier checkpoints in the folder are removed.

    folder: on a file system that all ranks share; created if it does not exist.
    tree:   containers of arrays and numbers, such as parameters and the states of an optimizer.
    wait:   whether to wait until the checkpoint is complete. Otherwise the current values of `tree` are
            written while the program continues, and a failure is raised by the next wait: `tj.wait_all()`,
            as EngineError with the error as ``__cause__``, or the next `save_checkpoint`, which waits for
            this one.
    Raises OSError on the ranks that cannot write and PeerError on the others; the previous checkpoint then
    remains the latest. Raises ArgumentError if `step` is not a non-negative integer.

    >>> import tempfile, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tj.distributed.save_checkpoint(folder, {"w": tj.ones(2)}, step=3)
    ...     tj.distributed.load_checkpoint(folder)
    ({'w': NDArray([1., 1.], dtype=float32)}, 3)
    """
    if type(step) is not int or step < 0:
        raise locate(
            ArgumentError(f"save_checkpoint: step must be an integer >= 0, got {step!r}"), user_location()
        )
    if _pending:
        _wait(_pending.pop())
    leaves, structure = trees.flatten(tree)
    mine = {i: leaves[i] if wait else _copied(leaves[i]) for i in range(rank(), len(leaves), size())}
    skeleton = trees.unflatten(structure, range(len(leaves)))
    saving = _Saving(pathlib.Path(folder), step, mine, skeleton, user_location())
    complete = saving.start()
    if wait:
        _wait(complete)
    else:
        _pending.append(complete)


def _wait(complete: engine.Variable) -> None:
    """Wait for a checkpoint; raise the original OSError if it failed and no earlier wait has raised it."""
    try:
        wait_once(complete)
    except EngineError as error:
        if isinstance(error.__cause__, OSError):  # or PeerError, a subclass
            raise error.__cause__ from None
        raise


_pending: list[engine.Variable] = []
"""The checkpoint that was started last, unless a caller has waited for it."""


def _copied(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, NDArray | np.ndarray) else leaf


class _Saving:
    """A checkpoint being written, as tasks on the threads of the host lane with exchanges of status between:

    write -> gather failures of all ranks -> publish, on rank 0 -> gather its failure -> finish
    """

    def __init__(
        self, folder: pathlib.Path, step: int, mine: dict[int, Any], skeleton: Any, location: str | None
    ) -> None:
        self._folder, self._step, self._new = folder, step, folder / f"step-{step}"
        self._mine, self._skeleton, self._location = mine, skeleton, location
        self._failure: OSError | None = None

    def start(self) -> engine.Variable:
        """Push the tasks; return the variable written when all ranks know the checkpoint to be complete."""
        complete = engine.Variable("checkpoint")
        arrays = [x for x in self._mine.values() if hasattr(x, "wait")]
        written = self._failures(self._write, arrays)
        published = self._failures(lambda: self._publish(written), [written])
        engine.push(lambda: self._finish(written, published), [written, published], [complete], name=NAME)
        return complete

    def _failures(self, action: Callable[[], None], reads: Sequence[NDArray]) -> NDArray:
        """Run an action as a task on each rank; return an array with a nonzero element per failed rank."""
        failed = zeros(1)

        def run() -> None:
            try:
                action()
            except OSError as error:
                self._failure = error
                failed[...] = 1.0

        engine.push(run, reads=reads, writes=[failed], name=NAME)
        return all_gather(failed)

    def _write(self) -> None:
        from tracejit.frontend.arrays.io import save  # importing `zipfile` takes 4 ms

        self._new.mkdir(parents=True, exist_ok=True)
        save(self._new / f"part-{rank()}.npz", {str(i): leaf for i, leaf in self._mine.items()})
        if rank() == 0:
            save(self._new / "tree.npz", self._skeleton)

    def _publish(self, written: NDArray) -> None:
        if rank() == 0 and not written.numpy().any():
            _publish(self._folder, self._new, self._step)

    def _finish(self, written: NDArray, published: NDArray) -> None:
        if self._failure is not None:
            raise self._failure
        failed = np.flatnonzero(written.numpy() + published.numpy())
        if len(failed):
            names = ", ".join(map(str, failed))
            error = PeerError(f"save_checkpoint: rank {names} could not write step {self._step}")
            error.out_of_step = False
            raise locate(error, self._location)


def _publish(folder: pathlib.Path, new: pathlib.Path, step: int) -> None:
    """Atomically make `new` the latest checkpoint of a folder, then remove the other checkpoints."""
    import shutil  # rarely needed

    temporary = folder / (LATEST + ".new")
    with open(temporary, "w") as file:
        json.dump({"step": step, "parts": size()}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / LATEST)
    for other in folder.glob("step-*"):
        if other != new:
            shutil.rmtree(other, ignore_errors=True)


def load_checkpoint(folder: str | os.PathLike[str]) -> tuple[Any, int] | None:
    """Load the latest complete checkpoint of a folder as (tree, step); return None if there is none.

    It may have been written by a different number of ranks.

    >>> import tempfile, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(tj.distributed.load_checkpoint(folder))
    None
    """
    from tracejit.frontend.arrays.io import load  # imported late as in `_write`

    root = pathlib.Path(folder)
    if not (root / LATEST).exists():
        return None
    latest = json.loads((root / LATEST).read_text())
    saved = root / f"step-{latest['step']}"
    leaves: dict[str, Any] = {}
    for number in range(latest["parts"]):
        leaves |= load(saved / f"part-{number}.npz")
    skeleton = load(saved / "tree.npz")
    return trees.map(lambda i: leaves[str(i)], skeleton), latest["step"]
