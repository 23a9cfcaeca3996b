"""Replay functions: the Python that a repeated call runs instead of the body, written from a `ReplayProgram`.

Each recorded signature, and each of its paths, has a generated function. It unpacks the arguments, checks
them (and returns `MISS` if they are not of this signature), computes numbers, binds addresses, launches,
writes back the values that the body rebound, and returns. It is straight-line Python, which keeps a replay
at a few microseconds, with two exceptions: a loop over looks (`StateLoop`) is a ``while`` statement, and
`MANY` or more arrays are processed by loops (see `many`). `runtime` has the functions that it calls:

    def replay(args, kwargs):
        try:
            if not (len(args) == 2): return MISS
            v0 = args[0]
            if not (type(v0) is NDArray): return MISS
            s1 = v0._storage
            if s1.type is not K2 and not adopt_type(s1, K2): return MISS
            m4 = (n3 * (2))
            ...
        except MISFITS: return MISS
        t5 = Storage(K6, K7.take())
        launch(pack(s1.address, m4, t5.address, s1.variable.address, 0, t5.variable.address), (s1, t5, ))
        entry.replays += 1; entry.used = next(CLOCK); return NDArray(t5, K8)

An error in a check (a missing attribute, a division by zero) is a miss as well: the body runs, and raises
where it does. Nothing after the checks can fail because of the arguments, so a replay that raises has changed
nothing. The launch is one call into native code, so after an interrupt (Ctrl-C) arrays are written completely
or not at all; rebindings are as atomic as Python's own statements. Values to be written back are computed
before the launch. A replay waits for a launch that may fail before it writes anything back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tracejit import engine
from tracejit.frontend.arrays import trees
from tracejit.frontend.python.content import GONE
from tracejit.frontend.recording.draws import WORD
from tracejit.frontend.recording.sources import source_of
from tracejit.frontend.recording.storage import Storage, interned
from tracejit.frontend.signature import many
from tracejit.frontend.signature.conditions import CONDITIONS
from tracejit.frontend.signature.expressions import (
    Compute,
    Const,
    Derived,
    Expr,
    GetAttribute,
    GetItem,
    Literal,
    Result,
    Var,
    Word,
)
from tracejit.frontend.signature.program import (
    ArrayCheck,
    ArrayOn,
    Bind,
    Check,
    CopyOf,
    Distinct,
    Drawn,
    Known,
    Launch,
    Make,
    ManyArrays,
    ProgramStep,
    Rebind,
    Refill,
    ReplayProgram,
    RunSegment,
    Separate,
    StateLoop,
    StorageAddress,
    Transition,
)
from tracejit.frontend.signature.runtime import CLOCK, HELPERS, PIECEWISE, element_of
from tracejit.frontend.signature.source import function_of


class Writer:
    """A replay function under construction: its lines, and the objects that its names refer to."""

    def __init__(self) -> None:
        self.checks: list[str] = []
        self.actions: list[str] = []
        self.names: dict[str, Any] = dict(HELPERS)
        self._constants: dict[int, str] = {}
        self._variables: dict[Var, str] = {}
        self._tuples: dict[tuple[str, ...], str] = {}
        self._lists = many.Lists()
        self._serial = 0
        self._states: list[Sequence[Var]] = []  # variables of the states of a loop

    def _name(self, prefix: str) -> str:
        self._serial += 1
        return f"{prefix}{self._serial - 1}"

    def constant(self, value: Any) -> str:
        """Return a name for an object."""
        name = self._constants.get(id(value))
        if name is None:
            name = self._constants[id(value)] = self._name("K")
            self.names[name] = value
        return name

    def write(self, operand: Expr) -> str:
        """Return an operand as Python."""
        if isinstance(operand, Var):
            name = self._variables.get(operand)
            if name is None:
                name = self._variables[operand] = self._name(operand.prefix)
            return name
        if isinstance(operand, Const):
            return self.constant(operand.value)
        if isinstance(operand, Literal):
            value = operand.value
            return source_of(value) if type(value) is float else repr(value)
        if isinstance(operand, Word):
            return operand.name
        assert isinstance(operand, Derived)
        return self._derived(operand)

    def _derived(self, value: Derived) -> str:
        if isinstance(value, Compute):
            return value.operation.written(*map(self._number, value.operands))
        operands = list(map(self.write, value.operands))
        if isinstance(value, GetAttribute):
            return f"{operands[0]}.{value.name}"
        if isinstance(value, GetItem):
            return f"{operands[0]}[{operands[1]}]"
        assert isinstance(value, Result)
        return f"{self.write(value.function)}({', '.join(operands)})"

    def _number(self, operand: Expr) -> str:
        """Return an operand of an operation; a negative literal is in parentheses, as in ``(-1) ** x``."""
        return source_of(operand.value) if isinstance(operand, Literal) else self.write(operand)

    def let(self, var: Var, value: Any) -> None:
        """Let a variable be the same object in all replays."""
        self.names[self.write(var)] = value

    # -- checks ----------------------------------------------------------------------------------------------

    def steps(self, steps: Sequence[ProgramStep]) -> None:
        """Write steps; the checks of many consecutive arrays become one."""
        position = 0
        while position < len(steps):
            arrays = many.arrays_from(steps, position)
            following = steps[position : position + max(1, 2 * len(arrays))]
            if len(arrays) >= many.MANY:
                for bind in following[::2]:
                    self.step(bind)
                self._arrays(arrays)
            else:
                for step in following:
                    self.step(step)
            position += len(following)

    def _arrays(self, arrays: Sequence[ArrayCheck]) -> None:
        kind, view = self.constant(interned(arrays[0].type)), self.constant(arrays[0].view)
        names = ", ".join([self.write(check.array) for check in arrays])
        storages = ", ".join([self.write(check.storage) for check in arrays])
        self.checks.append(f"{storages} = storages({kind}, {view}, {names})")

    def _many(self, step: ManyArrays) -> None:
        """Bind the arrays of a container and their storages, as two lists."""
        items, arrays, storages = self.write(step.container), self._name("a"), self._name("a")
        kind, view = self.constant(interned(step.type)), self.constant(step.view)
        items += ".values()" * isinstance(step.container.value, dict)
        self.checks += [f"{arrays} = [*{items}]", f"{storages} = storages({kind}, {view}, *{arrays})"]
        self._variables.update(
            zip(step.arrays, [f"{arrays}[{i}]" for i in range(len(step.arrays))], strict=True)
        )
        self._variables.update(zip(step.storages, self._lists.add(storages, len(step.storages)), strict=True))

    def _tuple(self, names: Sequence[str], lines: list[str]) -> str:
        """Return the name of a tuple of many variables, which is added to `lines` when it is first needed."""
        key = tuple(names)
        name = self._tuples.get(key)
        if name is None:
            name = self._tuples[key] = self._name("a")
            lines.append(f"{name} = {self._display(names)}")
        return name

    def _display(self, names: Sequence[str]) -> str:
        """Return a tuple of many variables as Python."""
        items, getter = self._lists.display(names)
        return items if getter is None else f"{self.constant(getter)}({items})"

    def step(self, step: ProgramStep) -> None:
        """Write a step."""
        if isinstance(step, Bind):
            name = self.write(step.var)
            self.checks.append(f"{name} = {self.write(step.value)}")
        elif isinstance(step, Check):
            self._require(self._condition(step))
        elif isinstance(step, Distinct):
            every = [f"id({self.write(var)})" for var in step.vars]
            self._require(f"len({{{', '.join(every)}}}) == {len(every)}")
        elif isinstance(step, RunSegment):
            self._run(step)
        elif isinstance(step, StateLoop):
            self._loop(step)
        elif isinstance(step, ManyArrays):
            self._many(step)
        elif isinstance(step, ArrayCheck):
            array = self.write(step.array)
            self._require(f"type({array}) is NDArray")
            storage = self.write(step.storage)
            kind, view = self.constant(interned(step.type)), self.constant(step.view)
            self.checks += [
                f"{storage} = {array}._storage",
                f"if {storage}.type is not {kind} and not adopt_type({storage}, {kind}): return MISS",
                f"if {array}._view is not {view}:",
                f"    if {array}._view != {view}: return MISS",
                f"    {array}._view = {view}",
            ]
        else:
            self._separate(step)

    def _condition(self, check: Check) -> str:
        return CONDITIONS[check.rule].format(*map(self.write, check.operands))

    def _require(self, condition: str) -> None:
        self.checks.append(f"if not ({condition}): return MISS")

    def _separate(self, step: Separate) -> None:
        names = [self.write(storage) for storage in step.storages]
        if len(names) >= many.MANY:
            every = self._tuple(names, self.checks)
            self.checks.append(f"shared = any_shared({every})")
            self._require(f"len({{*{every}}}) == {len(names)}")
            self.checks.append(f"if shared and not disjoint(*{every}): return MISS")
            return
        if names:
            self.checks.append(f"shared = {' or '.join(f'{n}.shared' for n in names)}")
        if len(names) > 1:
            self._require(f"len({{{', '.join(names)}}}) == {len(names)}")
            self.checks.append(f"if shared and not disjoint({', '.join(names)}): return MISS")

    def _run(self, run: RunSegment) -> None:
        """Launch a segment, unless a path that was tried before has done so in this call."""
        node = self.constant(run.node)
        lines = self._segment(run)
        draws = [f"key{index}, counter{index}" for index, _stream, _total in run.launch.draws]
        results = ", ".join([*map(self.write, run.results), self.write(run.number), *draws])
        lines.append(f"memo[{node}] = {results}")
        self.checks.append(f"if {node} in memo: {results} = memo[{node}]")
        self.checks.append("else:")
        self.checks += [f"    {line}" for line in lines]
        self.checks.append(f"memo.last = {node}")

    def _segment(self, run: RunSegment) -> list[str]:
        """Return the lines that launch a segment and read the number that is looked at."""
        launch, results = run.launch, [self.write(var) for var in run.results]
        lines = []
        for index, stream, total in launch.draws:
            name = self.constant(stream)
            lines.append(f"key{index} = {name}.key; counter{index} = memo.draw({name}, {self.write(total)})")
        lines += [self._new(var.value, var) for var in run.results]
        lines.append(self._call(launch, results, self.constant(launch.call), self.constant(launch.pack)))
        lines.append(f"wait({self._variables_of(results if launch.is_awaited else results[:1])})")
        element = self.constant(element_of(run.results[0].value.type.dtype))
        return [*lines, f"{self.write(run.number)} = {element}({results[0]})"]

    def _loop(self, loop: StateLoop) -> None:
        """Run a loop over looks, unless a path that was tried before has done so in this call."""
        node = self.constant(loop.node)
        many = len(loop.states) > 1
        self._states = [state.vars for state in loop.states]
        lines = ["at = 0"] * many
        lines += [f"{self._state(loop.states[0].vars)} = {self._state(loop.before)}"] * bool(loop.before)
        lines.append("while True:")
        for number, state in enumerate(loop.states):
            if state.iterations is not None:
                indent = 2 if many else 1
                lines += [f"    if at == {number}:"] * many
                lines += ["    " * indent + line for line in self._transition(state.iterations, many, "")]
        for number, state in enumerate(loop.states):
            indent = 2 if many else 1
            if many:
                lines.append(f"    {'el' * (number > 0)}if at == {number}:")
            body = [line for each in state.transitions for line in self._transition(each, many, "continue")]
            body.append(f"held = {self._state(state.vars)}; break")
            lines += ["    " * indent + line for line in body]
        lines.append(f"memo[{node}] = {'at' if many else 0}, held")
        self.checks.append(f"if {node} not in memo:")
        self.checks += [f"    {line}" for line in lines]
        self.checks.append(f"at, held = memo[{node}]; memo.last = {node}")
        if many:
            self._require(f"at == {loop.ends}")
        if loop.states[loop.ends].vars:
            self.checks.append(f"{self._state(loop.states[loop.ends].vars)} = held")

    def _state(self, vars: Sequence[Var]) -> str:
        """The variables of a state as a tuple."""
        return f"({''.join(f'{self.write(var)}, ' for var in vars)})"

    def _transition(self, transition: Transition, many: bool, then: str) -> list[str]:
        """Return the lines of a transition, with a last statement `then`. If its checks fail, the lines have
        no effect.
        """
        lines, indent = [], 0
        for step in transition.steps:
            if isinstance(step, Check):
                lines.append("    " * indent + f"if {self._condition(step)}:")
                indent += 1
                continue
            if isinstance(step, Bind):
                statements = [f"{self.write(step.var)} = {self.write(step.value)}"]
            else:
                assert isinstance(step, RunSegment)
                statements = self._segment(step)
            lines += ["    " * indent + line for line in statements]
        ends = transition.ends if isinstance(transition.ends, int) else self.write(transition.ends)
        end = "; ".join(filter(None, [f"at = {ends}" if many else "", then]))
        vars = [var for number in transition.after for var in self._states[number]]
        after = [var for values in transition.after.values() for var in values]
        if after:
            end = "; ".join(filter(None, [f"{self._state(vars)} = {self._state(after)}", end]))
        return [*lines, "    " * indent + end]

    # -- actions ---------------------------------------------------------------------------------------------

    def make(self, make: Make) -> str:
        """Return the expression that creates a value of the result."""
        if isinstance(make, Known):
            return self.write(make.operand)
        if isinstance(make, ArrayOn):
            storage, view = self.write(make.storage), make.view
            if make.offset is None:
                return f"NDArray({storage}, {self.constant(view)})"
            start = f"{self.write(make.offset)} + {view.offset}"
            shape, strides = self.constant(view.shape), self.constant(view.strides)
            return f"NDArray({storage}, View({start}, {shape}, {strides}, {view.writable}))"
        if isinstance(make, CopyOf):
            return f"{self.constant(make.array)}.copy('K')"
        parts = [self.make(part) for part in make.parts]
        if make.kind is tuple:
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if make.kind is list:
            return f"[{', '.join(parts)}]"
        if make.kind is dict:
            pairs = [f"{self.constant(k)}: {part}" for k, part in zip(make.keys, parts, strict=True)]
            return "{" + ", ".join(pairs) + "}"
        factory = "None" if make.factory is None else self.make(make.factory)
        kind, keys = self.constant(make.kind), self.constant(make.keys)
        return f"{self.constant(trees.build)}({kind}, {keys}, [{', '.join(parts)}], {factory})"

    def effect(self, effect: Rebind | Refill) -> str:
        """Return the statement that performs an effect."""
        if isinstance(effect, Refill):
            container, value = self.write(effect.container), self.make(effect.value)
            is_dict = isinstance(effect.container.value, dict)
            return f"fill({container}, {value})" if is_dict else f"{container}[:] = {value}"
        place = self.write(effect.slot.place)
        return f"del {place}" if effect.value is GONE else f"{place} = {self.make(effect.value)}"

    def _new(self, storage: Storage, var: Var) -> str:
        """Return the statement that allocates a storage of the same type."""
        kind = self.constant(interned(storage.type))
        shelf = self.constant(engine.pool_of(storage.type.device.number).shelf(storage.type.nbytes))
        return f"{self.write(var)} = Storage({kind}, {shelf}.take())"

    def prepare(self, launch: Launch, program: ReplayProgram, lines: list[str]) -> None:
        """Write what precedes the first launch: pending eager operations and copies of NumPy arrays."""
        storages = [self.write(var) for var in launch.storages]
        if len(storages) >= many.MANY:
            lines.append(f"release_all({self._tuple(storages, lines)})")
        else:
            lines += [f"if {name}.recording is not None: release({name})" for name in storages]
        lines += [f"{self.write(var)} = {self.write(array)}" for var, array in program.copies]

    def launch(self, launch: Launch, program: ReplayProgram) -> None:
        """Write the call into native code, with allocations before it and waits around it."""
        actions = self.actions
        self.names.update(launch=launch.call, pack=launch.pack)
        storages = [self.write(var) for var in launch.storages]
        actions += [self._new(storage, var) for storage, var in program.outputs.items()]
        for var, value in program.values:
            expression = self.make(value)
            actions.append(f"{self.write(var)} = {expression}")
        written = sorted({self.write(var) for var in launch.written}) if launch.is_awaited else []
        if written:
            actions.append(
                f"wait_uncommitted({self._variables_of(written)})"
            )  # older failures are not this call's
        for index, stream, total in launch.draws:
            name = self.constant(stream)
            actions.append(f"key{index} = {name}.key; counter{index} = {name}.advance({self.write(total)})")
        outputs = [self.write(var) for var in program.outputs.values()]
        actions.append(self._call(launch, outputs, "launch", "pack", actions))
        if written:
            actions.append(f"mark_committed({self._variables_of(written)})")
        actions += [self.effect(effect) for effect in program.effects]
        if storages:
            actions.append(f"if shared: wait({self._variables_of(storages)}, exclusive=True)")

    def _variables_of(self, names: Sequence[str]) -> str:
        """Return the engine variables of storages."""
        if len(names) >= many.MANY:
            return f"*variables({self._display(names)})"
        return ", ".join(f"{name}.variable" for name in names)

    def _call(
        self, launch: Launch, outputs: list[str], call: str, pack: str, lines: list[str] | None = None
    ) -> str:
        """Return the `call` with the block that `pack` builds from addresses and numbers, followed by the
        engine's variables.

        lines: statements that always run before it, to which names of tuples may be added.
        """
        values: list[str] = []
        variables: list[str] = []
        keep: list[str] = []

        def add(names: Sequence[str]) -> None:
            """Pass the addresses of storages."""
            if len(names) >= many.MANY:
                every = self._display(names) if lines is None else self._tuple(names, lines)
                values.append(f"*addresses({every})")
                variables.append(f"*variable_addresses({every})")
                keep.append(f"*{every}")
            else:
                values.extend([f"{name}.address" for name in names])
                variables.extend([f"{name}.variable.address" for name in names])
                keep.extend(names)

        for is_start, words in itertools.groupby(launch.words, _is_start):
            if is_start:
                add([self.write(word.storage) for word in words if isinstance(word, StorageAddress)])
                continue
            for word in words:
                if isinstance(word, StorageAddress):
                    name, item = self.write(word.storage), word.storage.value.type.dtype.itemsize
                    assert word.offset is not None
                    values.append(f"{name}.address + {self.write(word.offset)} * {item}")
                    variables.append(f"{name}.variable.address")
                    keep.append(name)
                else:
                    values.append(self._drawn(word) if isinstance(word, Drawn) else self.write(word))
                    variables.append("0")
        add(outputs)
        kept = "".join(f"{name}, " for name in dict.fromkeys(keep))
        return f"{call}({pack}({', '.join(values + variables)}), ({kept}))"

    def _drawn(self, word: Drawn) -> str:
        """Return a word of a random stream as Python."""
        if word.drawn is None:
            return f"key{word.stream}"
        return f"((counter{word.stream} + {self.write(word.drawn)}) & {WORD - 1})"


def _is_start(word: StorageAddress | Drawn | Expr) -> bool:
    """Whether a word of a launch is the start address of a storage."""
    return isinstance(word, StorageAddress) and word.offset is None


def replay_of(program: ReplayProgram, name: str, entry: Any) -> tuple[Callable[..., Any], str]:
    """Return the replay function of a program and its source. It counts its calls in `entry`."""
    assert program.launch is not None
    assert program.result is not None
    writer = Writer()
    for var, storage in program.constants.items():
        writer.let(var, storage)
    first = next((i for i, step in enumerate(program.steps) if isinstance(step, RunSegment)), None)
    writer.steps(program.steps[:first])
    writer.prepare(program.launch, program, writer.actions if first is None else writer.checks)
    if first is not None:
        writer.steps(program.steps[first:])
    writer.launch(program.launch, program)
    result = writer.make(program.result)
    writer.actions.append(f"entry.replays += 1; entry.used = next(CLOCK); return {result}")
    writer.names.update(entry=entry, CLOCK=CLOCK)
    parameters = "args, kwargs" if first is None else "args, kwargs, memo"
    return function_of(writer.checks, writer.actions, writer.names, name, parameters)


def recogniser_of(program: ReplayProgram, name: str, entry: Any) -> tuple[Callable[[Any, Any], Any], str]:
    """Return a function that returns `PIECEWISE` for the calls of a program, and its source."""
    writer = Writer()
    writer.steps(program.steps)
    writer.actions.append("entry.used = next(CLOCK); return PIECEWISE")
    replay, text = function_of(writer.checks, writer.actions, writer.names, name)
    writer.names.update(entry=entry, CLOCK=CLOCK, PIECEWISE=PIECEWISE)
    return replay, text
