"""``tracejit run -n 4 train.py``: start the ranks of a program, and leave no processes behind.

The ranks are started by the ``mpiexec`` of this Python's environment or on the path, with the flags needed on
a shared machine: no binding to processors, more ranks than processors allowed, root allowed. When the job has
ended, or is interrupted, its remaining processes are ended, too: on Linux this process adopts the orphans of
its children.

>>> flags_of("mpiexec (OpenRTE) 5.0.11")
['--bind-to', 'none', '--map-by', ':OVERSUBSCRIBE']
>>> flags_of("HYDRA build details: Version: 4.2.1")
[]
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from tracejit.errors import EngineError

PATIENCE = 5.0  # seconds between a request to end and forced termination
ADOPT = 36  # Linux: PR_SET_CHILD_SUBREAPER

TIMELINE = "TRACEJIT_TIMELINE"
"""The environment variable with the folder to which ranks write their timelines."""

OPEN_MPI = ("OpenRTE", "Open MPI", "PRRTE", "prterun")
"""Words in the version text of Open MPI's launcher."""

ROOT = dict.fromkeys(
    (
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "PRTE_ALLOW_RUN_AS_ROOT",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
    ),
    "1",
)
"""Environment variables that allow Open MPI to start ranks as root, as in containers."""


def run(
    command: Sequence[str],
    ranks: int,
    restarts: int = 0,
    timeout: float | None = None,
    timeline: str | None = None,
) -> int:
    """Run a Python program on `ranks` ranks, and return the exit status, which is 130 after Ctrl-C.

    command:  the program and its arguments, as after ``python``.
    restarts: how often a failed job is restarted; ``TRACEJIT_RESTART`` is the number of restarts so far.
    timeout:  seconds after which the job is ended, with status 124.
    timeline: a file for the tasks of all ranks in Chrome's trace format (for Perfetto).
    Raises EngineError if there is no MPI to start ranks.
    """
    start = [sys.executable, *command]
    if ranks > 1:
        mpiexec = find_mpiexec()
        start = [mpiexec, "-n", str(ranks), *flags_of(_version(mpiexec)), *start]
    for attempt in range(restarts + 1):
        environment = {**os.environ, **ROOT, "TRACEJIT_RESTART": str(attempt)}
        if timeline is None:
            status = _job(start, environment, timeout)
        else:
            with tempfile.TemporaryDirectory() as folder:
                status = _job(start, {**environment, TIMELINE: folder}, timeout)
                _merge(pathlib.Path(folder), timeline)
        if status in (0, 124, 130):
            return status
        again = f"; starting it again ({attempt + 1} of {restarts})" if attempt < restarts else ""
        print(f"tracejit run: the job has failed with status {status}{again}", file=sys.stderr, flush=True)
    return status


def _merge(folder: pathlib.Path, timeline: str) -> None:
    """Merge the timelines written by the ranks into one file, with a process for each rank."""
    events: list[dict[str, object]] = []
    for file in sorted(folder.glob("*.json"), key=lambda path: int(path.stem)):
        rank = int(file.stem)
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        events += [{**row, "pid": rank} for row in json.loads(file.read_text())["traceEvents"]]
    pathlib.Path(timeline).write_text(json.dumps({"traceEvents": events}), encoding="utf-8")


def find_mpiexec() -> str:
    """Return the path of the MPI launcher of this Python's environment, or on the path.

    Raises EngineError if there is none.
    """
    sibling = pathlib.Path(sys.executable).parent / "mpiexec"
    launcher = str(sibling) if sibling.is_file() else shutil.which("mpiexec") or shutil.which("mpirun")
    if launcher is None:
        what = "tracejit run: no mpiexec; install MPI, for instance with pip install '.[dist]' in a checkout"
        raise EngineError(what)
    return launcher


def _version(mpiexec: str) -> str:
    try:
        result = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"tracejit run: {mpiexec} cannot be started: {error}") from error
    return result.stdout + result.stderr


def flags_of(version: str) -> list[str]:
    """Return the flags with which a launcher of this version starts any number of ranks, without binding."""
    if any(word in version for word in OPEN_MPI):
        return ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
    return []


def _job(start: Sequence[str], environment: Mapping[str, str], timeout: float | None) -> int:
    """Run the job to its end, leaving no processes, and return its exit status."""
    _adopt_orphans()
    process = subprocess.Popen(start, env=environment, start_new_session=True)
    stop = _TerminateAsInterrupt()
    try:
        with stop:
            status = process.wait(timeout)
        return 128 - status if status < 0 else status
    except subprocess.TimeoutExpired:
        print(f"tracejit run: the job has not ended after {timeout:.0f} s", file=sys.stderr, flush=True)
        return 124
    except KeyboardInterrupt:
        return 130
    finally:
        _end(process)


class _TerminateAsInterrupt(contextlib.AbstractContextManager[None]):
    """A context in which SIGTERM raises KeyboardInterrupt in this process, so that it ends the job."""

    def __enter__(self) -> None:
        self._outer = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def __exit__(self, *failure: object) -> None:
        signal.signal(signal.SIGTERM, self._outer)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the remaining processes of a job: first by SIGTERM, then by SIGKILL."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(PATIENCE)
        _signal(process.pid, signal.SIGKILL)
        process.wait()
    end = time.monotonic() + PATIENCE
    while (children := _children()) and time.monotonic() < end:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _adopt_orphans() -> None:
    """Make this process the parent of orphaned processes of the job."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)


def _children() -> list[int]:
    """Return the children of this process (on Linux only): the remaining processes of a job."""
    children: list[int] = []
    for task in pathlib.Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += map(int, task.read_text().split())
    return children
