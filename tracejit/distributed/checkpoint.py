"""Checkpoints: a folder with all arrays of the last step that was saved, or else of an earlier one.

    folder/step-12/part-0.npz  part-1.npz  tree.npz      each rank writes a part of the leaves
    folder/latest.json                                   replaced last, when all parts are there

A job that ends while it writes leaves the latest complete checkpoint as it was. It is loaded on any number of
ranks. Tasks write it, so the program may go on meanwhile.
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
    """Write arrays that are the same on all ranks; each rank writes a part of them. All ranks call it.

    folder: made if it is missing, on a file system that all ranks share.
    tree:   containers of arrays and numbers, such as parameters and the states of an optimizer.
    wait:   until the checkpoint is whole. Otherwise what `tree` holds now is written while the program goes
            on, and a failure is raised by what waits next: `tj.wait_all()`, as EngineError with the error as
            ``__cause__``, or the next call of this, which waits for the checkpoint before.
    Earlier checkpoints in the folder are removed. Raises OSError on the ranks that cannot write, PeerError on
    the others; the latest checkpoint is then the earlier one.

    >>> import tempfile, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tj.distributed.save_checkpoint(folder, {"w": tj.ones(2)}, step=3)
    ...     tj.distributed.load_checkpoint(folder)
    ({'w': NDArray([1., 1.], dtype=float32)}, 3)
    """
    if type(step) is not int or step < 0:
        raise locate(
            ArgumentError(f"save_checkpoint: step is a number from 0 on, got {step!r}"), user_location()
        )
    if _under_way:
        _wait(_under_way.pop())
    leaves, structure = trees.flatten(tree)
    mine = {i: leaves[i] if wait else _copied(leaves[i]) for i in range(rank(), len(leaves), size())}
    skeleton = trees.unflatten(structure, range(len(leaves)))
    saving = _Saving(pathlib.Path(folder), step, mine, skeleton, user_location())
    whole = saving.start()
    if wait:
        _wait(whole)
    else:
        _under_way.append(whole)


def _wait(whole: engine.Variable) -> None:
    """Wait for a checkpoint; raise its failure, if no wait has, as the error itself."""
    try:
        wait_once(whole)
    except EngineError as error:
        if isinstance(error.__cause__, OSError):  # PeerError is one, too
            raise error.__cause__ from None
        raise


_under_way: list[engine.Variable] = []
"""The checkpoint that was started last, if nobody has waited for it."""


def _copied(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, NDArray | np.ndarray) else leaf


class _Saving:
    """A checkpoint on its way to the disk: tasks on the threads of the host lane, and what ranks tell each
    other between them.

        write -> all ranks: who has failed? -> publish, on rank 0 -> all ranks: has it failed? -> finish
    """

    def __init__(
        self, folder: pathlib.Path, step: int, mine: dict[int, Any], skeleton: Any, location: str | None
    ) -> None:
        self._folder, self._step, self._new = folder, step, folder / f"step-{step}"
        self._mine, self._skeleton, self._location = mine, skeleton, location
        self._failure: OSError | None = None

    def start(self) -> engine.Variable:
        """Begin; the variable that is written when all ranks know that the checkpoint is whole."""
        whole, arrays = engine.Variable("checkpoint"), [x for x in self._mine.values() if hasattr(x, "wait")]
        written = self._told(self._write, arrays)
        published = self._told(lambda: self._publish(written), [written])
        engine.push(lambda: self._finish(written, published), [written, published], [whole], name=NAME)
        return whole

    def _told(self, action: Callable[[], None], reads: Sequence[NDArray]) -> NDArray:
        """Run an action as a task; by rank, whether it has failed there."""
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
        from tracejit.frontend.arrays.io import save  # the module for ZIP files takes 4 ms

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
            told = PeerError(f"save_checkpoint: rank {names} could not write step {self._step}")
            told.out_of_step = False
            raise locate(told, self._location)


def _publish(place: pathlib.Path, new: pathlib.Path, step: int) -> None:
    """Make `new` the latest checkpoint, and remove the others."""
    import shutil  # only here

    fresh = place / (LATEST + ".new")
    with open(fresh, "w") as file:
        json.dump({"step": step, "parts": size()}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(place / LATEST)
    for other in place.glob("step-*"):
        if other != new:
            shutil.rmtree(other, ignore_errors=True)


def load_checkpoint(folder: str | os.PathLike[str]) -> tuple[Any, int] | None:
    """The latest complete checkpoint in a folder: its tree and step; None where there is none.

    It may have been written by another number of ranks.

    >>> import tempfile, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(tj.distributed.load_checkpoint(folder))
    None
    """
    from tracejit.frontend.arrays.io import load  # as in `_write`

    place = pathlib.Path(folder)
    if not (place / LATEST).exists():
        return None
    latest = json.loads((place / LATEST).read_text())
    old = place / f"step-{latest['step']}"
    leaves: dict[str, Any] = {}
    for number in range(latest["parts"]):
        leaves |= load(old / f"part-{number}.npz")
    skeleton = load(old / "tree.npz")
    return trees.map(lambda i: leaves[str(i)], skeleton), latest["step"]
