"""Analysis of a body, the graph inside a `fused` node, for one kernel: its program, schedule and sweep.

    analysis = analyse(body)          # raises Unfusable if no single kernel computes it
    analysis.program, analysis.plan   # the computation, and its loops

Fusion and code generation both need it: the result is cached in the notes of the body.
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
    """A body with its program and schedule: proof that one kernel computes it. `sweep`: how, if it updates an
    array that it reads elsewhere.
    """

    body: Graph
    program: LoopProgram
    plan: LoopSchedule
    sweep: Sweep | None

    def sharing(self, pairs: Sequence[tuple[int, Value]]) -> list[tuple[int, int]]:
        """Pairs (output, input) that may share memory, other than updates (which always do).

        pairs: what `in_place` finds.
        """
        position = {value: n for n, value in enumerate(self.body.inputs)}
        updates = {s.output for s in self.program.stores if s.base is not None}
        bases = {s.base for s in self.program.stores if s.base is not None}
        taken = bases | self.factors()
        return [
            (output, position[value])
            for output, value in pairs
            if output not in updates
            and value in position
            and position[value] not in taken
            and value.type.size == self.body.outputs[output].type.size
        ]

    def factors(self) -> set[int]:
        """Inputs that the matrix product reads: other panels still need them when an epilogue writes."""
        if self.program.matmul is None:
            return set()
        producers = producers_of(self.body.nodes)
        found = set()
        for value in self.program.matmul.inputs:
            while value in producers:
                (value,) = producers[value].inputs
            found.add(self.body.inputs.index(value))
        return found

    def product_outputs(self, pairs: Sequence[tuple[int, Value]]) -> list[int]:
        """Outputs whose buffer can take the matrix product before the epilogue turns it into the output.

        pairs: what `in_place` finds.
        """
        matmul = self.program.matmul
        if matmul is None:
            return []
        if matmul.output in self.body.outputs:
            return [self.body.outputs.index(matmul.output)]
        updates = {s.output for s in self.program.stores if s.base is not None}
        return [n for n, value in pairs if value is matmul.output and n not in updates]

    def addend(self) -> int | None:
        """The input to which the matrix product is added, if nothing else happens to it: where that and the
        output share memory, the product's own kernel can add.
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
        """Whether a panel of the matrix product is small enough for the scratch memory of each worker."""
        assert self.program.matmul is not None
        product = self.program.matmul.output.type
        line = product.shape[-1] * product.dtype.itemsize
        return min(product.nbytes, most_panel_bytes(line)) <= self.program.tuning.caches.scratch


def computed(body: Graph) -> LoopProgram:
    """The program of `body`, as `analyse` finds it. It takes no schedule to see that there is one, unless
    the order of the steps matters: then `body` is analysed.
    """
    program = trace(body)
    return analyse(body, program).program if is_ordered(program) else program


def is_ordered(program: LoopProgram) -> bool:
    """Whether a kernel has a running sum, or writes into an array that it may read."""
    return any(t.kind is SCAN for t in program.terms) or any(s.base is not None for s in program.stores)


def analyse(body: Graph, program: LoopProgram | None = None) -> Analysis:
    """Raise `Unfusable` unless one kernel can compute `body`. `program`: of `computed`, if that is known."""
    found = body.notes.get("analysis")  # cached by fusion for code generation
    if found is None:
        program = trace(body) if program is None else program
        plan = schedule(program)
        found = body.notes["analysis"] = program, plan, check_updates(body, program, plan)
    return Analysis(body, *found)
