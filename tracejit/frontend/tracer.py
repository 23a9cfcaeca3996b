"""Recording one call of a traced function, and making the replay function of its signature.

`record` runs the body once on a `Trace`, launches what it recorded, and returns the result together with an
`Entry`: the signature's replay function, its schedule and the facts it depends on. What cannot be replayed
gives an entry whose replay says so (`PIECEWISE`), with the reasons.
"""

from __future__ import annotations

import gc
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracejit import compile, engine
from tracejit.frontend import eager
from tracejit.frontend.arguments import BY_IDENTITY, Arguments, shared_storages
from tracejit.frontend.ndarray import NDArray
from tracejit.frontend.number import NumberProxy
from tracejit.frontend.recording import Number, Window, thread
from tracejit.frontend.replay import Source, release
from tracejit.frontend.results import Results, Unreplayable
from tracejit.frontend.storage import Storage
from tracejit.frontend.surroundings import PLAIN, Surroundings, stored_attributes
from tracejit.frontend.trace import Trace
from tracejit.frontend.watch import watching
from tracejit.ir.graph import Graph


class _Piecewise:
    """What a replay function returns when the body must run: the signature is known not to be replayable."""

    def __repr__(self) -> str:
        return "PIECEWISE"


PIECEWISE = _Piecewise()


@dataclass(frozen=True)
class Timing:
    """Seconds the first call of a signature took, and for what."""

    record: float
    compile: float
    run: float

    @property
    def total(self) -> float:
        return self.record + self.compile + self.run


@dataclass(eq=False)
class Entry:
    """One signature of a traced function."""

    replay: Callable[[Any, Any], Any]
    facts: dict[str, str]
    graph: Graph
    schedule: Any
    reasons: list[tuple[str, str | None]] = field(default_factory=list)
    text: str = ""
    replays: int = 0
    timing: Timing | None = None


@dataclass(eq=False)
class Recorded:
    """What recording a call gives: its result, the entry for later calls (None: record again), aliased
    storages."""

    result: Any
    entry: Entry | None
    aliased: set[Storage]


def record(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], whole: set[Storage], *,
           strict: bool, launch: bool = True) -> Recorded:  # fmt: skip
    """Run `function` once on these arguments, recording it. With ``launch=False`` nothing is computed or
    changed."""
    call = _Call(function, args, kwargs, whole, strict, dry=not launch)
    try:
        result = call.run_body()
    except BaseException:
        call.undo()
        raise
    if call.trace.piecewise:
        return call.finish_piecewise(result)
    return call.finish(result, launch=launch)


class _Call:
    """The state of one recording."""

    def __init__(self, function: Any, args: Any, kwargs: Any, whole: set[Storage], strict: bool, dry: bool):
        self.function = function
        self.started = time.perf_counter()
        self.source = Source()
        self.trace = Trace(getattr(function, "__qualname__", "function"), strict=strict, dry=dry)
        self.arguments = Arguments(self.trace, self.source, whole | shared_storages(args, kwargs))
        self.source.require(f"len(args) == {len(args)}")
        if kwargs:
            self.source.require(f"kwargs.keys() == {self.source.constant(frozenset(kwargs))}")
        else:
            self.source.require("not kwargs")
        names = _parameter_names(function, len(args))
        self.args = [
            self.arguments.bring(a, f"args[{i}]", n) for (i, a), n in zip(enumerate(args), names, strict=True)
        ]
        self.kwargs = {k: self.arguments.bring(v, f"kwargs[{k!r}]", k) for k, v in kwargs.items()}
        self.surroundings = Surroundings(function, self.source)
        self.surroundings.scan(self.arguments.objects)
        self.proxied: list[tuple[Any, str, Any, str]] = []  # object, attribute, plain number, expression
        self._proxy_attributes()

    def _proxy_attributes(self) -> None:
        """Number attributes that the code assigns (``self.t += 1``) are run-time numbers, not guards."""
        stored = frozenset().union(*(stored_attributes(c) for c in self.surroundings.codes))
        for variable, _path, value in self.arguments.objects:
            if isinstance(value, BY_IDENTITY):
                continue
            for name in sorted(stored & set(getattr(value, "__dict__", {}))):
                number = value.__dict__[name]
                if isinstance(number, (int, float)) and not isinstance(number, bool):
                    expression = f"{variable}.{name}"
                    local = self.source.bind(expression, "n")
                    self.source.require(f"type({local}) is {type(number).__name__}")
                    value.__dict__[name] = self.trace.proxy(number, local)
                    self.proxied.append((value, name, number, expression))
                    self.surroundings.places.pop(expression, None)

    def run_body(self) -> Any:
        thread.trace = self.trace
        try:
            with watching(self.trace, self.surroundings):
                return self.function(*self.args, **self.kwargs)
        finally:
            thread.trace = None

    def undo(self) -> None:
        """The body raised: objects hold what they held before. A piecewise body keeps its finished
        statements."""
        if self.trace.piecewise:
            self.trace.flush()
            self._settle_objects()
            Results(self.arguments).settle_containers()
            return
        for value, name, number, _expression in self.proxied:
            value.__dict__[name] = number
        now = self.surroundings.again()
        for expression, place in self.surroundings.places.items():
            found = now.places.get(expression)
            if found is not None and found.value is not place.value:
                self._restore(expression, place.value)
        self.trace.reset()

    def _restore(self, expression: str, value: Any) -> None:
        namespace = {**self.source.names, "_value": value}
        for variable, _path, given in self.arguments.objects:
            namespace[variable] = given
        exec(f"{expression} = _value", namespace)

    # -- piecewise -------------------------------------------------------------------------------------------

    def finish_piecewise(self, result: Any) -> Recorded:
        trace = self.trace
        trace.flush()
        results = Results(self.arguments)
        results.settle_containers()
        self._settle_objects()
        settled = results.settle(result)
        return Recorded(settled, None if trace.aliased else self._piecewise_entry(), trace.aliased)

    def _piecewise_entry(self) -> Entry:
        self._guard_numbers()
        self.source.names["PIECEWISE"] = PIECEWISE
        self.source.line("return PIECEWISE")
        graph = self.trace.graph([])
        return Entry(
            self.source.function(self.trace.name), self.arguments.facts, graph, None, self.trace.piecewise,
            self.source.text,
        )  # fmt: skip

    def _settle_objects(self) -> None:
        for value, name, _number, _expression in self.proxied:
            held = value.__dict__.get(name)
            if type(held) is NumberProxy:
                value.__dict__[name] = held._value
        results = Results(self.arguments)
        for place in self.surroundings.again().places.values():
            if type(place.value) is NumberProxy:
                self._restore(place.expression, results.settle(place.value))

    # -- replayable ------------------------------------------------------------------------------------------

    def finish(self, result: Any, *, launch: bool) -> Recorded:
        trace, source = self.trace, self.source
        self._guard_surroundings()
        results = Results(self.arguments)
        try:
            self._bring_captured()
            expression = results.give(result, "the result")
            results.write_back_all()
            results.lines += self._rebinding(results)
            self._check_escapes(results)
        except Unreplayable as error:
            trace.give_up(str(error), "return arrays, numbers and containers of them")
            return self.finish_piecewise(result)
        self._guard_numbers()
        graph = trace.finish([s.pending for s in results.outputs])  # type: ignore[misc]
        recorded = time.perf_counter()
        schedule = compile.compile_graph(graph)
        compiled = time.perf_counter()
        outputs = list(results.outputs)
        self._emit_launch(graph, schedule, results)
        source.line(f"entry.replays += 1; return {expression}")
        entry = Entry(lambda a, k: None, self.arguments.facts, graph, schedule)
        source.names["entry"] = entry
        entry.replay, entry.text = source.function(trace.name), source.text
        if not launch:
            self.undo()
            return Recorded(None, entry, set())
        for stream, total in trace.draws:
            stream.advance(total)
        eager.run(graph, trace.bound, outputs, schedule)
        ran = time.perf_counter()
        entry.timing = Timing(recorded - self.started, compiled - recorded, ran - compiled)
        done = Results(self.arguments)
        done.settle_containers()
        self._settle_objects()
        trace.reset()
        return Recorded(done.settle(result), entry, set())

    def _guard_numbers(self) -> None:
        for expression, value in self.trace.guards.items():
            self.source.same(expression, value)
            self.arguments.facts[expression] = repr(value)

    def _guard_surroundings(self) -> None:
        """Checks that the plain values, functions and containers the body can reach are what they were."""
        for place in self.surroundings.places.values():
            value = place.value
            if isinstance(value, NDArray):
                continue
            if isinstance(value, np.ndarray):
                self._guard_numpy(place)
            elif isinstance(value, (dict, list, tuple)) and not isinstance(value, PLAIN):
                kind = self.source.constant(type(value))
                keys = (
                    f"tuple({place.expression}) == {self.source.constant(tuple(value))}"
                    if isinstance(value, dict)
                    else f"len({place.expression}) == {len(value)}"
                )
                self.source.require(f"type({place.expression}) is {kind} and {keys}")
                self.arguments.facts[place.path] = f"{type(value).__name__} of {len(value)}"
            elif isinstance(value, (*PLAIN, *BY_IDENTITY)):
                self.source.same(place.expression, value)
                self.arguments.facts[place.path] = getattr(value, "__name__", None) or repr(value)
            else:
                self.source.require(f"type({place.expression}) is {self.source.constant(type(value))}")
                self.arguments.facts[place.path] = type(value).__name__

    def _guard_numpy(self, place: Any) -> None:
        array = place.value
        held = self.source.bind(place.expression)
        copy = self.source.constant(array.copy())
        self.source.names["array_equal"] = _same_content
        self.source.require(f"array_equal({held}, {copy})")
        self.arguments.facts[place.path] = f"numpy {array.dtype}{list(array.shape)} with this content"

    def _bring_captured(self) -> None:
        """Arrays the body used that are no arguments: the replay reads their places again."""
        imported = {s for s, _array in self.trace.imports}
        for storage in [s for s in self.trace.windows if s not in self.arguments.arrays]:
            if storage in imported:
                name = self.source.constant(storage)
                self.arguments.arrays[storage] = (name, "0")
                continue
            place = self.surroundings.array_at(storage)
            if place is None:
                made = f"{storage.type} made at {storage.made_at}" if storage.made_at else str(storage.type)
                raise Unreplayable(
                    f"the body uses an array ({made}) that is no argument and was not found by "
                    "following names"
                )
            array = place.value
            variable = self.source.bind(place.expression)
            name = self.source.array(variable, storage.type, array._view, window=False)
            self.arguments.arrays[storage] = (name, "0")
            self.arguments.storages.append((storage, name))
            self.arguments.handles.setdefault(id(array), (array, variable))
            self.arguments.callers.setdefault(id(array), array)
            self.arguments.facts[place.path] = str(storage.type)

    def _rebinding(self, results: Results) -> list[str]:
        """Statements that repeat what the body rebound in its surroundings."""
        lines: list[str] = []
        proxied = {expression for _v, _n, _p, expression in self.proxied}
        for expression, place in self.surroundings.again().places.items():
            before = self.surroundings.places.get(expression)
            if expression in proxied:
                if type(place.value) is NumberProxy and place.value._source != self._local(expression):
                    lines.append(f"{expression} = {place.value._source}")
                elif type(place.value) is not NumberProxy:
                    lines.append(f"{expression} = {results.give(place.value, place.path)}")
                continue
            if before is None:
                if isinstance(place.value, NDArray) or type(place.value) is NumberProxy:
                    raise Unreplayable(
                        f"{place.path} did not exist before the call and holds what the body made"
                    )
                continue
            if before.value is place.value:
                if isinstance(place.value, (dict, list)):
                    continue
            elif isinstance(place.value, NDArray) and isinstance(before.value, NDArray):
                lines.append(f"{expression} = {results.give(place.value, place.path)}")
            elif not (isinstance(place.value, PLAIN) and _same_plain(before.value, place.value)):
                raise Unreplayable(f"the body changed {place.path} from {before.value!r} to another value")
        return lines

    def _local(self, expression: str) -> str:
        return next(
            line.partition(" = ")[0] for line in self.source.lines if line.endswith(f" = {expression}")
        )

    def _check_escapes(self, results: Results) -> None:
        """Arrays that the body made and that are still alive must be among the results."""
        expected = set(results.outputs)
        if all(s in expected for s in self.trace.live()):
            return
        gc.collect()  # what only a cycle keeps alive has not escaped
        for storage in self.trace.live():
            if storage not in expected:
                raise Unreplayable(
                    f"an array made at {storage.made_at} outlives the call without being returned"
                )

    def _emit_launch(self, graph: Graph, schedule: Any, results: Results) -> None:
        source, trace = self.source, self.trace
        for _storage, name in self.arguments.storages:
            source.line(f"if {name}.recording is not None: release({name})")
        distinct = [name for _storage, name in self.arguments.storages]
        if len(distinct) > 1:
            source.require(f"len({{{', '.join(distinct)}}}) == {len(distinct)}")
        source.names.update(
            allocate=engine.pool.allocate, Variable=engine.Variable, wait=engine.wait, release=release
        )
        for index, (stream, total) in enumerate(trace.draws):
            held = source.constant(stream)
            source.line(f"key{index} = {held}.key; counter{index} = {held}.advance({total})")
        for storage, name in results.names.items():
            kind = source.constant(storage.type)
            source.line(f"{name} = Storage({kind}, allocate({storage.type.nbytes}), Variable())")
        values, variables, keep = self._bindings(graph, results)
        source.names.update(launch=schedule.launch, pack=schedule.pack.pack)
        held = "".join(f"{k}, " for k in keep)
        source.line(f"launch(pack({', '.join(values + variables)}), ({held}))")
        if distinct:
            shared = " or ".join(f"{n}.shared" for n in distinct)
            waits = "; ".join(f"wait({n}.variable)" for n in distinct)
            source.line(f"if {shared}: {waits}")
        for line in results.lines:
            source.line(line)

    def _bindings(self, graph: Graph, results: Results) -> tuple[list[str], list[str], list[str]]:
        values: list[str] = []
        variables: list[str] = []
        keep: list[str] = []
        for bound in self.trace.bound:
            if isinstance(bound, Window):
                name, offset = self.arguments.arrays[bound.storage]
                item = bound.storage.type.dtype.itemsize
                values.append(f"{name}.address" if offset == "0" else f"{name}.address + {offset} * {item}")
                variables.append(f"{name}.variable.address")
                keep.append(name)
            else:
                assert isinstance(bound, Number)
                values.append(str(bound.source))
                variables.append("0")
        for storage in results.outputs:
            name = results.names[storage]
            values.append(f"{name}.address")
            variables.append(f"{name}.variable.address")
            keep.append(name)
        return values, variables, list(dict.fromkeys(keep))


def _parameter_names(function: Any, count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return names + [f"{rest}[{i}]" for i in range(count - len(names))]


def _same_content(held: Any, copy: np.ndarray) -> bool:
    return (
        type(held) is np.ndarray
        and held.dtype == copy.dtype
        and held.shape == copy.shape
        and held.tobytes() == copy.tobytes()
    )


def _same_plain(before: Any, after: Any) -> bool:
    return type(before) is type(after) and (before == after or (before != before and after != after))
