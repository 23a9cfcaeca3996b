"""Tuning of CPUs, measured on x86 servers; docs/lab describes the experiments."""

from tracejit.tuning.record import Caches, Tuning, Units, WorkCosts

TUNING = Tuning(
    kind="cpu",
    caches=Caches(line=64, page=4096, private=4 << 20, last=32 << 20, streamed=128 << 20, scratch=1 << 21),
    units=Units(
        nanoseconds=40_000,
        shares=8,
        many=256,
        longer=16,
        narrow=8,
        columns=1024,
        wide=16384,
        lines=8,
        run=256,
        side=64,
        tiles=8,
        piece=65536,
        enough=64,
        part=128,
        row_pieces=16,
    ),
    costs=WorkCosts(
        access=0.4,
        gathered=2.0,
        expensive=2.0,
        operator=0.05,
        transcendental=10,
        flops=10,
        starting=5000,
    ),
    sweeps=True,
    panels=True,
    several_axes=True,
    passes=frozenset({"attend", "recompute", "roll", "weight_sums", "winograd"}),
)
