"""The report of a run: tables on the console and in Markdown, a plot, and a file with all findings.

Findings are JSON data:

    {"date", "machine", "versions", "settings",
     "workloads": {name: {"kind", "best", "ratios": {side: ...}, "sides": {side: ...}}},
     "cold": {...}, "engine": {...}, "recording": {...}, "memory": {...}, "bandwidth": {...},
     "devices": {...}, "exchange": {...},
     "prediction": {...}}
"""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import json
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import ROOT, installed
from benchmarks.marks import judge
from benchmarks.workload import OURS

README = pathlib.Path(__file__).parent / "README.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
COLUMNS = (
    "side", "import s", "first s, empty", "record ms", "compile ms", "run ms",
    "first s, filled", "record ms", "load ms", "run ms", "call", "25 to 75 %", "ours / it", "25 to 75 %",
)  # fmt: skip
MET = {True: "met", False: "missed", None: "not measured"}


def surroundings(peers: Iterable[str], settings: dict[str, Any]) -> dict[str, Any]:
    """Date, machine, versions and settings of a run."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "machine": {
            "processor": _processor(),
            "processors": os.cpu_count(),
            "memory GiB": round(memory, 1),
            "system": f"{platform.system()} on {platform.machine()}, {' '.join(platform.libc_ver())}",
            "load at start": os.getloadavg()[0],
        },
        "versions": {
            "python": platform.python_version(),
            "commit": commit.stdout.strip(),
            **installed(peers),
        },
        "settings": settings,
    }


def _processor() -> str:
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


# -- numbers as text -----------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """Format a duration with three digits and a unit.

    >>> duration(0.00123), duration(4.2e-07)
    ('1.23 ms', '420 ns')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _number(value: float | None, scale: float = 1.0) -> str:
    return "" if value is None else f"{value * scale:.3g}"


def _milliseconds(first: dict[str, float]) -> list[str]:
    return [_number(first.get(part), 1e3) for part in ("record", "compile", "run")]


def rows_of(result: dict[str, Any]) -> list[list[str]]:
    """A workload's table: one row per side."""
    rows = []
    for side, found in result["sides"].items():
        name = f"{side} (best peer)" if side == result["best"] else side
        if found["status"] != "ok":
            rows.append([name, found["status"]])
            continue
        cold, warm = found["cold"], found["warm"]
        row = [name, _number(found["import"])]
        row += [_number(cold.get("first")), *_milliseconds(cold)]
        row += [_number(warm.get("first")), *_milliseconds(warm)]
        row += [duration(found["median"]), f"{duration(found['low'])} to {duration(found['high'])}"]
        ratio = result["ratios"].get(side)
        row += [f"{ratio['ratio']:.2f}", f"{ratio['low']:.2f} to {ratio['high']:.2f}"] if ratio else ["", ""]
        rows.append(row)
    return rows


def section_rows(findings: Any, prefix: str = "") -> list[list[str]]:
    """Flatten the nested findings of a section into rows of a path and a value."""
    rows = []
    for key, value in findings.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict):
            rows += section_rows(value, f"{path}: ")
        else:
            rows.append([path, f"{value:,.4g}" if isinstance(value, float) else str(value)])
    return rows


SECTIONS = {
    "cold": "Cold starts, seconds",
    "engine": "Engine (chain ns, push, replay and python us, branches times as fast)",
    "recording": "First calls (record: us per operation; passes, assembly: us per node)",
    "memory": "Memory, bytes",
    "bandwidth": "Bandwidth on 256 MB, bytes per second",
    "devices": "Devices, KVStore and overlap (eager, replay us; computing, step s; others are ratios)",
    "exchange": "Sums over ranks, us by ranks and MiB",
    "prediction": "The simulator against ranks, by link and ranks (predicted, measured: s; error: a part)",
}


# -- console -------------------------------------------------------------------------------------------------


def show_workload(console: Console, name: str, result: dict[str, Any]) -> None:
    """Print the table of one workload."""
    console.print(name, style="italic")
    table = Table(show_edge=False)
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows_of(result):
        if len(row) == 2:
            console.print(f"{row[0]}: {row[1]}", style="yellow", markup=False)
        else:
            table.add_row(*row)
    console.print(table)


def show_section(console: Console, name: str, findings: dict[str, Any]) -> None:
    """Print the findings of one section."""
    console.print(SECTIONS[name], style="italic")
    table = Table("what", "value", show_edge=False)
    for row in section_rows(findings):
        table.add_row(*row)
    console.print(table)


def show_marks(console: Console, findings: dict[str, Any]) -> None:
    """Show every mark with its measurement."""
    console.print("Marks", style="italic")
    table = Table("mark", "of", "limit", "measured", "", show_edge=False)
    styles = {True: "green", False: "red", None: "yellow"}
    for row in judge(findings):
        table.add_row(row.text, row.label, row.limit, row.value, MET[row.met], style=styles[row.met])
    console.print(table)


# -- files ---------------------------------------------------------------------------------------------------


def write_json(findings: dict[str, Any], path: pathlib.Path) -> None:
    """Write all findings, with the judged marks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    marks = [vars(row) for row in judge(findings)]
    path.write_text(json.dumps(findings | {"marks": marks}, indent=1) + "\n")


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [*row, *[""] * (len(head) - len(row))]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return lines


def markdown(findings: dict[str, Any]) -> str:
    """All tables as Markdown."""
    machine = ", ".join(f"{key} {value}" for key, value in findings["machine"].items())
    versions = ", ".join(f"{key} {value}" for key, value in findings["versions"].items())
    settings = ", ".join(f"{key} {value}" for key, value in findings["settings"].items())
    lines = [
        f"Taken {findings['date']}; {machine}.",
        "",
        f"Versions: {versions}.",
        "",
        f"Settings: {settings}.",
    ]
    marks = [(row.text, row.label, row.limit, row.value, MET[row.met]) for row in judge(findings)]
    lines += ["", "### Marks", ""]
    lines += _markdown_table(("mark", "of", "limit", "measured", ""), marks)
    for name, result in findings["workloads"].items():
        lines += ["", f"### {name}", "", *_markdown_table(COLUMNS, rows_of(result))]
    for name, title in SECTIONS.items():
        if name in findings:
            lines += ["", f"### {title}", ""]
            lines += _markdown_table(("what", "value"), section_rows(findings[name]))
    return "\n".join(lines)


def write_readme(findings: dict[str, Any], path: pathlib.Path = README) -> None:
    """Write the plot and the tables between the two comments of the README."""
    text = path.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(
        f"{before}{BEGIN}\n![Our time over each peer's](ratios.png)\n\n{markdown(findings)}\n{END}{after}"
    )


def plot(findings: dict[str, Any], path: pathlib.Path) -> bool:
    """Plot our time over each peer's, one line per workload, as PNG; return False if matplotlib is not
    installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    pyplot = _pyplot()
    workloads = {name: result for name, result in findings["workloads"].items() if result["ratios"]}
    sides = sorted({side for result in workloads.values() for side in result["ratios"]})
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.32 * len(workloads)), layout="constrained")
    for side in sides:
        points = [
            (result["ratios"][side]["ratio"], line)
            for line, result in enumerate(workloads.values())
            if side in result["ratios"]
        ]
        axes.plot(*zip(*points, strict=True), "o", markersize=6, label=side)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(workloads)), list(workloads))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.grid(axis="x", which="both", alpha=0.3)
    axes.set_xlabel(f"{OURS}'s time over the peer's (left of 1: {OURS} is faster)")
    axes.set_title(findings["machine"]["processor"])
    if sides:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return True


def _pyplot() -> Any:
    """Import matplotlib.pyplot with the backend that draws into files."""
    importlib.import_module("matplotlib").use("agg")
    return importlib.import_module("matplotlib.pyplot")
