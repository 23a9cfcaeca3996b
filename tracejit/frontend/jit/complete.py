"""The replay program of a call whose body has run: what is checked, computed, made and written back.

When the body begins, the program finds and checks the arguments. `Completion` adds the rest, in the order in
which a replay does it: what the body reached by name is as it was; arrays found there are read again; NumPy
arrays are copied in; numbers are computed, and segments launched; what was apart is apart; the result is
made, and what the body rebound is rebound. Nothing is launched here. What cannot be replayed raises
`Unreplayable`.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import gc
from typing import Any, NamedTuple

from tracejit import collector
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.jit import number_variables
from tracejit.frontend.jit.entries import Answer
from tracejit.frontend.jit.look_steps import LookEmitter
from tracejit.frontend.jit.number_variables import Variables
from tracejit.frontend.python.content import GONE
from tracejit.frontend.recording.recording import device_contexts, thread
from tracejit.frontend.recording.restart import RETURN, Unreplayable
from tracejit.frontend.recording.segments import TreeNode
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.signature.arguments import Arguments, described
from tracejit.frontend.signature.describe import ResultDescription
from tracejit.frontend.signature.expressions import Const
from tracejit.frontend.signature.meanings import Meanings, meaning_of
from tracejit.frontend.signature.program import (
    Check,
    ReplayProgram,
    Rule,
    RunSegment,
    StateLoop,
)
from tracejit.frontend.signature.runtime import release
from tracejit.frontend.signature.slots import Content, Slot
from tracejit.frontend.surroundings.guards import Guards, check_separate
from tracejit.frontend.surroundings.surroundings import Surroundings
from tracejit.ir.graph import Graph
from tracejit.ir.types import CPU


class Described(NamedTuple):
    """A recorded call that is neither compiled nor run: its graph, and what its parts mean.

    bound:    the origins of the graph's inputs.
    draws:    random streams, and how many numbers the call draws of each.
    captured: paths of arrays that were found by name, by storage, and NumPy arrays that were brought in.
    rules:    lines of functions with a gradient of their own, which a graph does not know.
    """

    graph: Graph
    program: ReplayProgram
    arguments: Arguments
    computed: Variables
    numbers: list[Any]
    bound: tuple[Any, ...]
    draws: tuple[tuple[Any, int], ...]
    captured: dict[Storage, str]
    rules: tuple[str | None, ...]


class Completion:
    """Adds to the program of a call what is known when its body has run.

    changes:  what the body rebound.
    computed: variables of the numbers that the body computed, or found in arrays.
    """

    def __init__(
        self,
        trace: Trace,
        arguments: Arguments,
        surroundings: Surroundings,
        changes: list[tuple[Slot, Any]],
    ) -> None:
        self.trace, self.arguments, self.surroundings, self.changes = trace, arguments, surroundings, changes
        self.program = arguments.program
        self.computed = number_variables.variables_of(trace.numbers.steps)
        self.guards = Guards(surroundings, self.program)
        self.description = ResultDescription(
            self.program, arguments, self.guards.var_of, surroundings.code.line_of, self.computed
        )

    def complete(self, result: Any) -> None:
        """Add all that a replay does after it has found the arguments, but for the launch."""
        trace, program = self.trace, self.program
        if trace.numbers.raised is not None:
            what = "the body catches an error of arithmetic on a number found in an array"
            raise Unreplayable(what, "test the number before", trace.numbers.raised)
        self.guards.emit()
        self._find_arrays()
        self.loops = LookEmitter(trace, self.arguments, self.computed)
        self.loops.introduce()
        if trace.uses_device:
            self._check_device()
        frozen = self._find_imports()
        self._describe(result)
        self._check_escapes()
        self._keep_constants(frozen)
        if trace.looks.cuts:  # before anything is launched
            self._check_separate()
        self.loops.emit(program)
        if not trace.looks.cuts:
            self._check_separate()

    def described_call(self, graph: Graph) -> Described:
        """Describe the recording before anything is compiled."""
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
            bound=tuple(trace.bound),
            draws=tuple((stream, total.value) for stream, total in trace.draws.totals),
            captured=captured,
            rules=tuple(trace.rules),
        )

    # -- checks ----------------------------------------------------------------------------------------------

    def _check_separate(self) -> None:
        check_separate(self.program, self.surroundings, self.description.rebinds)

    def _check_device(self) -> None:
        """Require that arrays are made on the same device as in this call."""
        device = self.trace.device
        says = "the device of new arrays", str(device)
        chosen = Const(thread), Const(device)
        if device is CPU:
            self.program.require(Rule.DEVICE_IF_CHOSEN, Const(device_contexts), *chosen, says=says)
        else:
            self.program.require(Rule.DEVICE, *chosen, says=says)

    def _check_escapes(self) -> None:
        """Arrays that the body made and that are still alive must be among the results."""
        expected = {*self.program.outputs, *self.description.carried, *self.arguments.placed}
        if all(s in expected for s in self.trace.live()):
            return
        gc.collect(collector.YOUNG)  # what only a cycle keeps alive has not escaped
        if not all(s in expected for s in self.trace.live()):
            gc.collect()  # the cycle may be older than the call
        for storage in self.trace.live():
            if storage not in expected:
                what = f"an array made at {storage.made_at} outlives the call without being returned"
                raise Unreplayable(what, RETURN, storage.made_at)

    # -- arrays ----------------------------------------------------------------------------------------------

    def _find_arrays(self) -> None:
        """Arrays found by name: the replay reads their places again."""
        arguments, program = self.arguments, self.program
        for slot in self.guards.arrays:
            array = slot.value
            storage, view = array._storage, array._view
            release(storage)
            var = program.bind(slot.place, seen=array, path=slot.path)
            known = arguments.arrays.get(storage)
            says = slot.path, described(array)
            if known is not None:
                program.require(Rule.STORAGE, var, known[0], says=says)
                program.require(Rule.VIEW, var, Const(view))
            else:
                found = program.array(var, storage, view, window=False, says=says)
                arguments.arrays[storage] = (found, None)
                if storage in self.trace.windows:
                    arguments.storages[storage] = found
            arguments.tell_apart(array, var)
            arguments.handles.setdefault(id(array), (array, var))
        for storage in self.trace.windows:
            if storage not in arguments.arrays and storage not in self.trace.imports:
                made = f"{storage.type} made at {storage.made_at}" if storage.made_at else str(storage.type)
                what = f"the body uses an array ({made}) that is no argument and not found by following names"
                raise Unreplayable(what, "pass it as an argument", self._line_using(storage))

    def _line_using(self, storage: Storage) -> str | None:
        """The line of the first operation on a storage in the last segment; None if it is not used there."""
        inputs = {window.input for window in self.trace.windows[storage]}
        used = (node.location for node in self.trace.nodes if not inputs.isdisjoint(node.inputs))
        return next(used, None)

    def _find_imports(self) -> list[Storage]:
        """NumPy arrays the body brought in: captured ones are copied in again, others are as they were (these
        are given).
        """
        frozen = []
        for storage, array in self.trace.imports.items():
            found = self.guards.copy_in(array)
            if found is None:
                frozen.append(storage)
            self.arguments.copy_in(storage, found or Const(array))
        return frozen

    def _keep_constants(self, frozen: list[Storage]) -> None:
        """Constant arrays that nobody writes or gets need no copy for each replay."""
        program, found = self.program, {}
        for storage in frozen:
            is_written = any(window.written for window in self.trace.windows.get(storage, ()))
            if storage not in self.description.kept and not is_written:
                found[self.arguments.arrays[storage][0]] = storage
        program.copies = [copy for copy in program.copies if copy[0] not in found]
        program.constants |= found

    # -- results ---------------------------------------------------------------------------------------------

    def _describe(self, result: Any) -> None:
        """Describe how the result is made, and what is written back."""
        description, changes = self.description, self.changes
        description.count(result)
        description.count_changes()
        for slot, now in changes:
            description.count(now, slot)
        self.program.result = description.describe(result, "the result")
        description.write_back()
        for slot, now in changes:
            self._check_change(slot, now)
            description.rebind(slot, now)

    def _check_change(self, slot: Slot, now: Any) -> None:
        """Raise if a replay cannot rebind this slot."""
        line = self.surroundings.code.line_of(slot)
        if isinstance(slot, Content):
            self.surroundings.changes.foresee(slot)
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
            self.surroundings.changes.foresee(slot)
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
            if isinstance(step, StateLoop) and len(step.states) > 1:
                segments[-1][1].append(Answer(None, meaning_of("end of loop", step.node), step.ends))
        elif isinstance(step, Check) and segments and step.says is not None:
            subject, *rest = step.operands
            value = step.rule, *(meanings[each] for each in rest)
            segments[-1][1].append(Answer(step.says, meanings[subject], value))
    return tuple((node, tuple(answers)) for node, answers in segments)
