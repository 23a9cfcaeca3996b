"""The simulator's prediction of a step on several ranks, against the measured step.

    python -m benchmarks.prediction NET     one process that measures the costs of the step of
                                            `benchmarks.scaling`, and prints one line of JSON

The ranks share this machine, so each has a share of its processors, and the link between them is imitated.
The *slow* link limits the step; with the *fast* one the ranks compute most of the time. By link and ranks:

predicted, measured    seconds from step to step; measured: the minimum of several runs, because other load
                       of the machine can only add time
error                  of the prediction, relative to the measured value

The machine must be idle: the prediction does not model other programs.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
import tempfile
from typing import Any

from benchmarks.harness import Run, SideFailed

NET = "mlp"
RANKS = (2, 4)
LINKS = {"slow": "1e-3,4e7", "fast": "1e-4,1e9"}
RUNS = 8
PROGRAM = str(pathlib.Path(__file__).with_name("scaling.py"))


def measure(run: Run) -> dict[str, Any]:
    """Findings by link and number of ranks."""
    caches = run.caches()
    predicted = run.module("prediction", NET, caches=caches)
    found: dict[str, Any] = {}
    for link, text in LINKS.items():
        found[link] = {}
        for ranks in RANKS:
            measured = _measured(run, caches, ranks, text)
            expected = predicted[link][str(ranks)]
            error = expected / measured - 1
            found[link][str(ranks)] = {"predicted": expected, "measured": measured, "error": error}
    return found


def _measured(run: Run, caches: pathlib.Path, ranks: int, link: str) -> float:
    """The minimum time from step to step on the given number of ranks."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "found.json"
        runs = "1" if run.quick else str(RUNS)
        given = ["run", "-n", str(ranks), PROGRAM, NET, "--runs", runs, "--json", str(result)]
        launch = f"import sys; from tracejit.cli import main; sys.exit(main({given!r}))"
        run.python("-c", launch, caches=caches, TRACEJIT_LINK=link)
        if not result.exists():
            raise SideFailed(f"{ranks} ranks have found nothing")
        return float(json.loads(result.read_text())["best"])


def predict(net: str) -> dict[str, dict[str, float]]:
    """Seconds from step to step, by link and number of ranks, from the costs in this process."""
    from tracejit import engine  # the parent process does not need the engine
    from tracejit.distributed.measuring import measure_program
    from tracejit.distributed.simulation import WITHIN

    with contextlib.redirect_stdout(sys.stderr):
        step = measure_program([PROGRAM, net])
    found: dict[str, dict[str, float]] = {}
    for link, text in LINKS.items():
        latency, bandwidth = map(float, text.split(","))
        found[link] = {}
        for ranks in RANKS:
            cores = engine.processors() / ranks
            told = step.predict(ranks, latency, bandwidth, cores=cores, costs=WITHIN, control=0.0)
            found[link][str(ranks)] = told.seconds
    return found


if __name__ == "__main__":
    print(json.dumps(predict(sys.argv[1])))
