"""The command ``tracejit``: start the ranks of a program, or predict their time; inspect, fill, verify or
clear the kernel store.

    tracejit run -n 4 train.py --epochs 3
    tracejit simulate -n 8,64 train.py --epochs 1
    tracejit cache list
    tracejit cache show 3f2a --asm
    tracejit cache warm train.py:warm

A key may be abbreviated if it is unique; a kernel's name is accepted, too. The exit status is 0, or 1 if the
command failed (or ``verify`` found an invalid entry), or 2 for an invalid command line.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from tracejit.codegen.objects.entry import Entry, structure_of
from tracejit.codegen.objects.store import NOWHERE, Store
from tracejit.config import config
from tracejit.errors import ArgumentError, TracejitError
from tracejit.launcher import run

SHORT = 12  # number of digits of a key in tables
WIDE = 160  # number of columns of output to a file or pipe


def _size(nbytes: int) -> str:
    """
    >>> _size(900), _size(25_600), _size(3 << 20)
    ('900 B', '25.0 KiB', '3.0 MiB')
    """
    if nbytes < 1024:
        return f"{nbytes} B"
    return f"{nbytes / 1024:.1f} KiB" if nbytes < 1 << 20 else f"{nbytes / (1 << 20):.1f} MiB"


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _machine(target: Sequence[str]) -> str:
    """Return the readable part of a target: triple and processor, without the list of features."""
    return " ".join(target[:2])


def _table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return table


def _facts_table(facts: Sequence[tuple[str, str]]) -> Table:
    table = _table("fact", "value")
    table.show_header = False
    for name, value in facts:
        table.add_row(f"[bold]{name}[/bold]", value)
    return table


def _kernels(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'}"


def find(store: Store, key: str) -> Entry:
    """Return the entry whose key starts with `key` or whose name is `key`. Otherwise raise ArgumentError,
    which lists the candidates.

    Versions of one kernel (for other targets, or compiled by other versions of the packages) have keys with a
    common prefix; of these, the most recently used one is returned.
    """
    entries = store.entries()
    matches = [entry for entry in entries if entry.key.startswith(key)] if key else []
    matches = matches or [entry for entry in entries if entry.name == key]
    if len({structure_of(entry.key) for entry in matches}) == 1:
        return matches[0]
    candidates = [f"  {entry.key[:SHORT]}  {entry.name}" for entry in (matches or entries)[:10]]
    if not candidates:
        raise ArgumentError(f"no kernel {key!r}: the store in {store.path or 'memory'} is empty")
    what = f"{key!r} fits {len(matches)} kernels" if matches else f"no kernel has the key or name {key!r}"
    raise ArgumentError("\n".join([f"{what}; there are:", *candidates]))


def _list(store: Store, console: Console, options: argparse.Namespace) -> int:
    columns = ("key", "name", "target", "size", "compile s", "hits", "width", "last used")
    table = _table(*columns, numbers=("size", "compile s", "hits", "width"))
    for entry in store.entries():
        table.add_row(
            entry.key[:SHORT],
            entry.name,
            _machine(entry.target),
            _size(entry.nbytes),
            f"{entry.seconds:.3f}",
            str(entry.hits),
            str(entry.metadata.get("width", "")),
            _time(entry.last_used),
        )
    console.print(table)
    return 0


def _show(store: Store, console: Console, options: argparse.Namespace) -> int:
    entry = find(store, options.key)
    if options.form == "source":
        _listing(console, entry.source, "python")
    elif options.form is not None:
        # `listing` loads Numba, which no other command needs.
        listing = importlib.import_module("tracejit.codegen.objects.listing")
        if options.form == "llvm":
            _listing(console, listing.llvm_ir(entry), "llvm")
        else:
            _listing(console, listing.assembly(entry), "gas")
    else:
        console.print(_facts_table(_facts(entry)))
    return 0


def _facts(entry: Entry) -> list[tuple[str, str]]:
    """Return the facts about an entry, as labels and values."""
    return [
        ("key", entry.key),
        ("name", entry.name),
        ("target", _machine(entry.target)),
        ("size", f"{_size(entry.nbytes)}, object code {_size(len(entry.object_code))}"),
        ("compiled", f"{_time(entry.created)} in {entry.seconds:.3f} s"),
        ("used", f"{entry.hits} times, last {_time(entry.last_used)}"),
        *((name, str(value)) for name, value in entry.metadata.items()),
        *((name, value) for name, value in entry.environment.items() if name != "target"),
    ]


def _listing(console: Console, text: str, language: str) -> None:
    """Print code, highlighted on a terminal and unchanged to a file."""
    if console.is_terminal:
        console.print(Syntax(text, language, background_color="default", word_wrap=True))
    else:
        console.out(text, highlight=False)


def _stats(store: Store, console: Console, options: argparse.Namespace) -> int:
    stats, entries = store.stats(), store.entries()
    facts = [
        ("folder", str(stats.path or "none")),
        ("kernels", str(stats.entries)),
        ("size", f"{_size(stats.nbytes)} of {_size(stats.limit)}"),
        ("loaded", f"{sum(entry.hits for entry in entries)} times"),
        ("compile time stored", f"{sum(entry.seconds for entry in entries):.1f} s"),
        ("compile time saved", f"{sum(entry.seconds * entry.hits for entry in entries):.1f} s"),
        ("problem", stats.problem or "none"),
    ]
    console.print(_facts_table(facts))
    return 0


def _path(store: Store, console: Console, options: argparse.Namespace) -> int:
    if store.path is None:
        raise ArgumentError(NOWHERE)
    console.out(store.path, highlight=False)
    return 0


def load_function(text: str) -> Callable[[], Any]:
    """Import the function ``FILE.py:NAME`` or ``module:NAME``; NAME is ``warm`` by default."""
    source, _, name = text.partition(":")
    name = name or "warm"
    if source.endswith(".py"):
        file = pathlib.Path(source).resolve()
        if not file.is_file():
            raise ArgumentError(f"warm {text}: there is no file {source}")
        sys.path.insert(0, str(file.parent))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, "")
        if importlib.util.find_spec(source) is None:
            raise ArgumentError(f"warm {text}: there is no module {source}; a file ends in .py")
        module = importlib.import_module(source)
    function = getattr(module, name, None)
    if not callable(function):
        raise ArgumentError(f"warm {text}: {source} has no function {name!r}")
    required = [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if required:
        raise ArgumentError(
            f"warm {text}: {name} needs arguments ({', '.join(required)}); "
            f"name a function without any, such as\n"
            f"  def warm():\n      {name}.warm(tj.spec((128, 784)), ...)"
        )
    return function


def _warm(store: Store, console: Console, options: argparse.Namespace) -> int:
    for text in options.functions:
        function = load_function(text)
        before = {entry.key: entry.hits for entry in store.entries()}
        start = time.perf_counter()
        function()
        seconds = time.perf_counter() - start
        after = {entry.key: entry.hits for entry in store.entries()}
        compiled = len(after.keys() - before.keys())
        loaded = sum(after.get(key, 0) > hits for key, hits in before.items())
        console.print(
            f"{text}: {_kernels(compiled)} compiled, {loaded} found, {seconds:.1f} s", highlight=False
        )
    return 0


def _verify(store: Store, console: Console, options: argparse.Namespace) -> int:
    removed, left = store.verify()
    for key, reason in removed.items():
        console.print(f"removed {key[:SHORT]}: {reason}", highlight=False)
    for key, reason in left.items():
        console.print(f"left {key[:SHORT]}: {reason}", highlight=False)
    console.print(f"{_kernels(len(store.entries()))} good, {len(removed)} removed", highlight=False)
    return 1 if removed or left or _unusable(store) else 0


def _clear(store: Store, console: Console, options: argparse.Namespace) -> int:
    console.print(f"{_kernels(store.clear())} removed", highlight=False)
    return 1 if _unusable(store) else 0


def _unusable(store: Store) -> bool:
    """Return whether the folder is unusable, after printing the reason."""
    if store.problem is not None:
        print(f"tracejit: {store.path or 'the store'} cannot be used: {store.problem}", file=sys.stderr)
    return store.problem is not None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tracejit", description="Trace-and-replay array compiler.")
    groups = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(groups)
    _add_simulate(groups)
    cache = groups.add_parser(
        "cache", help="the kernel store", description="Inspect, fill, verify or clear the kernel store."
    )
    commands = cache.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., int], help: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=help)
        added.set_defaults(run=run)
        return added

    command("list", _list, "all kernels, most recently used first")
    show = command("show", _show, "one kernel")
    show.add_argument("key", help="its key, a prefix of its key, or its name")
    form = show.add_mutually_exclusive_group()
    for name, what in (
        ("source", "its generated source"),
        ("llvm", "its LLVM IR, by recompilation"),
        ("asm", "its assembly, by recompilation"),
    ):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=what)
    command("stats", _stats, "the size of the store, and the compile time saved")
    warm = command("warm", _warm, "call functions that compile ahead (they call `.warm` of jitted functions)")
    warm.add_argument(
        "functions", nargs="+", metavar="FILE:FUNCTION", help="or module:FUNCTION; default warm"
    )
    command("verify", _verify, "check every kernel and remove damaged or foreign entries")
    command("clear", _clear, "remove all kernels")
    command("path", _path, "the folder of the store")
    return parser


def _add_run(groups: Any) -> None:
    what = "start a program on several ranks"
    parser = groups.add_parser("run", help=what, description=f"{what[0].upper()}{what[1:]} (tj.distributed).")
    parser.add_argument(
        "-n", dest="ranks", type=int, default=1, metavar="RANKS", help="number of ranks; default 1"
    )
    parser.add_argument("--restarts", type=int, default=0, help="how often a failed job is restarted")
    parser.add_argument("--timeout", type=float, help="seconds after which the job is ended")
    parser.add_argument("--timeline", metavar="FILE", help="write a timeline of all ranks, for Perfetto")
    _add_program(parser)
    parser.set_defaults(run=_run)


def _add_program(parser: argparse.ArgumentParser) -> None:
    """Add arguments for a Python program and its arguments: a file, ``-m module`` or ``-c text``."""
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="with its arguments, as after python"
    )
    # `program` does not cover these: argparse rejects a remainder that begins with a flag.
    for flag, what in ("-m", "MODULE"), ("-c", "TEXT"):
        parser.add_argument(
            flag, dest="flagged", action=_Flagged, nargs=argparse.REMAINDER, metavar=what, help="as in python"
        )


class _Flagged(argparse.Action):
    """Stores a flag followed by the words after it."""

    def __call__(self, parser: Any, options: Any, values: Any, flag: str | None = None) -> None:
        options.flagged = [flag, *values]


def _run(store: Store, console: Console, options: argparse.Namespace) -> int:
    command = options.flagged or options.program
    if not command or options.ranks < 1 or options.restarts < 0:
        raise ArgumentError("run: expected a program and at least one rank, as in tracejit run -n 4 train.py")
    return run(command, options.ranks, options.restarts, options.timeout, options.timeline)


def _add_simulate(groups: Any) -> None:
    what = "predict the time of a program's step on several ranks"
    parser = groups.add_parser(
        "simulate",
        help=what,
        description=f"{what[0].upper()}{what[1:]}, from its costs on this machine: the program runs as if "
        "another rank had the same data (tj.distributed.measure).",
    )
    parser.add_argument(
        "-n", dest="ranks", default="2,8,64,1000", metavar="RANKS,...", help="default 2,8,64,1000"
    )
    link = "seconds and bytes per second; default 5e-5,1.25e9, that is 10 Gbit/s"
    parser.add_argument("--link", default="5e-5,1.25e9", metavar="LATENCY,BANDWIDTH", help=link)
    parser.add_argument("--cores", type=float, help="of each rank; default those of this machine")
    parser.add_argument(
        "--imitated",
        action="store_true",
        help="a link emulated by TRACEJIT_LINK between ranks of one machine: control messages have no delay",
    )
    _add_program(parser)
    parser.set_defaults(run=_simulate)


def _simulate(store: Store, console: Console, options: argparse.Namespace) -> int:
    try:
        ranks = [int(text) for text in options.ranks.split(",")]
        latency, bandwidth = map(float, options.link.split(","))
    except ValueError:
        ranks = []
    command = options.flagged or options.program
    if not command or not ranks:
        raise ArgumentError(
            "simulate: expected numbers of ranks, a link and a program, as in "
            "tracejit simulate -n 8,64 --link 5e-5,1.25e9 train.py"
        )
    # These load the frontend, which the commands for the store do not need.
    measuring = importlib.import_module("tracejit.distributed.measuring")
    simulation = importlib.import_module("tracejit.distributed.simulation")
    step = measuring.measure_program(command)
    console.print(
        f"step: {len(step.work)} tasks, {step.seconds * 1e3:.2f} ms of work, {_size(step.nbytes)} exchanged",
        highlight=False,
    )
    columns = ("ranks", "step ms", "alone ms", "link ms", "efficiency")
    table = _table(*columns, numbers=columns)
    control, costs = (0.0, simulation.WITHIN) if options.imitated else (None, None)
    for count in ranks:
        prediction = step.predict(
            count, latency, bandwidth, cores=options.cores, costs=costs, control=control
        )
        times = [
            f"{1e3 * seconds:.2f}" for seconds in (prediction.seconds, prediction.alone, prediction.link)
        ]
        table.add_row(str(count), *times, f"{prediction.efficiency:.2f}")
    console.print(table)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    options = _parser().parse_args(arguments)
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    try:
        return int(options.run(Store(config.store, config.store_limit), console, options))
    except TracejitError as error:
        print(f"tracejit: {error}", file=sys.stderr)
        return 1
