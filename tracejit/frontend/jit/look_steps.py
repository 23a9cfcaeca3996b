"""The numbers and looks of a recorded path as steps of its replay.

A path computes numbers, asks questions about them, and looks at values. Each look launches a segment, whose
first result contains the number looked at. Looks that form a loop become one step (`state_loops`):

    look 1: A, look 2: B, look 3: B, look 4: A, look 5: B, last part
            |------ transitions A-B, B-B, B-A, A-B ------|

A replay leaves the loop where it knows no transition. Its last part follows if that has the answers; else
another path is tried, or the call is recorded. Everything that the last part needs is in the variables of the
loop's last state.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracejit.frontend.jit import launch_records, number_variables
from tracejit.frontend.jit.number_variables import Variables
from tracejit.frontend.recording.segments import Cut, TreeNode
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.conditions import Conditions
from tracejit.frontend.signature.expressions import Var
from tracejit.frontend.signature.program import ReplayProgram

if TYPE_CHECKING:
    from tracejit.frontend.jit.state_loops.adoption import Adoption, KnownTransitions
    from tracejit.frontend.jit.state_loops.loop_steps import LoopEmitter, LoopReport


class LookEmitter:
    """Emits the numbers and looks of a trace.

    arrays, numbers: the variables of all arrays and numbers that the body knows, at the step that is emitted.
                     Results are described before the steps are emitted, so `introduce` adds those of the end
                     first.
    holds:           whether the recorded call passes the checks of a program.
    """

    def __init__(
        self, arguments: Arguments, computed: Variables, holds: Callable[[ReplayProgram], bool]
    ) -> None:
        self.arguments, self.holds = arguments, holds
        self.trace, self.program = arguments.trace, arguments.program
        self.arrays_at_end, self.numbers_at_end = arguments.arrays, computed
        self.arrays: ChainMap[Storage, Any] = ChainMap({}, arguments.arrays)
        self.numbers: ChainMap[Any, Var] = ChainMap({}, computed)
        self.reports: list[LoopReport] = []
        self._loops: dict[int, LoopEmitter] = {}
        self._adoption: Adoption | None = None
        self._conditions: Conditions | None = None

    def introduce(self) -> None:
        """Find the loops, with transitions of other paths. Add variables for the results of segments to the
        arrays at the end. Variables of loops' last states replace those by which their arrays and numbers
        were known before.
        """
        trace = self.trace
        if not trace.looks.cuts:
            return
        # Imported late: loops over looks need a tenth of the frontend's modules.
        from tracejit.frontend.jit.state_loops.adoption import Adoption
        from tracejit.frontend.jit.state_loops.loop_steps import LoopEmitter
        from tracejit.frontend.jit.state_loops.regions import regions_of

        self._adoption = Adoption(self.arguments, self.holds)
        keys = self._adoption.state_keys
        for region in regions_of(trace, self._adoption.adopt()):
            self._loops[region.first] = LoopEmitter(trace, region, keys, self._adoption.transitions)
        for cut in trace.looks.cuts:
            for storage in cut.results:
                self.arrays_at_end[storage] = Var("t", storage), None
        for loop in self._loops.values():
            loop.introduce(self.arrays, self.numbers, self.arrays_at_end, self.numbers_at_end)

    def known_transitions(self) -> KnownTransitions:
        """Return the transitions that other paths can adopt from this one, which has looks."""
        assert self._adoption is not None
        assert self._conditions is not None
        return self._adoption.known_transitions(self._conditions)

    def emit(self) -> None:
        """Append the steps, in the order of the body: computations, questions, launches of segments,
        loops.
        """
        trace, program = self.trace, self.program
        if self._adoption is not None:
            self._conditions = Conditions(program)
        steps, looks = iter(trace.numbers.steps), trace.looks
        node: TreeNode | None = None
        index = -1
        for step in steps:
            if not isinstance(step, Cut):
                number_variables.emit(step, self.numbers, program)
                continue
            index += 1
            node = looks.segments.tree_node(node, step.segment)
            program.steps.append(launch_records.run_of(step, node, self.arrays, self.numbers))
            loop = self._loops.get(index)
            if loop is not None:
                node = loop.emit(program, node, self.arrays, self.numbers)
                self.reports += loop.reports
                index = loop.region.last
                while step is not looks.cuts[index]:
                    step = next(steps)
