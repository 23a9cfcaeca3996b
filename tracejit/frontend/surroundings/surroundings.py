"""The surroundings of a traced body during one recording, assembled from their components."""

from __future__ import annotations

import types
from typing import Any

from tracejit.frontend.python.bytecode import is_made_by_dataclass
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.surroundings import numpy_module
from tracejit.frontend.surroundings.changes import Changes
from tracejit.frontend.surroundings.executed import ExecutedCode
from tracejit.frontend.surroundings.installed import InstalledStandIns, generators
from tracejit.frontend.surroundings.module_stand_ins import NO_STAND_INS
from tracejit.frontend.surroundings.reach import Reach
from tracejit.frontend.surroundings.reads import Reads
from tracejit.frontend.surroundings.refusals import (
    refuse_names,
    refuse_slots,
    refuse_type_questions,
    refuse_unknown_closure,
)


class Surroundings:
    """The values that a body reaches by name. A recording uses the components in this order:

    1. `reach.scan` visits the function and the objects from which the body starts.
    2. `enter` is called before a user function runs for the first time. `code` adds the function's names,
       `reach` visits the values they lead to, `stand_ins` are installed in the new slots, and the recording
       is aborted (`refusals`) if the function cannot be replayed.
    3. After the body has run, `changes.find` collects the slots that it rebound. `changes.undo` and
       `stand_ins.remove` restore the state before the call.
    4. `guards` check the slots that the body can have read according to `reads.was_read`.
    """

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments
        self.code = ExecutedCode()
        trace = arguments.trace
        random = generators() if trace.assumed.generators and not trace.numbers.concrete else NO_STAND_INS
        self.reach = Reach(self.code, trace.numbers, arguments.originals, random)
        self.reads = Reads(self.code)
        self.stand_ins = InstalledStandIns(self.reach, arguments)
        self.changes = Changes(self.reach, self.reads, trace.assumed.stores)

    def enter(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        """Visit the values named by a function that is about to run for the first time. Abort the recording
        if the function cannot be replayed.
        """
        trace = self.arguments.trace
        is_known = self.reach.visit_code(code, namespace)
        self.stand_ins.install()
        self.stand_ins.check_functions()
        trace.body.makes_arrays |= trace.assumed.generators or numpy_module.makes_arrays(code, namespace)
        trace.body.takes_lists |= numpy_module.takes_lists(code)
        refuse_type_questions(trace, code)
        if self.stand_ins.aliased and self.code.mentions.compares:
            raise Restart(aliased=self.stand_ins.aliased)
        is_generated = is_made_by_dataclass(code)
        if not is_generated:
            refuse_names(trace, code, namespace, self.code)
        refuse_slots(trace, self.reach, self.reads)
        if not is_known and not is_generated:
            refuse_unknown_closure(trace, code)
