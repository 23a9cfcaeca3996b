"""From a set of nodes to the graph inside a `fused` node, and what its kernel allows.

body = gather(nodes, ...)         # inputs: outer values the nodes need; outputs: values others need
kernel = analyse(body)            # raises Unfusable if no single kernel computes it
kernel.attributes()               # kind, inplace, result: the attributes of the fused node
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value
from tracejit.kernels.gemm.plan import most_panel_bytes
from tracejit.loopnest.build import trace
from tracejit.loopnest.program import LOAD, SCAN, Program
from tracejit.loopnest.schedule import Schedule, check_updates, in_place, schedule
from tracejit.loopnest.sweep import Sweep, with_edges
from tracejit.passes.fusion.free import FreeNodes

SCRATCH_PANEL = 1 << 21
"""Most bytes of a panel of a product that lies in scratch memory: every worker has that much for itself."""


def gather(nodes: Sequence[Node], free: FreeNodes, is_output: Callable[[Value], bool]) -> Graph:
    """The body of `nodes`, in order, with every free node that they use, on the values of the outer graph.
    Constants stay outside.
    """
    inputs: dict[Value, None] = {}
    made: set[Value] = set()
    inner: list[Node] = []
    pending = list(reversed(nodes))
    while pending:
        node = pending[-1]
        for value in node.inputs:
            if value in made or value in inputs:
                continue
            source = free.producers.get(value)
            if source is not None and source in free and source.op is not ops.constant:
                pending.append(source)  # first its own operands, then this one
                break
            inputs[value] = None
        else:
            inner.append(pending.pop())
            made.update(node.outputs)
    outputs = tuple([v for node in nodes for v in node.outputs if is_output(v)])
    return Graph(tuple(inputs), tuple(inner), outputs)


class Analysis(NamedTuple):
    """A body with its program and schedule: proof that one kernel computes it. `sweep`: how, if it updates an
    array that it reads elsewhere.
    """

    body: Graph
    program: Program
    plan: Schedule
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
        producers = {value: node for node in self.body.nodes for value in node.outputs}
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
        return min(product.nbytes, most_panel_bytes(line)) <= SCRATCH_PANEL


def computed(body: Graph) -> Program:
    """What `analyse` finds that `body` computes. It takes no schedule to see that there is one, unless the
    order of the steps matters: then `body` is analysed.
    """
    program = trace(body)
    return analyse(body, program).program if is_ordered(program) else program


def is_ordered(program: Program) -> bool:
    """Whether a kernel has a running sum, or writes into an array that it may read."""
    return any(t.kind is SCAN for t in program.terms) or any(s.base is not None for s in program.stores)


def analyse(body: Graph, program: Program | None = None) -> Analysis:
    """Raise `Unfusable` unless one kernel can compute `body`. `program`: of `computed`, if that is known."""
    found = body.notes.get("analysis")  # fusion finds out, code generation asks again
    if found is None:
        program = trace(body) if program is None else program
        plan = schedule(program)
        found = body.notes["analysis"] = program, plan, check_updates(body, program, plan)
    return Analysis(body, *found)


def attributes(
    analysis: Analysis, reserved: Collection[int], dying: Collection[int] = ()
) -> dict[str, Any] | None:
    """The attributes of the fused node; None if a matrix product needs an output of its own.

    Without ``result``, an output that takes the product, its panels lie in the scratch memory of the workers.
    `reserved`: outputs that should rather be written over an input (a weight that is updated); so should a
    sum to which a product is added, and what can be written over one of the inputs `dying`, whose readers are
    done.
    """
    free = in_place(analysis.program, analysis.plan)
    sharing = analysis.sharing(free)
    if analysis.program.matmul is None:
        kind, sweep = analysis.plan.orientation.value, analysis.sweep
        if sweep is None:
            return {"body": analysis.body, "kind": kind, "inplace": tuple(sharing)}
        body = with_edges(analysis.body, analysis.program, sweep)
        return {"body": body, "kind": kind, "inplace": tuple(sharing), "sweep": sweep}
    is_sum = analysis.addend() in [position for _, position in sharing]
    over_inputs = {output for output, _ in sharing if is_sum or output in reserved}
    if analysis.program.matmul.output not in analysis.body.outputs and analysis.fits_scratch():
        over_inputs |= {output for output, position in sharing if position in dying}
    outputs = [n for n in analysis.product_outputs(free) if n not in over_inputs]
    if not outputs and analysis.fits_scratch():
        return {"body": analysis.body, "kind": "panel", "inplace": tuple(sharing)}
    if not outputs:
        return None
    result = outputs[0]
    pairs = tuple(pair for pair in sharing if pair[0] != result)
    return {"body": analysis.body, "kind": "panel", "inplace": pairs, "result": result}
