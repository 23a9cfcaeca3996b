"""Records a call of a traced function, and builds the replay function of its signature.

`record` runs the body once on a `Trace`, launches the recorded graph, and returns the result and an entry
(`Path`): the replay function, its schedule and its requirements. For a call that cannot be replayed, the
entry is a `PiecewiseSignature` with the reason, whose replay function returns `PIECEWISE`.

Between the end of the body and the launch, all objects are as before the call: the changes of the body are
undone, and repeated once nothing can fail any more. So an error, an interrupt or a refusal leaves no changes,
and other threads see new arrays only after the launch.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Hashable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tracejit import collector, compile, engine, lazy
from tracejit.errors import DeviceError, ReplayError, locate
from tracejit.frontend.jit import launch_records
from tracejit.frontend.jit.complete import Completion, loop_ends_of, segments_of
from tracejit.frontend.jit.entries import Path, PiecewiseSignature, RecordedCall, Timing
from tracejit.frontend.jit.vouch import release_callbacks
from tracejit.frontend.python.kinds import LIBRARY, OWNER
from tracejit.frontend.recording.location import RUNNERS
from tracejit.frontend.recording.partial import no_memory
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.restart import Assumptions, Restart, Unreplayable
from tracejit.frontend.recording.segments import Segments
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Body, Trace
from tracejit.frontend.signature import perform
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.program import ReplayProgram
from tracejit.frontend.signature.requirements import requirements_of
from tracejit.frontend.signature.runtime import CLOCK, PIECEWISE
from tracejit.frontend.signature.slots import Slot
from tracejit.frontend.signature.stand_ins import without_stand_ins
from tracejit.frontend.signature.text import recogniser_of, replay_of
from tracejit.frontend.surroundings import events
from tracejit.frontend.surroundings.numbers_found import BODY, LOOKING, with_own_builtins
from tracejit.frontend.surroundings.surroundings import Surroundings
from tracejit.frontend.surroundings.watch import Watcher
from tracejit.ir.graph import Graph
from tracejit.ir.types import Device

OPERATIONS, LOOKS = 2048, 4
"""The numbers of operations and of segments whose recording takes at least as long as one piecewise call."""


def record(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    aliased: set[Storage],
    *,
    strict: bool,
    launch: bool = True,
    compiled: bool = True,
    segments: Segments | None = None,
    required: Sequence[Mapping[Hashable, int]] = (),
) -> RecordedCall:
    """Record a call of `function` with these arguments. The body runs again if an assumption was wrong.

    aliased:  storages that enter the trace in full.
    strict:   whether a call that cannot be replayed raises `ReplayError`.
    launch:   whether the result is computed.
    compiled: whether the graph is compiled; if not, the result is its description (`Described`).
    segments: the segments of the function's paths; without them, a look at a value aborts the recording.
    required: the numbers that other traces of the function require.
    """
    assumed = Assumptions(
        aliased=set(aliased),
        unrolled={} if compiled else None,
        counted=False if segments is None else segments.counted,
        stepped=False if segments is None else segments.stepped,
        math=segments is not None and segments.computes_math,
        unasked=set() if segments is None else segments.unasked,
        required=required,
    )
    name = getattr(function, "__qualname__", type(function).__name__)
    with collector.suspended():  # no decorator: errors name the nearest frame outside this package
        while True:
            trace = Trace(name, assumed, dry=not launch, segments=segments)
            trace.looks.native_iterations = _native_iterations
            try:
                call = _TracedCall(trace, function, args, kwargs)
                result = call.run_body()
                recorded = call.conclude(result, launch=launch, compiled=compiled)
                return recorded._replace(aliased=assumed.aliased)
            except Unreplayable as end:
                if assumed.numpy and assumed.spares_guards:
                    end.__traceback__ = None
                    Restart(numpy=False).correct(assumed)
                    continue
                line = end.line or _line_of(function)
                if trace.dry or (strict and not end.later):
                    error = ReplayError(f"{name}: {end}")
                    raise locate(error, line).with_traceback(end.__traceback__) from None
                end.__traceback__ = None  # it keeps the values of the body alive
                return RecordedCall(PIECEWISE, call.piecewise_entry(str(end), line), assumed.aliased)
            except Restart as restart:
                restart.__traceback__ = None
                restart.correct(assumed)
                if segments is not None:
                    segments.counted, segments.computes_math = assumed.counted, assumed.math
                    segments.stepped = assumed.stepped
            finally:
                trace.numbers.closed = True
                trace.interruption = None
                trace.forget_functions()


class _TracedCall:
    """The state of one recording.

    given:            the arguments of the call.
    n_argument_steps: the number of program steps that read and check the arguments.
    changes:          slots that the body rebound, and their new values; None before it has run.
    launched:         whether the recorded graph has been launched.
    cost_in_calls:    the cost of a discarded recording, as the number of piecewise calls that take as long:
                      1, or more if the body is long.
    """

    def __init__(self, trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.trace, self.function = trace, function
        compile.anticipate()
        self.started = time.perf_counter()
        self.arguments = Arguments(trace)
        self.program = self.arguments.program
        self.given = args, kwargs
        self.args, self.kwargs = self.arguments.read(function, args, kwargs)
        self.n_argument_steps = len(self.program.steps)
        self.surroundings = Surroundings(self.arguments)
        self.changes: list[tuple[Slot, Any]] | None = None
        self.launched = False
        self.cost_in_calls = 1

    def run_body(self) -> Any:
        """Run the body, and return its result. Its changes are undone, and listed in `changes`."""
        trace, surroundings = self.trace, self.surroundings
        try:
            surroundings.reach.scan(self.function, self.arguments.objects)
            trace.body = Body(
                surroundings.changes.find, self._containers, surroundings.code.ran, surroundings.reach.knows
            )
            function = with_own_builtins(self.function, BODY if trace.looks.segments is None else LOOKING)
            watcher = Watcher(trace, surroundings)
            busy = thread.busy
            try:
                thread.be_busy(busy + 1)
                thread.trace = trace
                events.report_to(watcher)
                result = function(*self.args, **self.kwargs)
                trace.masks.gather_remaining()
                trace.picks.check_end()
            finally:
                thread.trace, thread.device = None, trace.device
                thread.busy = busy
                watcher.over = True  # even if an interrupt comes in the next line
                events.stop(watcher)
                thread.be_busy(busy)  # last: an interrupt in it only leaves a name in `recorders`
            self._undo_changes()
            self._check_caught(None)
            for loop in trace.nest.loops:
                loop.unroll("the loop is left before its end")
        except BaseException as error:
            device = self._device_needed(error)
            self._undo_changes()
            self._discard()
            if device is not None:
                raise Restart(place=device) from None
            if isinstance(error, Exception):
                self._check_caught(error)
            if not isinstance(error, Restart):
                without_stand_ins(error, self.arguments)
            raise
        return result

    def _containers(self) -> list[Any]:
        """Return the body's copies of the containers among the arguments."""
        return [rebuilt.copy for rebuilt in self.arguments.containers.values()]

    def _device_needed(self, error: BaseException) -> Device | None:
        """Return the device on which the body must have NumPy arrays, if the error is that it used them with
        an array on an accelerator, which it accessed by name; otherwise None.
        """
        trace = self.trace
        may_move = trace.read_only and self.arguments.numpy_device.is_addressable
        return trace.accelerator() if may_move and isinstance(error, DeviceError) else None

    def _check_caught(self, error: Exception | None) -> None:
        """Raise the exception that aborted the body, if the body caught it. Raise `Restart` if the body's
        error may be due to a recorded NumPy function, or to a stand-in that library code does not accept.
        """
        trace = self.trace
        if trace.interruption is not None and trace.interruption is not error:
            raise trace.interruption from None
        if error is not None and trace.interruption is None and trace.recorded_numpy:
            raise Restart(numpy=False) from None  # a recorded array may have been the reason
        has_stand_ins = (trace.numbers.given or trace.captured) and not trace.numbers.concrete
        if has_stand_ins and (isinstance(error, TypeError) or (error is not None and _is_librarys(error))):
            raise Restart(concrete=True) from None

    def _discard(self) -> None:
        """Discard the recording. Unless it has been launched, its effects are undone."""
        trace = self.trace
        if not self.launched:
            self.surroundings.stand_ins.restore_arrays()
            trace.draws.give_back()
        self.cost_in_calls = max(1, len(trace.nodes) // OPERATIONS, len(trace.looks.different) // LOOKS)
        trace.reset()

    def _undo_changes(self) -> None:
        """Undo the changes of the body. An interrupt may come, after which this is called again."""
        surroundings = self.surroundings
        if self.changes is None:
            surroundings.reads.note_logs(self.trace.callbacks)
            self.changes = surroundings.changes.find()
        surroundings.changes.undo(self.changes)
        surroundings.stand_ins.remove()

    # -- piecewise -------------------------------------------------------------------------------------------

    def piecewise_entry(self, reason: str, line: str | None) -> PiecewiseSignature:
        """Return an entry for calls with such arguments, which cannot be replayed for this reason."""
        program = ReplayProgram(self.program.steps[: self.n_argument_steps], pinned=self.program.pinned)
        entry = PiecewiseSignature(
            _no_replay, requirements_of(program), self.trace.graph([]), program.pinned, reason=(reason, line)
        )
        entry.replay, entry.text = recogniser_of(program, self.trace.name, entry)
        entry.interval = self.cost_in_calls
        return entry

    # -- replayable ------------------------------------------------------------------------------------------

    def conclude(self, result: Any, *, launch: bool, compiled: bool) -> RecordedCall:
        """Compile and launch the recorded graph, build the entry for later calls, and discard the
        recording.
        """
        try:
            return self._conclude(result, launch=launch, compiled=compiled)
        finally:
            self._discard()

    def _conclude(self, result: Any, *, launch: bool, compiled: bool) -> RecordedCall:
        trace, program = self.trace, self.program
        assert self.changes is not None
        completion = Completion(self.surroundings, self.changes, self._holds)
        completion.complete(result)
        outputs = list(program.outputs)
        graph = trace.finish([s.pending for s in outputs])  # type: ignore[misc]
        if not compiled:
            return RecordedCall(completion.described_call(graph), None)
        at_recorded = time.perf_counter()
        schedule = compile.compile_graph(graph)
        at_compiled = time.perf_counter()
        program.launch = launch_records.launch_of(self.arguments, completion.computed, graph, schedule)
        entry = Path(
            _no_replay,
            requirements_of(program),
            graph,
            program.pinned,
            used=next(CLOCK),
            schedule=schedule,
            names=launch_records.names_of(program),
            segments=segments_of(program) if trace.looks.cuts else (),
            loops=tuple(completion.looks.reports),
            loop_ends=loop_ends_of(program),
            transitions=completion.looks.known_transitions() if trace.looks.cuts else None,
        )
        if entry.transitions is not None:
            trace.looks.segments.add_path(entry.transitions)
        release_callbacks(graph, entry)
        if launch:  # now, so that it runs while Python compiles the replay function
            self._perform(graph)
        entry.replay, entry.text = replay_of(program, trace.name, entry)
        if not launch:
            return RecordedCall(None, entry)
        at_end = time.perf_counter()
        entry.timing = Timing(at_recorded - self.started, at_compiled - at_recorded, at_end - at_compiled)
        assert program.result is not None
        return RecordedCall(perform.make(program.result), entry)

    def _holds(self, program: ReplayProgram) -> bool:
        """Whether the arguments of the call, and its surroundings, pass the checks of a program."""
        recognise, _text = recogniser_of(program, self.trace.name, SimpleNamespace())
        return recognise(*self.given) is PIECEWISE

    def _perform(self, graph: Graph) -> None:
        """Perform the steps of a replay from its launch on, except for the result."""
        draws = self.trace.draws
        draws.take()
        try:
            perform.launch(self.program, [start for _stream, start, _count in draws.taken])
        except engine.ExhaustedError as error:
            raise no_memory(graph, error) from None
        self.launched = True
        perform.write_back(self.program)


RUNNERS.add(id(_TracedCall.run_body.__code__))


def _is_librarys(error: Exception) -> bool:
    """Whether an error was raised by Python's library or NumPy, which may not accept stand-ins."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and OWNER[trace.tb_frame.f_globals.get("__name__")] == LIBRARY


def _no_replay(args: Any, kwargs: Any) -> Any:
    """Placeholder for a replay function that is not yet written."""


def _native_iterations(trace: Trace) -> Any:
    """Import `native_iterations` of `state_loops` at its first use, which is in a body, and call it."""
    return lazy.import_module("tracejit.frontend.jit.state_loops.first_call").native_iterations(trace)


def _line_of(function: Any) -> str | None:
    """Return the line where a function begins; None if it has no code object."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None
