"""The loops of a ROWS kernel: one kept index after the other, the reduced dimensions inside.

    for unit in range(lo, hi):
        t0 = ...                                           # a loop for each section
        for i1 in independent(0, n1):
            ...
            t0 = maximum(t0, v0)
        v1 = ...                                           # steps that run once for a row
        for i1 in independent(0, n1):
            ...

If the last loop and the first one use different rows of scratch memory, it runs one row later (software
pipelining):

    for unit in range(lo, hi + 1):
        if unit < hi:                                      # the first loop of row `unit`
            ...
        if unit > lo:                                      # the last loop of the row before
            ...
        if unit < hi:                                      # the other loops of row `unit`
            ...

or, if it streams, as part of the second loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracejit.codegen.cpu.loops import LoopText, Placed
from tracejit.codegen.spec import Instruction, KernelSpec, Section
from tracejit.codegen.text import layouts_of

FINAL = {"load", "index", "apply", "recall", "store", "stream"}
"""Kinds of steps of a loop that only finishes a row: it reduces nothing and cannot fail."""


def emit_rows(kernel: LoopText) -> None:
    """Write a ROWS kernel: one kept index after the other, loops over the reduced dimensions inside."""
    if overlaps(kernel.spec):
        emit_overlapping_rows(kernel)
        return
    with kernel.block("for unit in range(lo, hi):"):
        begin_row(kernel)
        for section in kernel.spec.sections:
            row_section(kernel, section)


def overlaps(spec: KernelSpec) -> bool:
    """Whether the last loop of a row, which stores the results of the earlier ones, may run after the first
    one of the next row: they share no row in scratch memory.
    """
    loops = [section for section in spec.sections if section.level == "full"]
    last = spec.sections[-1]
    if not spec.kept or spec.reduced != 1 or spec.pieces or len(loops) < 2 or loops[-1] is not last:
        return False
    kept = {step.position for step in loops[0].steps if step.kind == "keep"}
    recalled = {step.position for step in last.steps if step.kind == "recall"}
    return not kept & recalled and {step.kind for step in last.steps} <= FINAL


def emit_overlapping_rows(kernel: LoopText) -> None:
    """Software pipelining: each row's last loop after the first one of the next row. The code after a
    reduction waits for its end; meanwhile the processor executes the other loop.
    """
    *head, last = kernel.spec.sections
    second = [n for n, section in enumerate(kernel.spec.sections) if section.level == "full"][1]
    values = values_before(kernel.spec, last)
    for value, dtype in values.values():  # 1: it may be a divisor before the first row ends
        kernel.line(f"v{value} = {kernel.number_one(dtype)}")
    places = [n for n in layouts_of([last]) if any(d < kernel.spec.lane for d in kernel.spec.moving(n))]
    for layout in places:
        kernel.line(f"before{layout} = {kernel.type('int64')}(0)")
    along = second < len(head) and goes_along(last, head[second])
    with kernel.block("for unit in range(lo, hi + 1):"):
        with kernel.block("if unit < hi:"):
            begin_row(kernel)
            for section in head[:second]:
                row_section(kernel, section)
            there = kernel.bases | {layout: f"before{layout}" for layout in places}
            before = [(there, step) for step in reading(last.steps, values)]
            if along:
                emit_both_loops(kernel, head[second], before, places)
                finish_row(kernel, head[second + 1 :], values, places)
        with kernel.block("elif unit > lo:" if along else "if unit > lo:"):
            reduce_rows(kernel, Section(last.level, ()), before)
        if not along:
            with kernel.block("if unit < hi:"):
                finish_row(kernel, head[second:], values, places)


def finish_row(
    kernel: LoopText,
    sections: Sequence[Section],
    values: Mapping[int, tuple[int, str]],
    places: Sequence[int],
) -> None:
    """The rest of a row but for its last loop, and the values that this loop will read."""
    for section in sections:
        row_section(kernel, section)
    for number, (value, _) in values.items():
        kernel.line(f"v{value} = v{number}")
    for layout in places:
        kernel.line(f"before{layout} = {kernel.bases[layout]}")


def goes_along(last: Section, second: Section) -> bool:
    """Whether the last loop of a row, whose results are streamed, is fused with the second loop of the next
    row, which computes while memory takes the lines.
    """
    results = {step.kind for step in last.steps} & {"store", "stream"}
    kinds = {step.kind for step in second.steps}
    return results == {"stream"} and kinds <= FINAL | {"keep", "fold", "prefetch"}


def emit_both_loops(
    kernel: LoopText, section: Section, before: Sequence[Placed], places: Sequence[int]
) -> None:
    """A loop of this row, fused with the last one of the row before. Sums must not depend on the position of
    a row in its chunk, so the first row runs the same loop: it computes on its own memory, and streams
    nothing.
    """
    with kernel.block("if unit == lo:"):
        for layout in places:
            kernel.line(f"before{layout} = {kernel.bases[layout]}")
    reduce_rows(kernel, section, before)


def values_before(spec: KernelSpec, last: Section) -> dict[int, tuple[int, str]]:
    """A second number for each value of a row that its last section reads, for the copy that outlives the
    row, and its dtype.
    """
    made = {step.result: step.dtype for section in spec.sections[:-1] for step in section.steps}
    count = 1 + max(
        step.result for steps in (spec.prologue, *(s.steps for s in spec.sections)) for step in steps
    )
    read = dict.fromkeys(a for step in last.steps for a in step.args if a in made)
    return {number: (count + number, made[number]) for number in read}


def reading(steps: Sequence[Instruction], values: Mapping[int, tuple[int, str]]) -> tuple[Instruction, ...]:
    """`steps` on the values of the row before."""
    return tuple(s.replace(args=tuple(values[a][0] if a in values else a for a in s.args)) for s in steps)


def begin_row(kernel: LoopText) -> None:
    """The indices of a unit of a ROWS kernel, and the place of its row."""
    kept = range(kernel.spec.kept)
    kernel.unravel(kernel.piece("unit"), kept)
    kernel.set_bases(kernel.spec.sections, kept)


def row_section(kernel: LoopText, section: Section) -> None:
    """A section of a row: steps that run once, or a loop over the row."""
    if section.level == "full":
        reduce_rows(kernel, section)
        return
    for step in section.steps:
        kernel.row_step(step)


def reduce_rows(kernel: LoopText, section: Section, before: Sequence[Placed] = ()) -> None:
    """A loop over all reduced dimensions whose accumulators are variables; its rounds begin with the steps
    `before`.
    """
    spec = kernel.spec
    for step in kernel.accumulators(section):
        ranked = kernel.is_ranked(step)
        start = f"{kernel.type(step.dtype.replace('float', 'uint'))}(0)" if ranked else kernel.identity(step)
        kernel.line(f"t{step.position} = {start}")
        if kernel.is_blocked(step) and step.dtype == "float64":
            kernel.line(f"e{step.position} = {kernel.type('float64')}(0)")
    outer = range(spec.kept, spec.lane)
    bases, depth = dict(kernel.bases), kernel.depth
    for d in outer:
        first, last = kernel.bounds(d)
        kernel.line(f"for i{d} in range({first}, {last}):")
        kernel.depth += 1
    if outer:
        kernel.set_bases([section], outer, "q")
        line = f"i{outer[0]}"
        for d in [*outer[1:], spec.lane]:
            line = f"({line}) * n{d}" + (f" + i{d}" if d != spec.lane else "")
        if any(s.kind in ("keep", "recall") for s in section.steps):
            kernel.line(f"line = {line}")
    kernel.lane_loop(section, *kernel.bounds(spec.lane), before)
    kernel.bases, kernel.depth = bases, depth
