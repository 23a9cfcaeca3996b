"""Recording one call of a traced function, and making the replay function of its signature.

`record` runs the body once on a `Trace`, launches what it recorded, and returns the result together with an
`Signature`: the signature's replay function, its schedule and what it requires. What cannot be replayed
gives an entry whose replay says so (`PIECEWISE`), with the reasons.

Between the end of the body and the launch the world is as it was before the call: what the body rebound is
taken back, and done again once nothing can fail any more. So an error, an interrupt or a refusal leaves
nothing behind, and other threads see arrays only when they are computed.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import gc
import inspect
import time
import types
from collections.abc import Callable, Hashable, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracejit import collector, compile, engine
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.jit import launch as launches
from tracejit.frontend.jit.loops import Loops, Told
from tracejit.frontend.jit.vouch import release_callbacks
from tracejit.frontend.python.content import GONE, is_stored_plainly
from tracejit.frontend.recording.number import Computed, Source
from tracejit.frontend.recording.recording import Extent, device_contexts, thread
from tracejit.frontend.recording.segments import Cut, Place, Segments
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import GivenUp, Restart, Trace
from tracejit.frontend.signature.arguments import (
    Arguments,
    described,
    parameter_names,
    shared_storages,
    shows_keywords,
)
from tracejit.frontend.signature.describe import Description, Unreplayable
from tracejit.frontend.signature.many import release
from tracejit.frontend.signature.perform import make, write_back
from tracejit.frontend.signature.program import (
    Bind,
    Check,
    Const,
    Expr,
    Form,
    Literal,
    Loop,
    ReplayProgram,
    Run,
    Var,
    meaning,
)
from tracejit.frontend.signature.slots import Attribute, Slot, Whole
from tracejit.frontend.signature.stand_ins import without_stand_ins
from tracejit.frontend.signature.text import CLOCK, PIECEWISE, recogniser_of, replay_of
from tracejit.frontend.surroundings.changes import Surroundings
from tracejit.frontend.surroundings.guards import Guards, Refused, check_separate
from tracejit.frontend.surroundings.numbers_found import with_own_builtins
from tracejit.frontend.surroundings.watch import LIBRARY, OWNER, Watcher
from tracejit.ir.graph import Graph
from tracejit.ir.types import CPU


class Timing(NamedTuple):
    """Seconds that the parts of a first call took: recording the body, compiling (or loading), running."""

    record: float
    compile: float
    run: float

    @property
    def total(self) -> float:
        return self.record + self.compile + self.run


class Answer(NamedTuple):
    """What a path asks of the numbers that it has found, and the answer that it has.

    text:     for people.
    question: equal for equal questions about the same numbers.
    value:    the answer.
    """

    text: str
    question: Hashable
    value: Any


@dataclass(eq=False, repr=False)
class Signature:
    """One signature of a traced function, or a path of one. `timing` is that of its first call.

    segments: of a path: what it launches before its last part, and what it asks of the numbers that were
              found then, with the answers.
    """

    replay: Callable[..., Any]
    requirements: dict[str, str]
    graph: Graph
    schedule: Any
    reasons: list[tuple[str, str | None]] = field(default_factory=list)
    text: str = ""
    replays: int = 0
    used: int = 0  # when it served last
    pieces: int = 0  # how many calls ran piecewise since one was recorded
    interval: int = 1  # how many may, before one is recorded again: the reason may be gone
    timing: Timing | None = None
    names: tuple[str, ...] = ()  # of the graph's inputs
    segments: tuple[tuple[Place, tuple[Answer, ...]], ...] = ()
    loops: tuple[Told, ...] = ()  # rounds between the looks of a path

    @property
    def schedules(self) -> list[Any]:
        """The schedules of all that it launches, in order."""
        known = [place.segment.schedule for place, _answers in self.segments]
        known += [told.segment.schedule for told in self.loops if told.segment is not None]
        return known + ([self.schedule] if self.schedule is not None else [])


class Recorded(NamedTuple):
    """The outcome of recording a call: its result, the entry for later calls (None: record again), and
    storages of which views share memory, so that they have to enter as one.
    """

    result: Any
    entry: Signature | None
    aliased: Set[Storage] = frozenset()


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
    computed: dict[Computed | Source, Var]
    numbers: list[Any]
    bound: tuple[Any, ...]
    draws: tuple[tuple[Any, int], ...]
    captured: dict[Storage, str]
    rules: tuple[str | None, ...]


def record(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    whole: set[Storage],
    *,
    strict: bool,
    launch: bool = True,
    compiled: bool = True,
    segments: Segments | None = None,
) -> Recorded:
    """Run `function` once on these arguments, recording it. Without `launch` nothing is computed; without
    `compiled` nothing is compiled either, and the result is the description (`Described`). `segments` are
    those of the function's paths; without them a look at a value gives up.
    """
    reached: set[int] = set()
    aliased: set[Storage] = set()
    plain = False
    numpy: bool | None = None
    unrolled: dict[Any, tuple[str, str]] | None = {} if compiled else None
    name = getattr(function, "__qualname__", type(function).__name__)
    with collector.at_rest():  # no decorator: errors name the nearest frame outside of this package
        while True:
            trace = Trace(
                name,
                strict=strict,
                dry=not launch,
                plain=plain,
                recorded_numpy=numpy,
                segments=segments,
                unrolled=unrolled,
            )
            try:
                call = _TracedCall(trace, function, args, kwargs, whole | aliased, reached)
                result = call.run_body()
                call.compiled = compiled
                return call.conclude(result, launch=launch)._replace(aliased=aliased)
            except GivenUp as end:
                end.__traceback__ = None  # which holds all that the body had
                return Recorded(PIECEWISE, call.piecewise_entry(), aliased)
            except Restart as restart:
                restart.__traceback__ = None
                aliased |= restart.aliased
                if restart.container is not None:
                    reached.add(id(restart.container))
                if restart.numpy is not None:
                    numpy = restart.numpy
                if restart.counted is not None and segments is not None:
                    segments.counted = restart.counted
                    continue
                if restart.math and segments is not None:
                    segments.computes_math = True
                    continue
                if restart.unrolled is not None and unrolled is not None:
                    site, why = restart.unrolled
                    unrolled[site] = why
                    continue
                plain = plain or not (
                    restart.aliased or restart.container is not None or restart.numpy is not None
                )
            finally:
                trace.numbers.closed = True
                trace.interruption = None
                trace.forget_functions()


class _TracedCall:
    """The state of one recording."""

    def __init__(
        self, trace: Trace, function: Any, args: Any, kwargs: Any, whole: set[Storage], reached: set[int]
    ):
        self.trace, self.function = trace, function
        compile.anticipate()
        self.started = time.perf_counter()
        self.program = program = ReplayProgram()
        self.arguments = Arguments(trace, program, whole | shared_storages(args, kwargs), reached)
        program.require(f"len(args) == {len(args)}")
        if kwargs:
            in_order = shows_keywords(function)
            given = Const(tuple(kwargs) if in_order else frozenset(kwargs))
            program.require("tuple(kwargs) == {}" if in_order else "kwargs.keys() == {}", given)
        else:
            program.require("not kwargs")
        names = parameter_names(function, len(args))
        wrap = self.arguments.wrap
        self.args = [wrap(args[i], Form(f"args[{i}]"), name) for i, name in enumerate(names)]
        self.kwargs = {k: wrap(v, Form("kwargs[{}]", Literal(k)), k) for k, v in kwargs.items()}
        self.found = len(program.steps)  # the steps that find the arguments
        self.surroundings = Surroundings(function, self.arguments)
        self.changes: list[tuple[Slot, Any]] | None = None
        self.launched = False
        self.compiled = True

    def run_body(self) -> Any:
        """Run the body. Afterwards its surroundings are as before, and `changes` tells what it rebound."""
        trace, surroundings = self.trace, self.surroundings
        try:
            surroundings.scan(self.arguments.objects)
            trace.changes = surroundings.changes
            trace.containers = lambda: [known.copy for known in self.arguments.containers.values()]
            function = self.function
            if trace.segments is not None:
                function = with_own_builtins(function, counts=bool(trace.counted))
            watcher = Watcher(trace, surroundings)
            busy = thread.busy
            try:
                thread.be_busy(busy + 1)
                thread.trace = trace
                watcher.start()
                result = function(*self.args, **self.kwargs)
                trace.count_rest()
            finally:
                thread.trace, thread.device = None, trace.device
                thread.busy = busy
                watcher.over = True  # whatever interrupts `stop`
                watcher.stop()
                thread.be_busy(busy)  # last: an interrupt in it leaves a name in `recorders`, no more
            self._take_back()
            self._check_caught(None)
            for rounds in trace.open_ranges:
                rounds.unroll("the loop is left before its end")
        except BaseException as error:
            self._take_back()
            self._break_off()
            if isinstance(error, Exception):
                self._check_caught(error)
            if not isinstance(error, Restart):
                without_stand_ins(error, self.arguments)
            raise
        return result

    def _check_caught(self, error: Exception | None) -> None:
        """Raise what aborted the body if the body caught it; start again if stand-ins were seen for what they
        are, by a library that does not take them.
        """
        trace = self.trace
        if trace.interruption is not None and trace.interruption is not error:
            raise trace.interruption from None
        if error is not None and trace.interruption is None and trace.recorded_numpy:
            raise Restart(numpy=False) from None  # a recorded array may have been the reason
        has_stand_ins = (trace.numbers.given or trace.captured) and not trace.numbers.plain
        if has_stand_ins and (isinstance(error, TypeError) or (error is not None and _is_librarys(error))):
            raise Restart from None

    def _break_off(self) -> None:
        """After an error: a launch that was made has happened, otherwise nothing has."""
        if not self.launched:
            self.surroundings.restore_contents()
            self.trace.give_draws_back()
        self.trace.reset()

    def conclude(self, result: Any, *, launch: bool) -> Recorded:
        """Compute what was recorded, and make the entry for later calls."""
        try:
            try:
                return self.finish(result, launch=launch)
            except (Unreplayable, Refused) as error:
                remedy, line = "return arrays, numbers and containers of them", None
                if isinstance(error, Refused):
                    remedy, line = error.remedy, error.line
                self.trace.give_up(str(error), remedy, line=line or _line_of(self.function))
        except BaseException:
            self._break_off()
            raise

    def _take_back(self) -> None:
        """Undo what the body rebound; this may be done twice, as an interrupt may come."""
        if self.changes is None:
            self.surroundings.note_logs(self.trace.callbacks)
            self.changes = self.surroundings.changes()
        self.surroundings.undo(self.changes)

    # -- piecewise -------------------------------------------------------------------------------------------

    def piecewise_entry(self) -> Signature:
        """An entry for calls with such arguments."""
        program = ReplayProgram(self.program.steps[: self.found])
        entry = Signature(_no_replay, program.requirements(), self.trace.graph([]), None, self.trace.reasons)
        entry.replay, entry.text = recogniser_of(program, self.trace.name, entry)
        return entry

    # -- replayable ------------------------------------------------------------------------------------------

    def finish(self, result: Any, *, launch: bool) -> Recorded:
        """Compile and launch what was recorded; the entry by which later calls replay it."""
        trace, program, arguments = self.trace, self.program, self.arguments
        if trace.numbers.raised:
            raise Unreplayable("the body catches an error of arithmetic on a number found in an array")
        guards, computed = Guards(self.surroundings, program), self._computed()
        guards.emit()
        description = Description(program, arguments, guards.var_of, computed)
        self._find_arrays(guards)
        self.loops = Loops(trace, arguments, computed)
        if trace.uses_device:
            self._check_device()
        frozen = self._find_imports(guards)
        self._describe(result, description)
        self._check_escapes(description)
        self._keep_constants(frozen, description)
        if trace.cuts:  # before anything is launched
            check_separate(program, self.surroundings, description.rebinds)
        self.loops.emit(program)
        if not trace.cuts:
            check_separate(program, self.surroundings, description.rebinds)
        outputs = list(program.outputs)
        graph = trace.finish([s.pending for s in outputs])  # type: ignore[misc]
        if not self.compiled:
            described = self._described(graph, guards, computed)
            self._forget()
            return Recorded(described, None)
        recorded = time.perf_counter()
        schedule = compile.compile_graph(graph)
        compiled = time.perf_counter()
        program.launch = launches.launch_of(program, trace, arguments, computed, graph, schedule)
        entry = Signature(_no_replay, program.requirements(), graph, schedule, used=next(CLOCK))
        entry.names = launches.names_of(program)
        entry.segments = self._segments() if trace.cuts else ()
        entry.loops = tuple(self.loops.told)
        release_callbacks(graph, entry)
        if launch:  # now, so that it is computed while Python compiles the replay function
            launches.launch(trace, graph, schedule, outputs, awaited=program.launch.is_awaited)
            self.launched = True
            write_back(program)
            bound = [*trace.bound, *(b for cut in trace.cuts for b in cut.bound)]
            shared = [b.storage.variable for b in bound if isinstance(b, Extent) and b.storage.shared]
            engine.wait(*shared, exclusive=True)
        entry.replay, entry.text = replay_of(program, trace.name, entry)
        if not launch:
            self._forget()
            return Recorded(None, entry)
        entry.timing = Timing(recorded - self.started, compiled - recorded, time.perf_counter() - compiled)
        trace.reset()
        assert program.result is not None
        return Recorded(make(program.result), entry)

    def _check_device(self) -> None:
        """Require that arrays are made on the same device as in this call."""
        device = self.trace.device
        says = "the device of new arrays", str(device)
        is_it = Form("{}.device is {}", Const(thread), Const(device))
        if device is CPU:
            self.program.require("not {} or {}", Const(device_contexts), is_it, says=says)
        else:
            self.program.require("{}", is_it, says=says)

    def _described(self, graph: Graph, guards: Guards, computed: dict[Computed | Source, Var]) -> Described:
        """Describe the recording before anything is compiled."""
        trace = self.trace
        captured = {slot.value._storage: slot.path for slot in reversed(guards.arrays)}
        for storage, array in trace.imports.items():
            captured[storage] = guards.path_of(array) or "constant"
        return Described(
            graph=graph,
            program=self.program,
            arguments=self.arguments,
            computed=computed,
            numbers=list(trace.numbers.steps),
            bound=tuple(trace.bound),
            draws=tuple(trace.draws),
            captured=captured,
            rules=tuple(trace.rules),
        )

    def _forget(self) -> None:
        """Nothing of the recording is to be computed."""
        self.surroundings.restore_contents()
        self.trace.reset()

    def _computed(self) -> dict[Computed | Source, Var]:
        """Variables for the numbers that the body computed, or found in arrays."""
        steps = self.trace.numbers.steps
        computed: dict[Computed | Source, Var] = {}
        for step in steps:
            if isinstance(step, Computed):
                computed[step] = Var("m", step.value, step.path)
            elif isinstance(step, Cut):
                computed[step.source] = Var("l", step.source.value, step.source.path)
        return computed

    def _segments(self) -> tuple[tuple[Place, tuple[Answer, ...]], ...]:
        """The segments of the path, and what is checked after each."""
        found: list[tuple[Place, list[Answer]]] = []
        meanings: dict[Expr, int] = {}  # of variables; two that are computed alike mean the same

        for step in self.program.steps:
            if isinstance(step, Run | Loop):
                found.append((step.place, []))
                made = (step.found,) if isinstance(step, Run) else step.states[step.ends].vars
                if isinstance(step, Loop) and len(step.states) > 1:
                    found[-1][1].append(Answer("", hash(("left", id(step.place))), step.ends))
                meanings |= {var: hash((id(step.place), k)) for k, var in enumerate(made)}
            elif isinstance(step, Bind):
                meanings[step.var] = meaning(step.value, meanings)
            elif isinstance(step, Check) and found and step.says is not None:
                asked, *rest = step.condition.operands
                value = step.condition.form, *(meaning(each, meanings) for each in rest)
                found[-1][1].append(Answer(" ".join(step.says), meaning(asked, meanings), value))
        return tuple((place, tuple(answers)) for place, answers in found)

    def _describe(self, result: Any, description: Description) -> None:
        """Describe how the result is made, and what is written back."""
        changes = self.changes or ()
        description.count(result)
        description.count_changes()
        for _slot, now in changes:
            description.count(now)
        self.program.result = description.describe(result, "the result")
        description.write_back()
        for slot, now in changes:
            self._check_change(slot, now)
            description.rebind(slot, now, _stored(slot))

    def _check_change(self, slot: Slot, now: Any) -> None:
        """Raise if a replay cannot rebind this slot."""
        if isinstance(slot, Whole):
            for leaf in trees.leaves(now):
                if isinstance(leaf, NDArray) and leaf._storage.pending is not None:
                    raise Unreplayable(f"an array made at {leaf._storage.made_at} is kept in {slot.path}")
            raise Unreplayable(f"the body changes the keys, length or content of {slot.path}")
        if not self.surroundings.is_ours(slot):
            raise Unreplayable(f"{slot.path} changed while the body was recorded")
        if now is not GONE and slot.given is slot.value and type(slot.value) in (int, float):
            raise Unreplayable(
                f"the body changes the number {slot.path} where that is not a plain assignment"
            )

    def _find_arrays(self, guards: Guards) -> None:
        """Arrays found by name: the replay reads their places again."""
        arguments, program = self.arguments, self.program
        for slot in guards.arrays:
            array = slot.value
            storage, view = array._storage, array._view
            release(storage)
            var = program.bind(slot.place, seen=array, path=slot.path)
            known = arguments.arrays.get(storage)
            says = slot.path, described(array)
            if known is not None:
                form = "type({}) is NDArray and {}._storage is {}"
                program.require(form, var, var, known[0], says=says)
                program.require("{}._view is {} or {}._view == {}", var, Const(view), var, Const(view))
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
                raise Unreplayable(
                    f"the body uses an array ({made}) that is no argument and not found by following names"
                )

    def _find_imports(self, guards: Guards) -> list[Storage]:
        """NumPy arrays the body brought in: captured ones are copied in again, others are as they were (these
        are given).
        """
        frozen = []
        for storage, array in self.trace.imports.items():
            found = guards.copy_in(array)
            if found is None:
                frozen.append(storage)
            self.arguments.copy_in(storage, found or Const(array))
        return frozen

    def _keep_constants(self, frozen: list[Storage], description: Description) -> None:
        """Constant arrays that nobody writes or gets need no copy for each replay."""
        program = self.program
        for storage in frozen:
            is_written = any(window.written for window in self.trace.windows.get(storage, ()))
            if storage not in description.kept and not is_written:
                var = self.arguments.arrays[storage][0]
                program.copies = [copy for copy in program.copies if copy[0] is not var]
                program.constants[var] = storage

    def _check_escapes(self, description: Description) -> None:
        """Arrays that the body made and that are still alive must be among the results."""
        expected = {*self.program.outputs, *description.carried}
        if all(s in expected for s in self.trace.live()):
            return
        gc.collect(collector.YOUNG)  # what only a cycle keeps alive has not escaped
        if not all(s in expected for s in self.trace.live()):
            gc.collect()  # the cycle may be older than the call
        for storage in self.trace.live():
            if storage not in expected:
                raise Unreplayable(
                    f"an array made at {storage.made_at} outlives the call without being returned"
                )


def _is_librarys(error: Exception) -> bool:
    """Whether code of Python's library or NumPy raised an error, which may not take stand-ins."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and OWNER[trace.tb_frame.f_globals.get("__name__")] == LIBRARY


def _no_replay(args: Any, kwargs: Any) -> Any:
    """Stands for the replay function until that is written."""


def _line_of(function: Any) -> str | None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None


def _stored(slot: Slot) -> Expr:
    """The expression to which a replay assigns a slot's value."""
    cls = type(slot.holder)
    if not isinstance(slot, Attribute) or issubclass(cls, type | types.ModuleType):
        return slot.place
    if is_stored_plainly(cls, slot.key):
        return slot.place
    return Form("Attributes({})[{}]", slot.place.root, Literal(slot.key))
