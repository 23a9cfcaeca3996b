"""``tracejit run -n 4 train.py``: start the ranks of a program, and leave no process behind.

The ranks are started by the ``mpiexec`` that belongs to this Python or is on the path, with the flags that it
needs on a machine that is shared: no binding to processors, more ranks than processors, also as root. When
it has ended, or is interrupted, what is left of the job is ended, too: on Linux this process adopts what its
children leave behind.

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

PATIENCE = 5.0  # seconds that ranks have to end when they are asked to
ADOPT = 36  # Linux: PR_SET_CHILD_SUBREAPER

TIMELINE = "TRACEJIT_TIMELINE"
"""The variable of the environment with the folder where ranks leave their timelines."""

OPEN_MPI = ("OpenRTE", "Open MPI", "PRRTE", "prterun")
"""Words in the version that Open MPI's launcher prints."""

ROOT = dict.fromkeys(
    (
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "PRTE_ALLOW_RUN_AS_ROOT",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
    ),
    "1",
)
"""Settings that let Open MPI start ranks for root, as in containers."""


def run(
    command: Sequence[str],
    ranks: int,
    restarts: int = 0,
    timeout: float | None = None,
    timeline: str | None = None,
) -> int:
    """Run a program of Python on so many ranks; returns the exit status, 130 after Ctrl-C.

    command:  the program and its arguments, as after ``python``.
    restarts: how often a job that fails is started again; ``TRACEJIT_RESTART`` counts them.
    timeout:  seconds after which the job is ended, with status 124.
    timeline: a file for the tasks of all ranks in Chrome's trace format (Perfetto shows it).
    Raises EngineError where no MPI can start ranks.
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
    """Write one timeline of those that the ranks have left, a process for each rank."""
    rows: list[dict[str, object]] = []
    for part in sorted(folder.glob("*.json"), key=lambda path: int(path.stem)):
        rank = int(part.stem)
        rows.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        rows += [{**row, "pid": rank} for row in json.loads(part.read_text())["traceEvents"]]
    pathlib.Path(timeline).write_text(json.dumps({"traceEvents": rows}), encoding="utf-8")


def find_mpiexec() -> str:
    """The launcher of MPI that belongs to this Python, or is on the path.

    Raises EngineError where there is none.
    """
    beside = pathlib.Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.is_file() else shutil.which("mpiexec") or shutil.which("mpirun")
    if found is None:
        what = "tracejit run: no mpiexec; install MPI, for instance with pip install '.[dist]' in a checkout"
        raise EngineError(what)
    return found


def _version(mpiexec: str) -> str:
    try:
        shown = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"tracejit run: {mpiexec} cannot be started: {error}") from error
    return shown.stdout + shown.stderr


def flags_of(version: str) -> list[str]:
    """The flags with which a launcher of this version starts any number of ranks, bound to no processor."""
    if any(word in version for word in OPEN_MPI):
        return ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
    return []


def _job(start: Sequence[str], environment: Mapping[str, str], timeout: float | None) -> int:
    """Run the job to its end; no process of it is left."""
    _adopt_orphans()
    process = subprocess.Popen(start, env=environment, start_new_session=True)
    stop = _Stop()
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


class _Stop(contextlib.AbstractContextManager[None]):
    """A context in which a request to terminate this process is an interrupt, so that it ends the job."""

    def __enter__(self) -> None:
        self._outer = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def __exit__(self, *failure: object) -> None:
        signal.signal(signal.SIGTERM, self._outer)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a job: asked first, then by force."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(PATIENCE)
        _signal(process.pid, signal.SIGKILL)
        process.wait()
    end = time.monotonic() + PATIENCE
    while (left := _children()) and time.monotonic() < end:
        for child in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _adopt_orphans() -> None:
    """Have processes that the job leaves behind become children of this one."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)


def _children() -> list[int]:
    """The children of this process, on Linux: those that a job has left behind."""
    found: list[int] = []
    for task in pathlib.Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found
