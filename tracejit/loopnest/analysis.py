"""Analysis of the body of a `fused` node: the program, schedule and sweep of one kernel.

    analysis = analyse(body)          # raises Unfusable if no single kernel computes it
    analysis.program, analysis.schedule   # the computation, and its loops

Both fusion and code generation need the analysis, so it is cached in the notes of the body.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Sequence
from typing import NamedTuple

from tracejit import ops
from tracejit.ir.graph import Graph, Value, producers_of
from tracejit.kernels.gemm.plan import most_panel_bytes
from tracejit.loopnest.build import trace
from tracejit.loopnest.program import LOAD, SCAN, LoopProgram
from tracejit.loopnest.schedule import LoopSchedule, check_updates, schedule
from tracejit.loopnest.sweep import Sweep


class Analysis(NamedTuple):
    """A body with its program and schedule, which prove that one kernel can compute it. `sweep`: the sweep
    to use if the kernel updates an array that it reads at other indices, else None.
    """

    body: Graph
    program: LoopProgram
    schedule: LoopSchedule
    sweep: Sweep | None

    def sharing(self, pairs: Sequence[tuple[int, Value]]) -> list[tuple[int, int]]:
        """Return the pairs (output, input) that may share memory, without updates, which always share.

        pairs: the result of `in_place`.
        """
        position = {value: n for n, value in enumerate(self.body.inputs)}
        updates = {s.output for s in self.program.stores if s.base is not None}
        bases = {s.base for s in self.program.stores if s.base is not None}
        unavailable = bases | self.factors()
        return [
            (output, position[value])
            for output, value in pairs
            if output not in updates
            and value in position
            and position[value] not in unavailable
            and value.type.size == self.body.outputs[output].type.size
        ]

    def factors(self) -> set[int]:
        """Return the inputs that the matrix product reads. The epilogue must not overwrite them, since
        later panels still read them.
        """
        if self.program.matmul is None:
            return set()
        producers = producers_of(self.body.nodes)
        inputs = set()
        for value in self.program.matmul.inputs:
            while value in producers:
                (value,) = producers[value].inputs
            inputs.add(self.body.inputs.index(value))
        return inputs

    def product_outputs(self, pairs: Sequence[tuple[int, Value]]) -> list[int]:
        """Return the outputs whose buffer can receive the matrix product before the epilogue transforms it
        into the output.

        pairs: the result of `in_place`.
        """
        matmul = self.program.matmul
        if matmul is None:
            return []
        if matmul.output in self.body.outputs:
            return [self.body.outputs.index(matmul.output)]
        updates = {s.output for s in self.program.stores if s.base is not None}
        return [n for n, value in pairs if value is matmul.output and n not in updates]

    def addend(self) -> int | None:
        """Return the input that is added to the matrix product, if that addition is the entire epilogue,
        else None. If the input and the output share memory, the kernel of the product can perform the
        addition.
        """
        matmul, stores = self.program.matmul, self.program.stores
        if matmul is None or len(stores) != 1 or len(self.body.outputs) != 1:
            return None
        term, view = stores[0].term, stores[0].view
        if term.node is None or term.node.op is not ops.add or stores[0].base is not None:
            return None
        if any(load.kind is not LOAD or load.view != view for load in term.args):
            return None
        added = [load.value for load in term.args if load.value is not matmul.output]
        return self.body.inputs.index(added[0]) if len(added) == 1 else None

    def fits_scratch(self) -> bool:
        """Return whether a panel of the matrix product fits into the scratch memory of a worker."""
        assert self.program.matmul is not None
        product = self.program.matmul.output.type
        line = product.shape[-1] * product.dtype.itemsize
        return min(product.nbytes, most_panel_bytes(line)) <= self.program.tuning.caches.scratch


def computed(body: Graph) -> LoopProgram:
    """Return the program of `body`, the same that `analyse` returns. No schedule is needed to know that
    one exists, unless the order of the steps matters: in that case `body` is analysed.
    """
    program = trace(body)
    return analyse(body, program).program if is_ordered(program) else program


def is_ordered(program: LoopProgram) -> bool:
    """Return whether a kernel contains a running sum, or writes into an array that it may read."""
    return any(t.kind is SCAN for t in program.terms) or any(s.base is not None for s in program.stores)


def analyse(body: Graph, program: LoopProgram | None = None) -> Analysis:
    """Return the analysis of `body`. Raise `Unfusable` unless one kernel can compute it. `program`: the
    result of `computed`, if known.
    """
    cached = body.notes.get("analysis")  # fusion leaves it for code generation
    if cached is None:
        program = trace(body) if program is None else program
        loop_schedule = schedule(program)
        cached = body.notes["analysis"] = program, loop_schedule, check_updates(body, program, loop_schedule)
    return Analysis(body, *cached)
