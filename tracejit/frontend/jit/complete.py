"""Completes the replay program of a call whose body has run.

When the body begins, the program reads and checks the arguments. `Completion` adds the other steps:

1. check the objects that the body accessed by name;
2. read the arrays that it accessed by name, and copy NumPy arrays in;
3. compute numbers, and launch segments;
4. check that storages do not overlap; if there are segments, this step precedes step 3, so that it comes
   before the first launch;
5. create the result, and write back the values that the body rebound.

The result is described before steps 3 and 4 are added: step 4 depends on the objects that step 5 writes.
Nothing is launched here. A call that cannot be replayed raises `Unreplayable`.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import gc
from collections.abc import Callable
from typing import Any, NamedTuple

from tracejit import collector
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.jit import number_variables
from tracejit.frontend.jit.entries import Answer, LoopEnd
from tracejit.frontend.jit.look_steps import LookEmitter
from tracejit.frontend.jit.number_variables import Variables
from tracejit.frontend.python.content import GONE
from tracejit.frontend.recording.recording import device_contexts, thread
from tracejit.frontend.recording.restart import RETURN, Unreplayable
from tracejit.frontend.recording.segments import TreeNode
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.describe import ResultDescription
from tracejit.frontend.signature.expressions import Const
from tracejit.frontend.signature.meanings import Meanings
from tracejit.frontend.signature.program import Check, ReplayProgram, Rule, RunSegment, StateLoop
from tracejit.frontend.signature.slots import Content, Slot
from tracejit.frontend.surroundings.guards import Guards, check_separate
from tracejit.frontend.surroundings.surroundings import Surroundings
from tracejit.ir.graph import Graph
from tracejit.ir.types import CPU


class Described(NamedTuple):
    """A recorded call that is neither compiled nor run: its graph, and the meaning of its inputs and outputs.

    computed: variables of the numbers that the body computed, or read from arrays.
    numbers:  the computations, questions and looks of the body, in order.
    origins:  the origins of the graph's inputs.
    draws:    random streams, and the number of positions that the call draws from each.
    captured: by storage: the paths of arrays that the body accessed by name, and of NumPy arrays that it used
              as operands.
    rules:    lines of functions with a custom gradient, which the graph does not record.
    """

    graph: Graph
    program: ReplayProgram
    arguments: Arguments
    computed: Variables
    numbers: list[Any]
    origins: tuple[Any, ...]
    draws: tuple[tuple[Any, int], ...]
    captured: dict[Storage, str]
    rules: tuple[str | None, ...]


class Completion:
    """Adds the steps that are known when the body has run to the program of a call.

    changes:  slots that the body rebound, and their new values.
    holds:    whether the recorded call passes the checks of a program.
    computed: variables of the numbers that the body computed, or read from arrays.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        changes: list[tuple[Slot, Any]],
        holds: Callable[[ReplayProgram], bool],
    ) -> None:
        self.surroundings, self.changes = surroundings, changes
        self.arguments = arguments = surroundings.arguments
        self.trace, self.program = arguments.trace, arguments.program
        self.computed = number_variables.variables_of(self.trace.numbers.steps)
        self.guards = Guards(surroundings, self.program)
        self.description = ResultDescription(
            arguments, self.guards.var_of, surroundings.code.line_of, self.computed
        )
        self.looks = LookEmitter(arguments, self.computed, holds)

    def complete(self, result: Any) -> None:
        """Add all steps of a replay after those that read the arguments, except for the launch."""
        trace = self.trace
        if trace.numbers.raised is not None:
            what = "the body catches an error of arithmetic on a number found in an array"
            raise Unreplayable(what, "test the number before", trace.numbers.raised)
        self.guards.emit()
        self._read_arrays()
        if trace.uses_device:
            self._check_device()
        constant = self._copy_in_imports()
        self.looks.introduce()
        self._describe(result)
        self._check_escapes()
        self._keep_constants(constant)
        if trace.looks.cuts:  # before anything is launched
            self._check_separate()
        self.looks.emit()
        if not trace.looks.cuts:
            self._check_separate()

    def described_call(self, graph: Graph) -> Described:
        """Return the description of the recording, of which nothing is compiled."""
        trace = self.trace
        captured = {slot.value._storage: slot.path for slot in reversed(self.guards.arrays)}
        for storage, array in trace.imports.items():
            slot = self.guards.slot_of(array)
            captured[storage] = "constant" if slot is None else slot.path
        return Described(
            graph=graph,
            program=self.program,
            arguments=self.arguments,
            computed=self.computed,
            numbers=list(trace.numbers.steps),
            origins=tuple(trace.origins),
            draws=tuple((stream, total.value) for stream, total in trace.draws.totals),
            captured=captured,
            rules=tuple(trace.rules),
        )

    # -- checks ----------------------------------------------------------------------------------------------

    def _check_separate(self) -> None:
        check_separate(self.program, self.surroundings, self.description.rebinds)

    def _check_device(self) -> None:
        """Require that arrays are created on the same device as in this call."""
        device = self.trace.device
        says = "the device of new arrays", str(device)
        chosen = Const(thread), Const(device)
        if device is CPU:
            self.program.require(Rule.DEVICE_IF_CHOSEN, Const(device_contexts), *chosen, says=says)
        else:
            self.program.require(Rule.DEVICE, *chosen, says=says)

    def _check_escapes(self) -> None:
        """Require that all arrays that the body created, and that are still alive, are among the results."""
        expected = {*self.program.outputs, *self.description.segment_results, *self.arguments.transferred}
        if all(s in expected for s in self.trace.live()):
            return
        gc.collect(collector.YOUNG)  # an array that only a cycle keeps alive has not escaped
        if not all(s in expected for s in self.trace.live()):
            gc.collect()  # the cycle may be older than the call
        for storage in self.trace.live():
            if storage not in expected:
                what = f"an array made at {storage.made_at} outlives the call without being returned"
                raise Unreplayable(what, RETURN, storage.made_at)

    # -- arrays ----------------------------------------------------------------------------------------------

    def _read_arrays(self) -> None:
        """Add the steps that read and check the arrays that the body accessed by name. Raises `Unreplayable`
        if it used an array that is neither one of these nor an argument.
        """
        arguments = self.arguments
        for slot in self.guards.arrays:
            arguments.add_named(slot.value, slot.place, slot.path)
        for storage in self.trace.windows:
            if storage not in arguments.arrays and storage not in self.trace.imports:
                shown = f"{storage.type} made at {storage.made_at}" if storage.made_at else str(storage.type)
                what = (
                    f"the body uses an array ({shown}) that is neither an argument nor reachable by a name "
                    "in the code"
                )
                raise Unreplayable(what, "pass it as an argument", self._line_using(storage))

    def _line_using(self, storage: Storage) -> str | None:
        """Return the line of the first operation on a storage in the last segment; None if there is none."""
        inputs = {window.input for window in self.trace.windows[storage]}
        used = (node.location for node in self.trace.nodes if not inputs.isdisjoint(node.inputs))
        return next(used, None)

    def _copy_in_imports(self) -> list[Storage]:
        """Let each replay copy the NumPy arrays that the body used as operands. Those accessed by name are
        read again; others are constants. Return the storages of the constants.
        """
        constant = []
        for storage, array in self.trace.imports.items():
            expr = self.guards.copy_in(array)
            if expr is None:
                constant.append(storage)
            self.arguments.copy_in(storage, expr or Const(array))
        return constant

    def _keep_constants(self, constant: list[Storage]) -> None:
        """Share the storages of constants between replays if they are neither written nor returned."""
        program, shared = self.program, {}
        for storage in constant:
            is_written = any(window.written for window in self.trace.windows.get(storage, ()))
            if storage not in self.description.referenced and not is_written:
                shared[self.arguments.arrays[storage][0]] = storage
        program.copies = [copy for copy in program.copies if copy[0] not in shared]
        program.constants |= shared

    # -- results ---------------------------------------------------------------------------------------------

    def _describe(self, result: Any) -> None:
        """Describe how a replay creates the result, and the values that it writes back."""
        description, changes = self.description, self.changes
        description.count_uses(result)
        description.count_stored_uses()
        for slot, now in changes:
            description.count_uses(now, slot)
        self.program.result = description.describe(result, "the result")
        description.write_back()
        for slot, now in changes:
            self._check_change(slot, now)
            description.rebind(slot, now)

    def _check_change(self, slot: Slot, now: Any) -> None:
        """Raise `Unreplayable` if a replay cannot rebind this slot."""
        line = self.surroundings.code.line_of(slot)
        if isinstance(slot, Content):
            self.surroundings.changes.restart_if_assigned(slot)
            for leaf in trees.leaves(now):
                if isinstance(leaf, NDArray) and leaf._storage.pending is not None:
                    what = f"an array made at {leaf._storage.made_at} is kept in {slot.path}"
                    raise Unreplayable(what, RETURN, leaf._storage.made_at)
            what = f"the body changes the keys, length or content of {slot.path}"
            raise Unreplayable(what, "return what is to be stored, and store it outside", line)
        if not self.surroundings.changes.is_ours(slot):
            what = f"{slot.path} changed while the body was recorded"
            raise Unreplayable(what, "change it outside of the function", line)
        if now is not GONE and slot.given is slot.value and type(slot.value) in (int, float):
            self.surroundings.changes.restart_if_assigned(slot)
            what = f"the body changes the number {slot.path} where that is not a plain assignment"
            raise Unreplayable(what, "assign it by its name", line)


def segments_of(program: ReplayProgram) -> tuple[tuple[TreeNode, tuple[Answer, ...]], ...]:
    """Return the segments of a path, each with the questions asked after it."""
    segments: list[tuple[TreeNode, list[Answer]]] = []
    meanings = Meanings()
    for step in program.steps:
        meanings.add(step)
        if isinstance(step, RunSegment | StateLoop):
            segments.append((step.node, []))
        elif isinstance(step, Check) and segments:
            subject, *rest = step.operands
            value = step.rule, *(meanings[each] for each in rest)
            segments[-1][1].append(Answer(step.says, meanings[subject], value))
    return tuple((node, tuple(answers)) for node, answers in segments)


def loop_ends_of(program: ReplayProgram) -> dict[TreeNode, LoopEnd]:
    """Return how a path leaves its loops over looks."""
    loops = [step for step in program.steps if isinstance(step, StateLoop)]
    return {
        loop.node: LoopEnd(loop.states[loop.ends].key, None if loop.repeats else loop.known) for loop in loops
    }
