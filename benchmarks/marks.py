"""The marks: the expectations of the comparison, each with its measurement.

A mark is a limit and a function from the findings of a run to labelled values; there is one row for every
value, including unmeasured ones. Ratios are our time over the best peer's, unless the text says
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cold import STEP
from benchmarks.exchange import RANKS as EXCHANGING
from benchmarks.exchange import SIZES
from benchmarks.memory import FORWARD, NETS, TRAINING, WHOLE, forward_of
from benchmarks.prediction import LINKS
from benchmarks.recording import BODIES
from benchmarks.workload import OURS
from benchmarks.workloads import WORKLOADS, rounds
from benchmarks.workloads.convolutions import GRADIENTS, RESULTS
from benchmarks.workloads.loops import PLAIN
from benchmarks.workloads.undecorated import CHAINS, LOOPS

Findings = dict[str, Any]
Labelled = Iterable[tuple[str, float | None]]
KERNELS = [name for name, workload in WORKLOADS.items() if workload.kind == "kernel"]


@dataclass(frozen=True)
class Mark:
    """A limit on values; `unit` scales and labels them. Values without a unit are ratios."""

    text: str
    limit: float
    values: Callable[[Findings], Labelled]
    unit: str = ""
    at_least: bool = False


@dataclass(frozen=True)
class Row:
    """A mark compared with one measured value. `met` is None if nothing was measured."""

    text: str
    label: str
    limit: str
    value: str
    met: bool | None


def dig(findings: Any, *path: str) -> Any:
    """The value at a path of keys, None if it is missing."""
    for key in path:
        if not isinstance(findings, dict) or key not in findings:
            return None
        findings = findings[key]
    return findings


def against_best(findings: Findings, name: str) -> float | None:
    """Our ratio to the best peer in a workload."""
    best = dig(findings, "workloads", name, "best")
    return None if best is None else dig(findings, "workloads", name, "ratios", best, "ratio")


def _best(*names: str) -> Callable[[Findings], Labelled]:
    return lambda found: [(name, against_best(found, name)) for name in names]


def _against(name: str, side: str) -> Callable[[Findings], Labelled]:
    return lambda found: [(f"{name} / {side}", dig(found, "workloads", name, "ratios", side, "ratio"))]


def _at(label: str, *path: str) -> Callable[[Findings], Labelled]:
    return lambda found: [(label, dig(found, *path))]


def _first(workload: str) -> Callable[[Findings], Labelled]:
    """The first call with a store that contains only the executor."""
    return _at(workload, "cold", f"executor {workload}", "first")


def _firsts(names: Iterable[str]) -> Callable[[Findings], Labelled]:
    return lambda found: [row for name in names for row in _first(name)(found)]


def _again(workload: str, part: str = "") -> Callable[[Findings], Labelled]:
    """The first call of a process with the caches of an earlier process, minus the time of the step; or a
    part of that call."""

    def values(found: Findings) -> Labelled:
        ours = dig(found, "workloads", workload, "sides", OURS) or {}
        first, step = dig(ours, "warm", part or "first"), 0 if part else dig(ours, "median")
        yield workload, None if first is None or step is None else first - step

    return values


def _together(side: str, names: Sequence[str]) -> Callable[[Findings], Labelled]:
    """The geometric mean of ratios to one side; None unless all were measured."""

    def values(found: Findings) -> Labelled:
        ratios = [dig(found, "workloads", name, "ratios", side, "ratio") for name in names]
        yield side, None if None in ratios else math.prod(ratios) ** (1 / len(ratios))

    return values


def _geometric_mean(names: Sequence[str]) -> Callable[[Findings], Labelled]:
    """The geometric mean of ratios to the best peers; None unless all were measured."""

    def values(found: Findings) -> Labelled:
        measured = [ratio for name in names if (ratio := against_best(found, name)) is not None]
        complete = len(measured) == len(names)
        yield (
            f"geometric mean of {len(measured)} of {len(names)}",
            math.prod(measured) ** (1 / len(names)) if complete else None,
        )

    return values


def _single_kernels(found: Findings) -> Labelled:
    """The ratios of single kernels. The Adam update has a separate mark against the handwritten loop; here it
    is compared with the other peers."""
    for name in KERNELS:
        ratios = dig(found, "workloads", name, "ratios") or {}
        if name == "adam-4M":
            others = [ratio["ratio"] for side, ratio in ratios.items() if side != "numba"]
            yield f"{name} (without numba)", max(others, default=None)
        else:
            yield name, against_best(found, name)


def _bandwidths(found: Findings) -> Labelled:
    triad = dig(found, "bandwidth", "triad")
    if triad is None:
        return [("all kernels", None)]
    return [(name, value / triad) for name, value in found["bandwidth"].items() if name != "triad"]


def _eager(side: str, names: Iterable[str]) -> Callable[[Findings], Labelled]:
    return lambda found: [(name, dig(found, "workloads", name, "ratios", side, "ratio")) for name in names]


def _recorded(found: Findings) -> Labelled:
    return [(body, dig(found, "recording", body, "record")) for body in BODIES]


def _planned(names: Iterable[str]) -> Callable[[Findings], Labelled]:
    def values(found: Findings) -> Iterator[tuple[str, float | None]]:
        for name in names:
            naive, planned = (dig(found, "memory", name, OURS, key) for key in ("naive", "planned"))
            yield name, planned / naive if naive else None

    return values


def _peaks(found: Findings) -> Labelled:
    for name in TRAINING:
        ours = dig(found, "memory", name, OURS, "step")
        sides = dig(found, "memory", name) or {}
        others = [step for side in sides if side != OURS and (step := dig(sides, side, "step")) is not None]
        yield name, ours / min(others) if ours is not None and others else None


def _resident(found: Findings) -> Labelled:
    for name in WHOLE:
        sides = dig(found, "memory", name) or {}
        ours, others = (
            dig(sides, OURS, "peak"),
            [peak for side in sides if side != OURS and (peak := dig(sides, side, "peak")) is not None],
        )
        yield name, ours / min(others) if ours is not None and others else None


def _allocations(found: Findings) -> Labelled:
    for name in TRAINING:
        yield name, dig(found, "memory", name, OURS, "allocations")


def _bandwidth_of(side: str) -> Callable[[Findings], Labelled]:
    """The bandwidth of our exchange over that of another side."""

    def values(found: Findings) -> Iterator[tuple[str, float | None]]:
        for ranks in EXCHANGING:
            for mib in SIZES:
                times = dig(found, "exchange", str(ranks), str(mib)) or {}
                label = f"{ranks} ranks, {mib} MiB"
                yield label, times[side] / times["exchange"] if side in times else None

    return values


def _errors(ranks: str) -> Callable[[Findings], Labelled]:
    """The relative errors of the simulator's predictions, of either sign."""

    def values(found: Findings) -> Iterator[tuple[str, float | None]]:
        for link in LINKS:
            error = dig(found, "prediction", link, ranks, "error")
            yield f"{link} link", None if error is None else abs(error)

    return values


MARKS = [
    Mark("MLP step (16,64,32), of JAX", 0.6, _against("mlp-momentum-16x64x32", "jax")),
    Mark("MLP step (16,64,32) with Adam, of JAX", 0.6, _against("mlp-adam-16x64x32", "jax")),
    Mark("MLP step (128,784,512)", 0.9, _best("mlp-momentum-128x784x512", "mlp-adam-128x784x512")),
    Mark("MLP step (1024,784,1024)", 1.0, _best("mlp-momentum-1024x784x1024", "mlp-adam-1024x784x1024")),
    Mark("every single-kernel workload", 1.0, _single_kernels),
    Mark("single-kernel workloads together", 0.67, _geometric_mean(KERNELS)),
    Mark("Adam update 4M, of a Numba prange loop", 1.1, _against("adam-4M", "numba")),
    Mark("memory-bound kernels on 256 MB, of triad bandwidth", 0.85, _bandwidths, at_least=True),
    Mark("LSTM, transformer step", 0.9, _best("lstm", "transformer")),
    Mark("GPT step, 12 layers, 128 tokens", 0.75, _best("gpt-128")),
    Mark("GPT step, 12 layers, 1,024 tokens", 0.7, _best("gpt-1024")),
    Mark("ResNet-18 (32 x 32) and ResNet-50 (224 x 224) step", 0.8, _best("resnet18", "resnet50")),
    Mark("MobileNetV2 and U-Net step", 0.9, _best("mobilenetv2", "u-net")),
    Mark("convolutions of 3 x 3, results", 0.75, _geometric_mean([*RESULTS])),
    Mark("convolutions of 3 x 3, both gradients", 0.85, _geometric_mean([*GRADIENTS])),
    Mark("AdamW over 2,000 arrays, of torch's foreach", 0.3, _against("adamw-2000", "torch:foreach")),
    Mark("import tracejit", 0.15, _at("", "cold", "import tracejit"), "s"),
    Mark("first call, MLP, store with executor only", 1.0, _first(STEP), "s"),
    Mark("first call, MLP, empty store", 2.0, _at(STEP, "cold", "empty", "first"), "s"),
    Mark("first call, LSTM, store with executor only", 3.0, _first("lstm"), "s"),
    Mark("first call, transformer, store with executor only", 3.0, _first("transformer"), "s"),
    Mark("first call in a new process, filled store", 0.06, _at(STEP, "cold", "filled", "first"), "s"),
    Mark("first call with stored kernels, besides the step, ResNet-18", 0.3, _again("resnet18"), "s"),
    Mark("first call with stored kernels, besides the step, GPT", 0.4, _again("gpt-128"), "s"),
    Mark("recording of GPT's step", 0.1, _again("gpt-128", "record"), "s"),
    Mark(
        "first call with stored kernels, besides the step, AdamW over 2,000 arrays",
        0.3,
        _again("adamw-2000"),
        "s",
    ),
    Mark("new batch size", 0.015, _at(STEP, "cold", "new batch", "seconds"), "s"),
    Mark("new batch size, kernels compiled", 0, _at(STEP, "cold", "new batch", "compiled"), "kernels"),
    Mark("replay, 12 arrays and 2 numbers, Python", 10, _at("", "engine", "python"), "us"),
    Mark("replay, 12 arrays and 2 numbers, whole call", 15, _at("", "engine", "replay"), "us"),
    Mark("recording, for each operation", 20, _recorded, "us"),
    Mark("native task in a chain of 1,000", 150, _at("", "engine", "chain"), "ns"),
    Mark("two independent branches on two workers", 1.85, _at("", "engine", "branches"), "x", at_least=True),
    Mark("push of a Python task", 5, _at("", "engine", "push"), "us"),
    Mark("undecorated chains of small operations, of torch", 1.5, _eager("torch:eager", CHAINS)),
    Mark("undecorated loops over slices, of NumPy", 1.2, _eager("numpy", LOOPS)),
    Mark("programs of many rounds, of NumPy", 1.0, _eager("numpy", PLAIN)),
    Mark("programs of many rounds, of Numba, each", 2.0, _eager("numba", PLAIN)),
    Mark("programs of many rounds, of Numba, together", 1.0, _together("numba", PLAIN)),
    Mark("1,000 rounds on 200 x 200, of Numba prange", 0.7, _against("loop-stencil-200", "numba")),
    Mark("first call, programs of many rounds, store with executor only", 2.0, _firsts(PLAIN), "s"),
    Mark("first call, 64 steps of an LSTM in a loop", 0.6, _first("loop-lstm-64"), "s"),
    Mark("10,000 rounds of six operations, of JAX's fori_loop", 1.0, _best(*rounds.RANGE, *rounds.PLAIN)),
    Mark("first call, 10,000 rounds, tj.range", 0.3, _firsts(rounds.RANGE), "s"),
    Mark("first call, 10,000 rounds, plain loop", 1.5, _firsts(rounds.PLAIN), "s"),
    Mark("internal memory, planned over naive, training", 0.5, _planned((*TRAINING, *NETS))),
    Mark(
        "internal memory, planned over naive, forward only",
        0.25,
        _planned((*FORWARD, *map(forward_of, NETS))),
    ),
    Mark("memory of the step, of JAX's", 1.0, _peaks),
    Mark("bandwidth of an exchange, of mpi4py's Allreduce", 0.9, _bandwidth_of("mpi"), at_least=True),
    Mark("bandwidth of an exchange, of torch's Gloo", 1.2, _bandwidth_of("gloo"), at_least=True),
    Mark("overlap: a step less its first exchange, of the longer part", 1.1, _at("", "devices", "overlap")),
    Mark("overlap of steps in a row, the same", 1.1, _at("", "devices", "in a row")),
    Mark("KVStore in a replay, for each key", 1, _at("", "devices", "replay"), "us"),
    Mark("KVStore undecorated, push and pull", 10, _at("", "devices", "eager"), "us"),
    Mark("one rank, of a step without exchange", 1.03, _at("", "devices", "one rank")),
    Mark("error of a predicted step, 2 ranks", 0.10, _errors("2")),
    Mark("error of a predicted step, 4 ranks", 0.15, _errors("4")),
    Mark("two devices, of one thread", 1.7, _at("", "devices", "two devices"), "x", at_least=True),
    Mark("resident memory of a net's step, of torch's least", 0.8, _resident),
    Mark("allocations from the system, steps 4 to 23", 0, _allocations, "times"),
]


def judge(findings: Findings) -> list[Row]:
    """One row for every value of every mark."""
    rows = []
    for mark in MARKS:
        sense = "at least" if mark.at_least else "at most"
        limit = f"{sense} {mark.limit:g} {mark.unit}".strip()
        for label, value in mark.values(findings):
            if value is None:
                rows.append(Row(mark.text, label, limit, "not measured", None))
                continue
            met = value >= mark.limit if mark.at_least else value <= mark.limit
            rows.append(Row(mark.text, label, limit, f"{value:.3g} {mark.unit}".strip(), met))
    return rows
