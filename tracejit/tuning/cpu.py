"""Tuning of CPUs, measured on x86 servers; docs/lab describes the experiments."""

from tracejit.tuning.record import Caches, Tuning, Units, WorkCosts

TUNING = Tuning(
    kind="cpu",
    caches=Caches(line=64, page=4096, private=4 << 20, last=32 << 20, streamed=128 << 20, scratch=1 << 21),
    units=Units(
        nanoseconds=40_000,
        min_chunks=8,
        long_chunk_count=256,
        long_chunk_factor=16,
        narrow_columns=8,
        columns=1024,
        uncached_columns=16384,
        lines=8,
        streamed_run=256,
        tile_side=64,
        transposed_operands=8,
        min_piece=65536,
        enough_units=64,
        unit_columns=128,
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
