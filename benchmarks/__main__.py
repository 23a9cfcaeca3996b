"""Command line: ``python -m benchmarks [--only NAME] [--peers jax,torch] [--quick] [--json FILE]
[--write]``."""

from __future__ import annotations

import argparse
import fnmatch
import pathlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console

from benchmarks import cold, devices, exchange, memory, prediction, report
from benchmarks.harness import ROOT, Run, SideFailed
from benchmarks.peers import PEERS
from benchmarks.workload import OURS
from benchmarks.workloads import WORKLOADS

OUTPUT = ROOT / "build" / "benchmarks"
OTHERS = [name for name in PEERS if name != OURS]
TIMED = [name for name, workload in WORKLOADS.items() if workload.kind != "memory"]
BANDWIDTH_ROUNDS = 9
FIRST_CALLS = 7
FILE_WIDTH = 180
"""Columns of tables that go into a file or a pipe."""


def sections(run: Run, peers: Iterable[str]) -> dict[str, Callable[[], dict[str, Any]]]:
    """Measurements other than the workloads, by name."""
    rounds = 1 if run.quick else BANDWIDTH_ROUNDS
    return {
        "cold": lambda: cold.measure(run),
        "engine": lambda: run.module("engine", run.threads),
        "recording": lambda: run.module("recording", run.threads, 1 if run.quick else FIRST_CALLS),
        "memory": lambda: memory.measure(run, peers),
        "bandwidth": lambda: run.module("bandwidth", run.threads, rounds),
        "devices": lambda: devices.measure(run),
        "exchange": lambda: exchange.measure(run),
        "prediction": lambda: prediction.measure(run),
    }


def parse() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser("python -m benchmarks", description="Compare tracejit with its peers.")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="a workload, a kind of them, a section or a pattern; repeatable",
    )
    parser.add_argument("--peers", default=",".join(OTHERS), help="comma-separated; %(default)s by default")
    parser.add_argument("--quick", action="store_true", help="few calls: do results agree?")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each side's calls")
    parser.add_argument("--threads", type=int, default=2, help="processors and threads for every side")
    parser.add_argument("--json", type=pathlib.Path, default=OUTPUT / "results.json", metavar="FILE")
    parser.add_argument("--plot", type=pathlib.Path, default=OUTPUT / "ratios.png", metavar="FILE")
    parser.add_argument("--write", action="store_true", help="put tables and plot into benchmarks/README.md")
    parser.add_argument("--list", action="store_true", help="name all workloads, sections and peers")
    options = parser.parse_args()
    options.peers = [name for name in options.peers.split(",") if name]
    if unknown := set(options.peers) - set(OTHERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(OTHERS)}")
    names = [*TIMED, *report.SECTIONS]
    options.names = [name for name in names if _chosen(name, options.only)]
    if not options.names:
        parser.error(f"nothing is called {', '.join(options.only)}; there are {', '.join(names)}")
    return options


def _chosen(name: str, patterns: list[str] | None) -> bool:
    kind = WORKLOADS[name].kind if name in WORKLOADS else name
    return patterns is None or any(fnmatch.fnmatch(name, p) or kind == p for p in patterns)


def list_names(console: Console) -> None:
    """Print all names that can be selected."""
    for name in TIMED:
        console.print(f"{name:28s}{', '.join(WORKLOADS[name].sides)}", soft_wrap=True)
    for name, title in report.SECTIONS.items():
        console.print(f"{name:28s}{title}", soft_wrap=True)


def measure(console: Console, options: argparse.Namespace, findings: dict[str, Any]) -> None:
    """Fill `findings`, and show every section when it is complete."""
    rounds, seconds = (2, 0.1) if options.quick else (10, options.seconds)
    with Run(threads=options.threads, seconds=seconds, rounds=rounds, quick=options.quick) as run:
        parts = sections(run, options.peers)
        for name in options.names:
            if name in parts:
                try:
                    findings[name] = parts[name]()
                except SideFailed as failure:
                    findings[name] = {"failed": str(failure)}
                report.show_section(console, name, findings[name])
            else:
                findings["workloads"][name] = run.workload(WORKLOADS[name], options.peers)
                report.show_workload(console, name, findings["workloads"][name])
            report.write_json(findings, options.json)


def main() -> None:
    """Measure the selected sections and report them."""
    options = parse()
    console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    if options.list:
        list_names(console)
        return
    settings = {"threads": options.threads, "seconds": options.seconds, "quick": options.quick}
    findings = report.surroundings(options.peers, settings) | {"workloads": {}}
    for name, version in findings["versions"].items():
        if version == "missing":
            console.print(f"{name} is not installed: missing from this comparison", style="yellow")
    measure(console, options, findings)
    report.show_marks(console, findings)
    console.print(f"written: {options.json}")
    if report.plot(findings, options.plot):
        console.print(f"written: {options.plot}")
    else:
        console.print("no plot: matplotlib is not installed", style="yellow")
    if options.write:
        report.write_readme(findings)
        report.plot(findings, report.README.with_name("ratios.png"))
        report.write_json(findings, report.README.with_name("results.json"))


if __name__ == "__main__":
    main()
