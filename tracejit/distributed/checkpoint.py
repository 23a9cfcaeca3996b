"""Checkpoints: a folder with all arrays of the last step that was saved, or else of an earlier one.

    folder/step-12/part-0.npz  part-1.npz  tree.npz      each rank writes a part of the leaves
    folder/latest.json                                   replaced last, when all parts are there

A job that ends while it writes leaves the latest complete checkpoint as it was. It is loaded on any number of
ranks.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

from tracejit.distributed.collectives import all_gather
from tracejit.distributed.world import rank, size
from tracejit.errors import ArgumentError, PeerError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.recording.location import user_location

LATEST = "latest.json"


def save_checkpoint(folder: str | os.PathLike[str], tree: Any, step: int) -> None:
    """Write arrays that are the same on all ranks; each rank writes a part of them, and all wait.

    folder: made if it is missing, on a file system that all ranks share.
    tree:   containers of arrays and numbers, such as parameters and the states of an optimizer.
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
    place = pathlib.Path(folder)
    new = place / f"step-{step}"
    leaves, structure = trees.flatten(tree)
    failure: OSError | None = None
    try:
        _write_part(new, leaves, trees.unflatten(structure, range(len(leaves))))
    except OSError as error:
        failure = error
    failed = [r for r, bad in enumerate(all_gather(asarray([failure is not None])).tolist()) if bad[0]]
    if failure is not None:
        raise failure
    if failed:
        told = PeerError(f"save_checkpoint: rank {', '.join(map(str, failed))} could not write step {step}")
        told.out_of_step = False
        raise locate(told, user_location())
    if rank() == 0:
        _publish(place, new, step)
    all_gather(asarray([0])).wait()


def _write_part(new: pathlib.Path, leaves: list[Any], skeleton: Any) -> None:
    from tracejit.frontend.arrays.io import save  # the module for ZIP files takes 4 ms

    new.mkdir(parents=True, exist_ok=True)
    save(new / f"part-{rank()}.npz", {str(i): leaves[i] for i in range(rank(), len(leaves), size())})
    if rank() == 0:
        save(new / "tree.npz", skeleton)


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
    from tracejit.frontend.arrays.io import load  # as in `_write_part`

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
