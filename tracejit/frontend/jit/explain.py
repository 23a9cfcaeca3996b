"""Explanations for users: why a traced function was recorded again, what it runs, and what prevents a
replay.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tracejit import ops
from tracejit.frontend.jit.entries import Path, PiecewiseSignature, Signature
from tracejit.frontend.jit.trace_tree import TraceTree
from tracejit.frontend.signature.requirements import Requirements, differences
from tracejit.ir.graph import Graph

if TYPE_CHECKING:
    from tracejit.frontend.jit.state_loops.loop_steps import LoopReport


class Retrace:
    """The reason why none of the known signatures served a call. The comparison is made when it is first
    read, or when one of the signatures is evicted: requirements keep the objects alive that they are about.
    """

    def __init__(self, required: Requirements, known: Sequence[Requirements]) -> None:
        self._required, self._known = required, known

    @functools.cached_property
    def differences(self) -> list[tuple[str, str, str]]:
        """The differences from the most similar signature: (path, old, new)."""
        nearest = min((differences(known, self._required) for known in self._known), key=len)
        self._required, self._known = {}, ()
        return nearest

    def __str__(self) -> str:
        shown = [f"{path}: {old} -> {new}" for path, old, new in self.differences[:4]]
        more = len(self.differences) - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more else "")


def reason(entry: Signature, known: Sequence[Signature]) -> Retrace | None:
    """Return why none of the `known` signatures served the call of `entry`; None if there were none."""
    return Retrace(entry.requirements, [other.requirements for other in known]) if known else None


def announce(name: str, retrace: Retrace) -> None:
    """Write to stderr that `name` retraced (`TRACEJIT_EXPLAIN=1`)."""
    sys.stderr.write(f"tracejit: {name} retraced: {str(retrace) or 'nothing that is shown differs'}\n")


def report(name: str, entries: Sequence[Signature], retraces: Sequence[Retrace], dropped: int) -> str:
    """Return the text of `f.explain()`."""
    lines = [f"{name}: {len(entries)} signature{'s' if len(entries) != 1 else ''}"]
    if dropped:
        lines[0] += f", {dropped} dropped (raise TRACEJIT_SIGNATURES to keep more)"
    for number, entry in zip(range(len(entries), 0, -1), entries, strict=True):
        lines += _describe(number, entry)
    if retraces:
        lines.append("retraces:")
        lines += [f"  {r}" for r in retraces]
        lines += _advice(retraces)
    return "\n".join(lines)


SHOWN = 4
"""The largest number of reasons shown why equal lines did not become a loop."""


def _describe(number: int, entry: Signature) -> list[str]:
    paths = entry.paths
    required = [
        f"{requirement.path}: {requirement.shown}"
        for requirement in entry.requirements.values()
        if requirement.path and not requirement.is_answer
    ]
    arguments = ", ".join(required[:12])
    lines = [f"signature {number} ({entry.replays} replays): {arguments}"]
    if isinstance(entry, PiecewiseSignature):
        text, line = entry.reason
        return [*lines, f"  runs piecewise: {text}" + (f"\n    at {line}" if line else "")]
    if isinstance(entry, TraceTree):
        lines.append(f"  {len(paths)} paths, by the values that the body looks at ({entry.traces} recorded):")
        lines += [f"    {_path(path)}" for path in paths]
    launches = {id(schedule): (graph, schedule) for path in paths for graph, schedule in path.launches}
    lines += dict.fromkeys(f"  {_iterations(report)}" for path in paths for report in path.loops)
    graphs, schedules = zip(*launches.values(), strict=True)
    operations = sum(len(graph.nodes) for graph in graphs)
    kernels = [kernel for schedule in schedules for kernel in schedule.kernels]
    lines.append(
        f"  {operations} operations became {len(kernels)} kernels; memory for intermediate arrays: "
        f"{sum(s.planned_bytes for s in schedules):,} bytes planned, "
        f"{sum(s.naive_bytes for s in schedules):,} naive"
    )
    for kernel in kernels:
        places = ", ".join(dict.fromkeys(str(p) for p in kernel.locations if p))
        lines.append(f"  {kernel.name} [{kernel.key[:8]}, {kernel.origin}]  {places}")
    missed = [m for schedule in schedules for m in schedule.missed]
    lines += [f"  not fused ({m.kind}) at {m.location}: {m.reason}" for m in missed]
    unrolled = {reason: line for graph in graphs for reason, line in graph.notes.get("unrolled", {}).items()}
    lines += [f"  not rolled: {reason}, at {line}" for reason, line in list(unrolled.items())[:SHOWN]]
    lines += [f"  {widened}" for graph in graphs for widened in _widened(graph)]
    return lines


def _path(path: Path) -> str:
    """Return how often a path served, and what it asks about the values that it looks at."""
    asked = [" ".join(each.says) for _segment, answers in path.segments for each in answers if each.says]
    shown = asked[:6] + [f"and {len(asked) - 6} more"] * (len(asked) > 6)
    return f"{path.replays} replays, {len(path.segments)} looks: {'; '.join(shown) or 'nothing is asked'}"


def _iterations(report: LoopReport) -> str:
    """Return how the iterations of a loop over looks run."""
    if report.segment is not None:
        return f"iterations up to {report.path} are one launch"
    return f"iterations up to {report.path} are a launch each: {report.reason}"


def _widened(graph: Graph) -> list[str]:
    """Return the operations that widened float32 to float64."""
    return [
        f"{node.op.name} widened float32 to float64 at {node.location}"
        for node in graph.nodes
        if node.op is ops.astype
        and node.inputs[0].type.dtype == np.float32
        and node.output.type.dtype == np.float64
    ]


def _advice(retraces: Sequence[Retrace]) -> list[str]:
    counts: dict[str, int] = {}
    for retrace in retraces:
        for path, _old, _new in retrace.differences:
            counts[path] = counts.get(path, 0) + 1
    often = [(n, p) for p, n in counts.items() if n >= 3]
    return [
        f"  {path} caused {count} retraces: keep its value out of Python control flow, shapes and "
        "formatting, or pass it as an array"
        for count, path in sorted(often, reverse=True)
    ]
