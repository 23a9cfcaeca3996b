"""Runs a workload: one process per side, results compared, then bursts of calls in turn.

    with Run(threads=2, seconds=3) as run:
        result = run.workload(WORKLOADS["stencil"], peers={"numpy", "jax"})

For every side two processes are started. The first one starts with empty caches (for tracejit: a kernel store
that contains only the native executor) and measures the cold first call. The second one starts with the
caches of the first, measures the warm first call, and is then timed. `quick` omits the first.

All sides of a workload are prepared and compared with the reference before anything is timed. Then they
take turns, in a new order in each round, so that drift of the machine affects all of them. A turn is a
pause in which threads of the other sides go to sleep, one untimed call, and timed calls for its share of the
time.

The failure of a side (not installed, raises, crashes, times out, wrong results) is recorded as its `status`
and never stops the others.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from benchmarks.peers import PEERS, environment, peer_of
from benchmarks.workload import OURS, Arrays, Workload, largest_difference

ROOT = pathlib.Path(__file__).parent.parent
MAX_CALLS = 2000  # maximum number of calls in one turn
PATIENCE = 600.0  # time limit in seconds for the preparation of a side
ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")  # an error's name in a traceback


class SideFailed(Exception):
    """A side failed; the message is the reason, in one line."""


@dataclass
class Column:
    """The measurements of one side in seconds, except `times`: nanoseconds of the calls, by round."""

    status: str = "ok"
    imported: float | None = None
    cold: dict[str, float] = field(default_factory=dict)
    warm: dict[str, float] = field(default_factory=dict)
    difference: float | None = None
    times: list[list[int]] = field(default_factory=list)

    @property
    def calls(self) -> list[int]:
        """Nanoseconds of all calls."""
        return [time for turn in self.times for time in turn]

    @property
    def median(self) -> float:
        """Median nanoseconds of a call."""
        return statistics.median(self.calls)

    def summary(self) -> dict[str, Any]:
        """The summary as JSON data, for the report and its file."""
        found: dict[str, Any] = {"status": self.status, "import": self.imported}
        found |= {"cold": self.cold, "warm": self.warm, "difference": self.difference}
        if self.times:
            low, _, high = np.percentile(self.calls, (25, 50, 75))
            found |= {"median": self.median / 1e9, "low": low / 1e9, "high": high / 1e9}
            found["calls"] = len(self.calls)
        return found


def ratios(ours: Column, other: Column) -> dict[str, float]:
    """Our time over another's: the ratio of the medians over all rounds, and the quartiles of the ratios of
    single rounds.

    >>> a, b = Column(times=[[2, 2], [4, 4]]), Column(times=[[4, 4], [8, 8]])
    >>> ratios(a, b)["ratio"]
    0.5
    """
    rounds = [
        statistics.median(mine) / statistics.median(theirs)
        for mine, theirs in zip(ours.times, other.times, strict=True)
    ]
    low, high = np.percentile(rounds, (25, 75))
    return {"ratio": ours.median / other.median, "low": float(low), "high": float(high)}


class Worker:
    """The process of one side (`benchmarks.worker`), which executes commands."""

    def __init__(self, workload: str, side: str, caches: pathlib.Path, threads: int) -> None:
        self.log = caches / f"{side.replace(':', '-')}.log"
        with self.log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", workload, side, str(threads)],
                cwd=ROOT,
                env=environment(caches, threads),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ask(self, do: str, patience: float = PATIENCE, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; raise `SideFailed` if there is none."""
        write, read = self._pipes()
        timer = threading.Timer(patience, self.process.kill)
        timer.start()
        try:
            write.write(json.dumps({"do": do, **parameters}) + "\n")
            write.flush()
            answer = read.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            raise SideFailed(self._last_words(do, patience))
        return json.loads(answer)

    def _last_words(self, do: str, patience: float) -> str:
        code = self.process.wait()
        lines = [line for line in self.log.read_text().splitlines() if line.strip()]
        lines = [line for line in lines if ERROR.match(line)] or lines
        if code == -9:
            return f"{do}: no answer within {patience:.0f} s"
        return f"{do}: " + (lines[-1].strip() if lines else f"the process ended with status {code}")

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def stop(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        write, read = self._pipes()
        read.close()
        with contextlib.suppress(BrokenPipeError):  # the process ended before it had read all input
            write.close()


class Run:
    """One run of the harness: its settings and a folder for caches, which is removed at the end."""

    def __init__(self, *, threads: int, seconds: float, rounds: int = 10, quick: bool = False) -> None:
        self.threads, self.seconds, self.rounds, self.quick = threads, seconds, rounds, quick
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tracejit-benchmarks-"))
        self._caches = 0

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- caches ----------------------------------------------------------------------------------------------

    def caches(self, *, executor: bool = True) -> pathlib.Path:
        """Create a new folder of caches: empty, or with our native executor if requested."""
        self._caches += 1
        folder = self.folder / f"caches-{self._caches}"
        if executor:
            shutil.copytree(self._executor(), folder)
        else:
            folder.mkdir()
        return folder

    def _executor(self) -> pathlib.Path:
        """Caches that contain everything the engine needs to run one Python task."""
        folder = self.folder / "executor"
        if not folder.exists():
            folder.mkdir()
            program = "import tracejit as tj; tj.engine.push(lambda: None); tj.wait_all()"
            self.python("-c", program, caches=folder)
        return folder

    def python(
        self, *arguments: str, caches: pathlib.Path, patience: float = PATIENCE, **settings: str
    ) -> str:
        """Run Python in the environment of our side, with the given variables; return its output.

        Raises SideFailed if it fails.
        """
        try:
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=environment(caches, self.threads) | settings,
                capture_output=True,
                text=True,
                timeout=patience,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SideFailed(f"no end within {patience:.0f} s") from error
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise SideFailed(lines[-1] if lines else f"the process ended with status {done.returncode}")
        return done.stdout

    def module(self, name: str, *arguments: object, caches: pathlib.Path | None = None) -> dict[str, Any]:
        """Run a module of this package in a separate process; return its output, one line of JSON."""
        where = self.caches() if caches is None else caches
        output = self.python("-m", f"benchmarks.{name}", *map(str, arguments), caches=where)
        found: dict[str, Any] = json.loads(
            output[output.find("{") :]
        )  # MPI resets the terminal's colours before
        return found

    # -- workloads -------------------------------------------------------------------------------------------

    def worker(self, workload: Workload, side: str, caches: pathlib.Path) -> Worker:
        """A process for one side."""
        return Worker(workload.name, side, caches, self.threads)

    def workload(self, workload: Workload, peers: Iterable[str]) -> dict[str, Any]:
        """Prepare, compare and time the sides of the given peers (and ours); return JSON data."""
        wanted = {OURS, *peers}
        columns = {side: Column() for side in workload.sides if peer_of(side) in wanted}
        workers: dict[str, Worker] = {}
        try:
            for side, column in columns.items():
                self._attempt(column, lambda side=side: self._prepare(workload, side, columns, workers))
            self._compare(workload, columns, workers)
            self._time({s: c for s, c in columns.items() if c.status == "ok"}, workers)
        finally:
            for worker in workers.values():
                worker.stop()
        return _summary(workload, columns)

    @staticmethod
    def _attempt(column: Column, action: Any) -> None:
        try:
            action()
        except SideFailed as failure:
            column.status = f"failed: {failure}"

    def _prepare(
        self, workload: Workload, side: str, columns: Mapping[str, Column], workers: dict[str, Worker]
    ) -> None:
        """Measure first calls with empty and with filled caches; leave the second process in `workers`."""
        column = columns[side]
        if PEERS[peer_of(side)].missing():
            column.status = "missing: not installed here"
            return
        caches = self.caches(executor=peer_of(side) == OURS)
        if not self.quick:
            cold = self.worker(workload, side, caches)
            try:
                column.cold = cold.ask("first")
            finally:
                cold.stop()
        workers[side] = self.worker(workload, side, caches)
        first = workers[side].ask("first")
        column.imported = first["import"]
        if self.quick:
            column.cold = first
        else:
            column.warm = first

    def _compare(self, workload: Workload, columns: dict[str, Column], workers: dict[str, Worker]) -> None:
        """Compare results after the same number of steps; the reference is NumPy, or another peer if
        NumPy has no side."""
        found: dict[str, Arrays] = {}
        for side in sorted(workers, key=lambda side: (side != "numpy", peer_of(side) == OURS)):
            column = columns[side]
            if column.status == "ok":
                self._attempt(
                    column, lambda side=side: found.update({side: self._results(workload, workers[side])})
                )
        if not found:
            return
        reference = next(iter(found))
        for side, results in found.items():
            column = columns[side]
            try:
                column.difference = largest_difference(results, found[reference])
            except ValueError as error:
                column.status = f"differs: {error}"
                continue
            if column.difference > workload.tolerance:
                column.status = f"differs: by {column.difference:.1e} from {reference}"

    def _results(self, workload: Workload, worker: Worker) -> Arrays:
        path = self.folder / "results.npz"
        worker.ask("step", count=workload.steps - 1)
        worker.ask("read", path=str(path))
        with np.load(path) as file:
            return dict(file)

    def _time(self, columns: dict[str, Column], workers: dict[str, Worker]) -> None:
        """Time the sides in turns. A side that fails is omitted from then on."""
        share = self.seconds / self.rounds
        counts: dict[str, int] = {}
        for side, column in columns.items():
            self._attempt(column, lambda side=side: counts.update({side: self._count(workers[side], share)}))
        for number in range(self.rounds):
            sides = [side for side, column in columns.items() if column.status == "ok"]
            for side in sides[number % len(sides) :] + sides[: number % len(sides)] if sides else ():
                column, worker = columns[side], workers[side]
                self._attempt(
                    column,
                    lambda side=side, column=column, worker=worker: column.times.append(
                        worker.ask("burst", count=counts[side], warm=1)["times"]
                    ),
                )

    @staticmethod
    def _count(worker: Worker, share: float) -> int:
        """The number of calls that fill the given share of the time."""
        once = statistics.median(worker.ask("burst", count=3, warm=1)["times"]) / 1e9
        return max(1, min(MAX_CALLS, int(share / once)))


def _summary(workload: Workload, columns: dict[str, Column]) -> dict[str, Any]:
    """JSON data: all columns, our ratio to each timed side, and the name of the best peer."""
    ours = columns[OURS]
    timed = {
        side: column
        for side, column in columns.items()
        if column.status == "ok" and column.times and peer_of(side) != OURS
    }
    result: dict[str, Any] = {
        "kind": workload.kind,
        "sides": {side: column.summary() for side, column in columns.items()},
        "best": min(timed, key=lambda side: timed[side].median, default=None),
        "ratios": {},
    }
    if ours.status == "ok" and ours.times:
        result["ratios"] = {side: ratios(ours, column) for side, column in timed.items()}
    return result


def installed(peers: Iterable[str]) -> dict[str, str]:
    """Versions of the packages behind these peers; "missing" for one that is not installed."""
    found: dict[str, str] = {}
    for name in (OURS, *peers):
        peer = PEERS[name]
        found |= {peer.name: "missing"} if importlib.util.find_spec(name) is None else peer.versions()
    return found
