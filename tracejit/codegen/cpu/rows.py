"""The loops of a ROWS kernel: an outer loop over the kept indices, inner loops over the reduced dimensions.

    for unit in range(lo, hi):
        t0 = ...                                           # a loop for each section
        for i1 in independent(0, n1):
            ...
            t0 = maximum(t0, v0)
        v1 = ...                                           # steps that run once for a row
        for i1 in independent(0, n1):
            ...

If the last loop of a row and the first loop of the next one use different rows of scratch memory, the last
loop is delayed by one row (software pipelining):

    for unit in range(lo, hi + 1):
        if unit < hi:                                      # the first loop of row `unit`
            ...
        if unit > lo:                                      # the last loop of the previous row
            ...
        if unit < hi:                                      # the other loops of row `unit`
            ...

If the last loop streams its results, it is fused with the second loop instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracejit.codegen.cpu.loops import AddressedStep, LoopText
from tracejit.codegen.spec import Instruction, KernelSpec, Section
from tracejit.codegen.text import layouts_of

FINAL = {"load", "index", "apply", "recall", "store", "stream"}
"""The kinds of steps in a loop that only finishes a row: it contains no reduction and cannot fail."""


def emit_rows(kernel: LoopText) -> None:
    """Emit a ROWS kernel: a loop over the kept indices, and inside it the loops over the reduced
    dimensions.
    """
    if overlaps(kernel.spec):
        emit_overlapping_rows(kernel)
        return
    with kernel.block("for unit in range(lo, hi):"):
        begin_row(kernel)
        for section in kernel.spec.sections:
            row_section(kernel, section)


def overlaps(spec: KernelSpec) -> bool:
    """Return whether the last loop of a row, which stores results of the earlier loops, may run after the
    first loop of the next row. The two loops must not share a row of scratch memory.
    """
    loops = [section for section in spec.sections if section.level == "full"]
    last = spec.sections[-1]
    if not spec.kept or spec.reduced != 1 or spec.pieces or len(loops) < 2 or loops[-1] is not last:
        return False
    kept = {step.position for step in loops[0].steps if step.kind == "keep"}
    recalled = {step.position for step in last.steps if step.kind == "recall"}
    return not kept & recalled and {step.kind for step in last.steps} <= FINAL


def emit_overlapping_rows(kernel: LoopText) -> None:
    """Emit software-pipelined rows: the last loop of each row runs after the first loop of the next one.
    The code after a reduction waits for its result; meanwhile the processor executes the other loop.
    """
    *head, last = kernel.spec.sections
    second = [n for n, section in enumerate(kernel.spec.sections) if section.level == "full"][1]
    values = previous_values(kernel.spec, last)
    for value, dtype in values.values():  # 1: it may be a divisor before the first row ends
        kernel.line(f"v{value} = {kernel.number_one(dtype)}")
    layouts = [n for n in layouts_of([last]) if any(d < kernel.spec.innermost for d in kernel.spec.moving(n))]
    for layout in layouts:
        kernel.line(f"before{layout} = {kernel.type('int64')}(0)")
    is_fused = second < len(head) and is_fusible(last, head[second])
    with kernel.block("for unit in range(lo, hi + 1):"):
        with kernel.block("if unit < hi:"):
            begin_row(kernel)
            for section in head[:second]:
                row_section(kernel, section)
            previous_bases = kernel.bases | {layout: f"before{layout}" for layout in layouts}
            previous_steps = [(previous_bases, step) for step in reading_previous(last.steps, values)]
            if is_fused:
                emit_fused_loops(kernel, head[second], previous_steps, layouts)
                finish_row(kernel, head[second + 1 :], values, layouts)
        with kernel.block("elif unit > lo:" if is_fused else "if unit > lo:"):
            reduce_rows(kernel, Section(last.level, ()), previous_steps)
        if not is_fused:
            with kernel.block("if unit < hi:"):
                finish_row(kernel, head[second:], values, layouts)


def finish_row(
    kernel: LoopText,
    sections: Sequence[Section],
    values: Mapping[int, tuple[int, str]],
    layouts: Sequence[int],
) -> None:
    """Emit the remaining sections of a row except its last loop, and copies of the values that this loop
    will read.
    """
    for section in sections:
        row_section(kernel, section)
    for number, (value, _) in values.items():
        kernel.line(f"v{value} = v{number}")
    for layout in layouts:
        kernel.line(f"before{layout} = {kernel.bases[layout]}")


def is_fusible(last: Section, second: Section) -> bool:
    """Return whether the last loop of a row is fused with the second loop of the next row. It is if its
    results are streamed: the second loop computes while the memory system accepts the lines.
    """
    results = {step.kind for step in last.steps} & {"store", "stream"}
    kinds = {step.kind for step in second.steps}
    return results == {"stream"} and kinds <= FINAL | {"keep", "fold", "prefetch"}


def emit_fused_loops(
    kernel: LoopText, section: Section, before: Sequence[AddressedStep], layouts: Sequence[int]
) -> None:
    """Emit a loop of the current row, fused with the last loop of the previous row. A sum must not depend
    on the position of a row in its chunk, so the first row runs the same fused loop: for that row, the
    loop of the previous row operates on the current row's memory and its results are not streamed.
    """
    with kernel.block("if unit == lo:"):
        for layout in layouts:
            kernel.line(f"before{layout} = {kernel.bases[layout]}")
    reduce_rows(kernel, section, before)


def previous_values(spec: KernelSpec, last: Section) -> dict[int, tuple[int, str]]:
    """Return, for each value of a row that the last section reads, the number of its copy, which outlives
    the row, and its dtype.
    """
    dtypes = {step.result: step.dtype for section in spec.sections[:-1] for step in section.steps}
    n_values = 1 + max(
        step.result for steps in (spec.prologue, *(s.steps for s in spec.sections)) for step in steps
    )
    read = dict.fromkeys(a for step in last.steps for a in step.args if a in dtypes)
    return {number: (n_values + number, dtypes[number]) for number in read}


def reading_previous(
    steps: Sequence[Instruction], values: Mapping[int, tuple[int, str]]
) -> tuple[Instruction, ...]:
    """Return `steps` with the values of the previous row as arguments."""
    return tuple(s.replace(args=tuple(values[a][0] if a in values else a for a in s.args)) for s in steps)


def begin_row(kernel: LoopText) -> None:
    """Emit the kept indices of a unit of a ROWS kernel, and the base offsets of its row."""
    kept = range(kernel.spec.kept)
    kernel.unravel(kernel.outer_unit("unit"), kept)
    kernel.set_bases(kernel.spec.sections, kept)


def row_section(kernel: LoopText, section: Section) -> None:
    """Emit a section of a row: steps that run once, or a loop over the row."""
    if section.level == "full":
        reduce_rows(kernel, section)
        return
    for step in section.steps:
        kernel.row_step(step)


def reduce_rows(kernel: LoopText, section: Section, before: Sequence[AddressedStep] = ()) -> None:
    """Emit a loop over all reduced dimensions whose accumulators are variables. Each iteration begins with
    the steps `before`.
    """
    spec = kernel.spec
    for step in kernel.accumulators(section):
        ranked = kernel.is_ranked(step)
        start = f"{kernel.type(step.dtype.replace('float', 'uint'))}(0)" if ranked else kernel.identity(step)
        kernel.line(f"t{step.position} = {start}")
        if kernel.is_blocked(step) and step.dtype == "float64":
            kernel.line(f"e{step.position} = {kernel.type('float64')}(0)")
    outer = range(spec.kept, spec.innermost)
    bases, depth = dict(kernel.bases), kernel.depth
    for d in outer:
        first, last = kernel.bounds(d)
        kernel.line(f"for i{d} in range({first}, {last}):")
        kernel.depth += 1
    if outer:
        kernel.set_bases([section], outer, "q")
        line = f"i{outer[0]}"
        for d in [*outer[1:], spec.innermost]:
            line = f"({line}) * n{d}" + (f" + i{d}" if d != spec.innermost else "")
        if any(s.kind in ("keep", "recall") for s in section.steps):
            kernel.line(f"line = {line}")
    kernel.innermost_loop(section, *kernel.bounds(spec.innermost), before)
    kernel.bases, kernel.depth = bases, depth
