"""The loops of a COLUMNS kernel: the reduced dimensions are looped over outside a tile of the last kept one.

    for unit in range(lo, hi):
        a0 = ...                                           # a tile
        for i0 in independent(a0, b0):
            t0[i0] = float64(0)
        for i1 in range(0, n1):                            # one line per iteration, or several
            q0 = i1 * s0_1
            for i0 in independent(a0, b0):
                ...
                t0[i0] = add(t0[i0], float64(v0))
        for i0 in independent(a0, b0):
            ...

The accumulators of a tile are stored in scratch memory.
"""

from __future__ import annotations

import numpy as np

from tracejit.codegen.cpu.loops import AddressedStep, LoopText
from tracejit.codegen.spec import Section
from tracejit.codegen.text import interleaved_lines, layouts_of, moving_results, renumbered


def emit_columns(kernel: LoopText) -> None:
    """Emit a COLUMNS kernel. A unit is a tile of the last kept dimension. Its accumulators are in scratch
    memory, and the loops over the reduced dimensions enclose the loop over the tile.
    """
    spec = kernel.spec
    last = spec.innermost
    with kernel.block("for unit in range(lo, hi):"):
        kernel.line(f"tile = {kernel.outer_unit('unit')}")
        kernel.line(f"a{last} = tile % column_tiles * columns")
        kernel.line(f"b{last} = min(a{last} + columns, n{last})")
        kernel.unravel("tile // column_tiles", range(last))
        tile_pointers(kernel, f"a{last}")
        kernel.set_bases(spec.sections, range(last))
        for section in spec.sections:
            if section.level == "kept":
                kernel.innermost_loop(section, f"a{last}", f"b{last}")
            else:
                reduce_columns(kernel, section)


def tile_pointers(kernel: LoopText, first: str) -> None:
    """Emit the pointers to the scratch rows and accumulators of a tile. They are shifted by `first`, so
    that the index along the innermost dimension addresses them directly.
    """
    names = [(f"row{n}", dtype) for n, dtype in enumerate(kernel.spec.rows)]
    names += [(f"t{n}", dtype) for n, dtype in enumerate(kernel.spec.accumulators)]
    for name, dtype in names:
        kernel.pointer(name, f"scratch + {name}_at - {first} * {np.dtype(dtype).itemsize}", dtype)


def reduce_columns(kernel: LoopText, section: Section) -> None:
    """Emit the loops over the reduced dimensions, around the loop over the tile."""
    spec = kernel.spec
    innermost = spec.innermost
    accumulators = kernel.accumulators(section)
    if accumulators:
        with kernel.block(f"for i{innermost} in {kernel.independent()}(a{innermost}, b{innermost}):"):
            for step in accumulators:
                start = kernel.identity(step)
                kernel.write(f"t{step.position}[i{innermost}]", start, spec.accumulators[step.position])
    before, depth = dict(kernel.bases), kernel.depth
    dims = range(spec.kept, spec.kept + spec.reduced)
    for d in dims[:-1]:
        first, last = kernel.bounds(d)
        kernel.line(f"for i{d} in range({first}, {last}):")
        kernel.depth += 1
    first, last = kernel.bounds(dims[-1])
    lines = interleaved_lines(section, spec.lines)
    if lines > 1:
        with kernel.block(f"for i{dims[-1]} in range({first}, {last} - {lines - 1}, {lines}):"):
            interleave_lines(kernel, section, dims, lines)
        kernel.bases = dict(before)
        first = f"{last} - {last if first == '0' else f'({last} - {first})'} % {lines}"
    with kernel.block(f"for i{dims[-1]} in range({first}, {last}):"):
        kernel.set_bases([section], dims, "q")
        kernel.innermost_loop(section, f"a{innermost}", f"b{innermost}")
    kernel.bases, kernel.depth = before, depth


def interleave_lines(kernel: LoopText, section: Section, dims: range, lines: int) -> None:
    """Emit the steps of `section` for `lines` consecutive indices of the innermost reduced dimension. The
    loop body reads all lines first and then accumulates them in order.
    """
    n_values = 1 + max(step.result for step in section.steps)
    reads: list[AddressedStep] = []
    folds: list[AddressedStep] = []
    for line in range(lines):
        if line == 0:
            kernel.set_bases([section], dims, "q")
        else:
            advance_line(kernel, section, dims[-1], line)
        for step in renumbered(section.steps, line * n_values):
            (folds if step.kind == "fold" else reads).append((dict(kernel.bases), step))
    moving = moving_results(kernel.spec, [step for _, step in reads])
    for bases, step in reads:
        if step.result not in moving:
            kernel.step_at(bases, step)
    inner = [(bases, step) for bases, step in reads if step.result in moving]
    inner += sorted(folds, key=lambda fold: fold[1].position)
    kernel.bare_loop(inner, f"a{kernel.spec.innermost}", f"b{kernel.spec.innermost}")


def advance_line(kernel: LoopText, section: Section, d: int, line: int) -> None:
    """Emit the base offsets of all layouts of `section`, advanced by one index along dimension `d`."""
    for layout in layouts_of([section]):
        if d in kernel.spec.moving(layout):
            before, kernel.bases[layout] = kernel.bases[layout], f"q{layout}_{line}"
            kernel.line(f"{kernel.bases[layout]} = {before} + s{layout}_{d}")
