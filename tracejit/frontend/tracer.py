"""Recording one call of a traced function, and making the replay function of its signature.

`record` runs the body once on a `Trace`, launches what it recorded, and returns the result together with an
`Entry`: the signature's replay function, its schedule and the facts it depends on. What cannot be replayed
gives an entry whose replay says so (`PIECEWISE`), with the reasons.

Between the end of the body and the launch the world is as it was before the call: what the body rebound is
taken back, and done again once nothing can fail any more. So an error, an interrupt or a refusal leaves
nothing behind, and other threads see arrays only when they are computed.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import gc
import inspect
import itertools
import re
import time
import types
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tracejit import collector, compile
from tracejit.frontend import actions, commit, trees
from tracejit.frontend.arguments import Arguments, parameter_names, shared_storages, shows_keywords
from tracejit.frontend.bytecode import type_names
from tracejit.frontend.content import GONE, Attributes, is_stored_plainly
from tracejit.frontend.guards import Guards, Refused, root_of
from tracejit.frontend.ndarray import NDArray
from tracejit.frontend.recording import thread
from tracejit.frontend.replay import Source, release
from tracejit.frontend.results import Results, Unreplayable
from tracejit.frontend.slots import Attribute, Slot, Whole
from tracejit.frontend.storage import Storage
from tracejit.frontend.surroundings import Surroundings
from tracejit.frontend.trace import GivenUp, Restart, Trace
from tracejit.frontend.vouch import release_callbacks
from tracejit.frontend.watch import watching
from tracejit.ir.graph import Graph
from tracejit.ir.types import name_of


class _Piecewise:
    """What a replay function returns when the body must run: the signature is known not to be replayable."""

    def __repr__(self) -> str:
        return "PIECEWISE"


PIECEWISE = _Piecewise()
CLOCK = itertools.count(1)
"""Ticks at every use of an entry, to find the least recently used one."""


class Timing(NamedTuple):
    """Seconds that the parts of a first call took: recording the body, compiling (or loading), running."""

    record: float
    compile: float
    run: float

    @property
    def total(self) -> float:
        return self.record + self.compile + self.run


@dataclass(eq=False, repr=False)
class Entry:
    """One signature of a traced function. `timing` is that of its first call."""

    replay: Callable[[Any, Any], Any]
    facts: dict[str, str]
    graph: Graph
    schedule: Any
    reasons: list[tuple[str, str | None]] = field(default_factory=list)
    text: str = ""
    replays: int = 0
    used: int = 0  # when it served last
    pieces: int = 0  # how many calls ran piecewise
    patience: int = 8  # how many may, before one is recorded again: the reason may be gone
    timing: Timing | None = None


class Recorded(NamedTuple):
    """What recording a call gives: its result, the entry for later calls (None: record again), and storages
    that had to enter whole."""

    result: Any
    entry: Entry | None
    aliased: Set[Storage] = frozenset()
    grown: bool = False  # the body changed a container in a way that it may not do again


def record(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    whole: set[Storage],
    *,
    strict: bool,
    launch: bool = True,
    compiled: bool = True,
) -> Recorded:
    """Run `function` once on these arguments, recording it. Without `launch` nothing is computed; without
    `compiled` nothing is compiled either, and the result is the plan (`compile.Planned`).
    """
    reached: set[int] = set()
    aliased: set[Storage] = set()
    plain = False
    with collector.at_rest():
        while True:
            name = getattr(function, "__qualname__", type(function).__name__)
            trace = Trace(name, strict=strict, dry=not launch, plain=plain)
            try:
                call = _Call(trace, function, args, kwargs, whole | aliased, reached)
                result = call.run_body()
                call.compiled = compiled
                return call.conclude(result, launch=launch)._replace(aliased=aliased)
            except GivenUp as end:
                end.__traceback__ = None  # which holds all that the body had
                entry = None if trace.transient else call.piecewise_entry()
                return Recorded(PIECEWISE, entry, aliased, call.grown)
            except Restart as restart:
                restart.__traceback__ = None
                aliased |= restart.aliased
                if restart.container is not None:
                    reached.add(id(restart.container))
                plain = plain or not (restart.aliased or restart.container is not None)
            finally:
                trace.numbers.closed = True
                trace.interruption = None


class _Call:
    """The state of one recording."""

    def __init__(
        self, trace: Trace, function: Any, args: Any, kwargs: Any, whole: set[Storage], reached: set[int]
    ):
        self.trace, self.function = trace, function
        compile.anticipate()
        self.started = time.perf_counter()
        self.source = Source()
        self.arguments = Arguments(self.trace, self.source, whole | shared_storages(args, kwargs), reached)
        self.source.require(f"len(args) == {len(args)}")
        if kwargs:
            in_order = shows_keywords(function)
            given = self.source.constant(tuple(kwargs) if in_order else frozenset(kwargs))
            self.source.require(f"{'tuple(kwargs)' if in_order else 'kwargs.keys()'} == {given}")
        else:
            self.source.require("not kwargs")
        names = parameter_names(function, len(args))
        self.args = [
            self.arguments.bring(a, f"args[{i}]", n) for (i, a), n in zip(enumerate(args), names, strict=True)
        ]
        self.kwargs = {k: self.arguments.bring(v, f"kwargs[{k!r}]", k) for k, v in kwargs.items()}
        self.argument_lines = list(self.source.lines)
        self.surroundings = Surroundings(function, self.arguments)
        self.changes: list[tuple[Slot, Any]] | None = None
        self.done = Results(self.arguments)  # what was applied
        self.launched = False
        self.grown = False
        self.compiled = True

    def run_body(self) -> Any:
        """Run the body. Afterwards its surroundings are as before, and `changes` tells what it rebound."""
        trace, surroundings = self.trace, self.surroundings
        try:
            surroundings.scan(self.arguments.objects)
            try:
                thread.trace = trace
                with watching(trace, surroundings):
                    result = self.function(*self.args, **self.kwargs)
            finally:
                thread.trace = None
            self._take_back()
            self._check_caught(None)
        except BaseException as error:
            self._take_back()
            self._break_off()
            if isinstance(error, Exception):
                self._check_caught(error)
            if not isinstance(error, Restart):
                Results(self.arguments).settle_error(error)
            raise
        return result

    def _check_caught(self, error: Exception | None) -> None:
        """Raise what broke the body off if the body caught it; start again if stand-ins were seen for what
        they are: by code that asks for the name of their type, or a library that does not take them.
        """
        trace, executed = self.trace, self.surroundings.executed
        if trace.interruption is not None and trace.interruption is not error:
            raise trace.interruption from None
        if (trace.numbers.readable or trace.captured) and not trace.numbers.plain and not trace.piecewise:
            named = [(lines, type_names(code)) for code, lines in executed.items()]
            shown = any(names and (not lines or not names.isdisjoint(lines)) for lines, names in named)
            if shown or isinstance(error, TypeError):
                raise Restart from None

    def _break_off(self) -> None:
        """After an error: piecewise code keeps its finished statements; a launch that was made has happened,
        otherwise nothing has.
        """
        if self.trace.piecewise:
            self._compute()
            return
        if not self.launched:
            self.surroundings.restore_contents()
        self.trace.reset()

    def conclude(self, result: Any, *, launch: bool) -> Recorded:
        """Compute what was recorded, and make the entry for later calls."""
        try:
            if not self.trace.piecewise:
                try:
                    return self.finish(result, launch=launch)
                except (Unreplayable, Refused) as error:
                    self.refuse(error)
                    self.trace.go_on()
            return self.finish_piecewise(result)
        except BaseException:
            self._break_off()
            raise

    def _take_back(self) -> None:
        """Undo what the body rebound; this may be done twice, as an interrupt may come."""
        if self.changes is None:
            self.surroundings.note_logs(self.trace.callbacks)
            self.changes = self.surroundings.changes()
        self.surroundings.undo(self.changes)

    def _apply(self) -> None:
        """What the body rebound is rebound, in the caller's containers and in the surroundings."""
        results = self.done = Results(self.arguments)
        results.settle_containers()
        for slot, now in sorted(self.changes or (), key=lambda change: isinstance(change[0], Whole)):
            if self.surroundings.is_ours(slot):
                slot.put(results.settle(now))

    # -- piecewise -------------------------------------------------------------------------------------------

    def refuse(self, error: Unreplayable | Refused) -> None:
        """The body ran, but cannot be replayed: its recording is computed now, unless that is an error."""
        remedy, line = "return arrays, numbers and containers of them", _line_of(self.function)
        if isinstance(error, Refused):
            remedy, line = error.remedy, error.line or line
        self.trace.refuse(str(error), remedy, line=line)

    def _compute(self) -> None:
        """Compute what was recorded; this may be done twice, as an interrupt may come."""
        self.trace.flush()
        self._apply()

    def finish_piecewise(self, result: Any) -> Recorded:
        """Compute what a body did that has run, and cannot be replayed."""
        self._compute()
        entry = None if self.trace.transient else self.piecewise_entry()
        return Recorded(self.done.settle(result), entry, grown=self.grown)

    def piecewise_entry(self) -> Entry:
        """An entry for calls that take the branches that this one took while it was recorded."""
        source, facts = Source(), self.arguments.facts
        source.lines, source.names = self.argument_lines, self.source.names
        for flag in Guards(self.surroundings, source, facts).flags():
            source.require(flag)
        self._check_branches(source)
        source.names["PIECEWISE"], source.names["CLOCK"] = PIECEWISE, CLOCK
        source.actions.append("entry.used = next(CLOCK); return PIECEWISE")
        graph = self.trace.graph([])
        entry = Entry(source.function(self.trace.name), facts, graph, None, self.trace.reasons, source.text)
        source.names["entry"] = entry
        return entry

    # -- replayable ------------------------------------------------------------------------------------------

    def finish(self, result: Any, *, launch: bool) -> Recorded:
        """Compile and launch what was recorded; the entry by which later calls replay it."""
        trace, source, arguments = self.trace, self.source, self.arguments
        guards = Guards(self.surroundings, source, arguments.facts)
        guards.emit()
        results = Results(arguments, lambda value: guards.variable_of(value))
        self._find_arrays(guards)
        frozen = self._find_imports(guards)
        results.meet(result)
        results.meet_changes()
        for _slot, now in self.changes or ():
            results.meet(now)
        expression = results.give(result, "the result")
        results.write_back_all()
        self._rebinding(guards, results)
        self._check_escapes(results)
        self._keep_constants(frozen, results)
        self._check_numbers(source)
        graph = trace.finish([s.pending for s in results.outputs])  # type: ignore[misc]
        if not self.compiled:
            self.surroundings.restore_contents()
            trace.reset()
            return Recorded(compile.plan_graph(graph), None)
        recorded = time.perf_counter()
        schedule = compile.compile_graph(graph)
        compiled = time.perf_counter()
        actions.emit(trace, arguments, self.surroundings, results, graph, schedule)
        source.actions.append(f"entry.replays += 1; entry.used = next(CLOCK); return {expression}")
        entry = Entry(lambda a, k: None, arguments.facts, graph, schedule, used=next(CLOCK))
        source.names["entry"], source.names["CLOCK"] = entry, CLOCK
        release_callbacks(graph, entry)
        if launch:  # now, so that it is computed while Python compiles the replay function
            fallible = bool(results.lines) and actions.can_fail(graph)
            commit.launch(trace, graph, schedule, list(results.outputs), self._apply, fallible=fallible)
            self.launched = True
        entry.replay, entry.text = source.function(trace.name), source.text
        if not launch:
            self.surroundings.restore_contents()
            trace.reset()
            return Recorded(None, entry)
        entry.timing = Timing(recorded - self.started, compiled - recorded, time.perf_counter() - compiled)
        trace.reset()
        return Recorded(self.done.settle(result), entry)

    def _check_numbers(self, source: Source) -> None:
        """Compute what the body computed of its numbers, and check what it looked at, in its order."""
        numbers = self.trace.numbers
        for name, step in numbers.steps:
            if name is not None:
                source.line(f"{name} = {step}")
            else:
                source.same(*step)
                self.arguments.facts[numbers.readable[step[0]]] = repr(step[1])

    def _check_branches(self, source: Source) -> None:
        """Check what the body asked of its arguments' numbers; values it looked at may be any."""
        known = {line.partition(" = ")[0] for line in source.lines}
        for name, step in self.trace.numbers.steps:
            expression = step if name is not None else step[0]
            if not known.issuperset(re.findall(r"\b[nm]\d+\b", expression)):
                continue
            if name is not None:
                source.line(f"{name} = {step}")
                known.add(name)
            elif isinstance(step[1], bool):
                source.same(*step)
                self.arguments.facts[self.trace.numbers.readable[expression]] = repr(step[1])

    def _find_arrays(self, guards: Guards) -> None:
        """Arrays found by name: the replay reads their places again."""
        arguments, source = self.arguments, self.source
        for slot in guards.arrays:
            array = slot.value
            storage, view = array._storage, array._view
            release(storage)
            variable = source.bind(slot.expression)
            known = arguments.arrays.get(storage)
            if known is not None:
                k = source.constant(view)
                source.require(f"type({variable}) is NDArray and {variable}._storage is {known[0]}")
                source.require(f"{variable}._view is {k} or {variable}._view == {k}")
            else:
                name = source.array(variable, storage.type, view, window=False)
                arguments.arrays[storage] = (name, "0")
                if storage in self.trace.windows:
                    arguments.storages.append((storage, name))
            arguments.tell_apart(array, variable)
            arguments.handles.setdefault(id(array), (array, variable))
            arguments.callers.setdefault(id(array), array)
            arguments.facts[slot.path] = f"{name_of(array.dtype)}[{','.join(map(str, array.shape))}]"
        for storage in self.trace.windows:
            if storage not in arguments.arrays and storage not in self.trace.imports:
                made = f"{storage.type} made at {storage.made_at}" if storage.made_at else str(storage.type)
                raise Unreplayable(
                    f"the body uses an array ({made}) that is no argument and not found by following names"
                )

    def _find_imports(self, guards: Guards) -> dict[Storage, np.ndarray]:
        """NumPy arrays the body brought in: captured ones are copied in again, others are as they were."""
        frozen = {}
        for storage, array in self.trace.imports.items():
            expression = guards.copy_in(array)
            if expression is None:
                frozen[storage] = array
                expression = self.source.constant(array)
            self.arguments.copy_in(storage, expression)
        return frozen

    def _keep_constants(self, frozen: dict[Storage, np.ndarray], results: Results) -> None:
        """Constant arrays that nobody writes or gets need no copy for each replay."""
        arguments = self.arguments
        for storage in frozen:
            if storage not in results.kept and not any(
                w.written for w in self.trace.windows.get(storage, ())
            ):
                name = arguments.arrays[storage][0]
                arguments.copies = [c for c in arguments.copies if c[0] != name]
                self.source.names[name] = storage

    def _rebinding(self, guards: Guards, results: Results) -> None:
        """Statements that repeat what the body rebound in its surroundings."""
        for slot, now in self.changes or ():
            if isinstance(slot, Whole):
                for leaf in trees.leaves(now):
                    if isinstance(leaf, NDArray) and leaf._storage.pending is not None:
                        self.grown = True
                        raise Unreplayable(f"an array made at {leaf._storage.made_at} is kept in {slot.path}")
                self.grown = True
                raise Unreplayable(f"the body changes the keys, length or content of {slot.path}")
            if not self.surroundings.is_ours(slot):
                raise Unreplayable(f"{slot.path} changed while the body was recorded")
            results.rebinds.add(type(slot.holder))
            target = self._target(slot)
            if now is GONE:
                results.lines.append(f"del {target}")
                continue
            if slot.given is slot.value and type(slot.value) in (int, float):
                raise Unreplayable(
                    f"the body changes the number {slot.path} where that is not a plain assignment"
                )
            results.rebind(target, results.give(now, slot.path))

    def _target(self, slot: Slot) -> str:
        """Where a replay stores what a slot holds."""
        cls = type(slot.holder)
        if not isinstance(slot, Attribute) or issubclass(cls, type | types.ModuleType):
            return slot.expression
        if is_stored_plainly(cls, slot.key):
            return slot.expression
        return f"{self.arguments.source.inside(Attributes, root_of(slot.expression))}[{slot.key!r}]"

    def _check_escapes(self, results: Results) -> None:
        """Arrays that the body made and that are still alive must be among the results."""
        expected = set(results.outputs)
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


def _line_of(function: Any) -> str | None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None
