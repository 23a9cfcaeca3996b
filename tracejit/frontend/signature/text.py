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
from tracejit.frontend.python.content import GONE
from tracejit.frontend.recording.draws import WORD
from tracejit.frontend.recording.storage import Storage, interned
from tracejit.frontend.signature.expression_text import ExpressionWriter
from tracejit.frontend.signature.expressions import ARGS, KWARGS, Expr, Var
from tracejit.frontend.signature.many import MANY, arrays_from
from tracejit.frontend.signature.program import (
    ArrayCheck,
    Bind,
    Check,
    Distinct,
    Drawn,
    Launch,
    LoopState,
    LoopTransition,
    ManyArrays,
    NumberBlock,
    ProgramStep,
    Rebind,
    Refill,
    ReplayProgram,
    RunLoop,
    RunSegment,
    Separate,
    StateLoop,
    StorageAddress,
)
from tracejit.frontend.signature.runtime import CLOCK, PIECEWISE, element_of, numbers_of
from tracejit.frontend.signature.source import function_of

# Variables of replay functions that stand for no `Var`. The names of others end in a number.

MEMO = "memo"
"""The results of the call's segments (see `runtime.Memo`): a parameter of the function of a path with looks.
"""

SHARED = "shared"
"""Whether Python can see the memory of any of the caller's storages. `Separate` assigns it, unless there are
no storages; the wait after the last launch depends on it.
"""

STATE = "at"
"""The position of the state that a `StateLoop` is in. Transitions assign it; the lines after the loop compare
it.
"""

HELD = "held"
"""The key and the values of the state in which a `StateLoop` ended, with which another path may go on."""

PASSED = "passed"
"""Whether a transition has passed all checks so far. Assigned and read within a transition of many checks."""

MAX_NESTED = 40
"""The largest number of checks of a transition that are nested in each other."""


def _stream(index: int) -> tuple[str, str]:
    """Return the variables of the random stream at a position in the call: its key, and its counter before
    the launch. The lines before a launch assign them, and its `Drawn` words use them.
    """
    return f"key{index}", f"counter{index}"


class Writer(ExpressionWriter):
    """A replay function under construction: its lines, and the objects that its names refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.checks: list[str] = []
        self.actions: list[str] = []
        self._tuples: dict[tuple[Var, ...], str] = {}

    # -- checks ----------------------------------------------------------------------------------------------

    def steps(self, steps: Sequence[ProgramStep]) -> None:
        """Write steps; the checks of many consecutive arrays become one."""
        position = 0
        while position < len(steps):
            arrays = arrays_from(steps, position)
            following = steps[position : position + max(1, 2 * len(arrays))]
            if len(arrays) >= MANY:
                for bind in following[::2]:
                    self.step(bind)
                self._arrays(arrays)
            else:
                for step in following:
                    self.step(step)
            position += len(following)

    def _arrays(self, arrays: Sequence[ArrayCheck]) -> None:
        """Check many consecutive arrays by one call."""
        kind, view = self.constant(interned(arrays[0].type)), self.constant(arrays[0].view)
        names = ", ".join([self.write(check.array) for check in arrays])
        storages = ", ".join([self.write(check.storage) for check in arrays])
        self.checks.append(f"{storages} = storages({kind}, {view}, {names})")

    def _many(self, step: ManyArrays) -> None:
        """Check the arrays of a container by one call, and bind them and their storages, as two lists."""
        children, arrays, storages = self.write(step.container), self.new_name("a"), self.new_name("a")
        kind, view = self.constant(interned(step.type)), self.constant(step.view)
        children += ".values()" * isinstance(step.container.value, dict)
        self.checks += [f"{arrays} = [*{children}]", f"{storages} = storages({kind}, {view}, *{arrays})"]
        self.let_items(arrays, step.arrays)
        self.let_items(storages, step.storages)

    def _tuple(self, vars: Sequence[Var], lines: list[str]) -> str:
        """Return the name of a tuple of many variables, which is added to `lines` when it is first needed."""
        key = tuple(vars)
        name = self._tuples.get(key)
        if name is None:
            name = self._tuples[key] = self.new_name("a")
            lines.append(f"{name} = {self.display(vars)}")
        return name

    def step(self, step: ProgramStep) -> None:
        """Write a step."""
        if isinstance(step, Bind):
            name = self.write(step.var)
            self.checks.append(f"{name} = {self.write(step.value)}")
        elif isinstance(step, Check):
            self._require(self.condition(step))
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
            assert isinstance(step, Separate)
            self._separate(step)

    def _require(self, condition: str) -> None:
        self.checks.append(f"if not ({condition}): return MISS")

    def _separate(self, step: Separate) -> None:
        names = [self.write(storage) for storage in step.storages]
        every, are_shared = ", ".join(names), " or ".join(f"{name}.shared" for name in names)
        if len(names) >= MANY:
            name = self._tuple(step.storages, self.checks)
            every, are_shared = f"*{name}", f"any_shared({name})"
        if names:
            self.checks.append(f"{SHARED} = {are_shared}")
        if len(names) > 1:
            self._require(f"len({{{every}}}) == {len(names)}")
            self.checks.append(f"if {SHARED} and not disjoint({every}): return MISS")

    def _run(self, run: RunSegment) -> None:
        """Launch a segment, unless a path that was tried before has done so in this call."""
        node = self.constant(run.node)
        lines = self._segment(run)
        drawn = [name for index, _, _ in run.launch.draws for name in _stream(index)]
        results = ", ".join([*map(self.write, run.results), self.write(run.number), *drawn])
        lines.append(f"{MEMO}[{node}] = {results}")
        self.checks.append(f"if {node} in {MEMO}: {results} = {MEMO}[{node}]")
        self.checks.append("else:")
        self.checks += [f"    {line}" for line in lines]
        self.checks.append(f"{MEMO}.last = {node}")

    def _segment(self, run: RunSegment) -> list[str]:
        """Return the lines that launch a segment and read the number that is looked at."""
        launch, results = run.launch, run.results
        names = [self.write(var) for var in results]
        lines = self._draws(launch)
        lines += [self._new(var.value, var) for var in results]
        call = self._call(launch, results, self.constant(launch.call), self.constant(launch.pack))
        awaited = self._variables_of(results if launch.is_awaited else results[:1])
        lines.append(f"if not {call}: wait({awaited})")
        element = self.constant(element_of(results[0].value.type.dtype))
        return [*lines, f"{self.write(run.number)} = {element}({names[0]})"]

    def _iterations(self, run: RunLoop) -> list[str]:
        """Return the lines that launch a native loop and read the numbers among its results."""
        launch, blocks = run.launch, run.blocks
        storages = [*(block.storage for block in blocks), *run.arrays]
        lines = self._draws(launch)
        lines += [self._new(var.value, var) for var in storages]
        call, pack = self.constant(launch.call), self.constant(launch.pack)
        call = self._call(launch, run.arrays, call, pack, blocks=blocks)
        lines.append(f"if not {call}: wait({self._variables_of(storages)})")
        for block in blocks:
            numbers = "".join(f"{self.write(number)}, " for number in block.numbers)
            read = self.constant(numbers_of(block.dtypes))
            lines.append(f"{numbers}= {read}({self.write(block.storage)})")
        for (index, stream, _), counter in zip(launch.draws, run.counters, strict=True):
            name, (_, start) = self.constant(stream), _stream(index)
            lines.append(f"{MEMO}.end_draw({name}, {start}, {self.write(counter)})")
        return lines

    def _draws(self, launch: Launch) -> list[str]:
        """Return the lines that advance the random streams of a launch before the last one."""
        lines = []
        for index, stream, total in launch.draws:
            name, (key, counter) = self.constant(stream), _stream(index)
            lines.append(f"{key} = {name}.key; {counter} = {MEMO}.draw({name}, {self.write(total)})")
        return lines

    def _loop(self, loop: StateLoop) -> None:
        """Run a loop over looks, or go on with it if a path that was tried before has run it in this call."""
        node, states = self.constant(loop.node), loop.states
        checks, has_several = self.checks, len(states) > 1
        checks += [f"{STATE} = None", f"if {node} in {MEMO}:"]
        checks += [f"    {line}" for line in self._resumed(loop, node)]
        checks += [f"if {STATE} is None:", f"    {STATE} = 0"]
        checks += [f"    {self._state(states[0].vars)} = {self._state(loop.before)}"] * bool(loop.before)
        checks.append("while True:")
        indent = "    " * (2 if has_several else 1)
        for number, state in enumerate(states):
            if state.iterations is not None:
                checks += [f"    if {STATE} == {number}:"] * has_several
                checks += [indent + line for line in self._transition(state.iterations, states)]
        for number, state in enumerate(states):
            if has_several:
                checks.append(f"    {'el' * (number > 0)}if {STATE} == {number}:")
            body = [line for each in state.transitions for line in self._transition(each, states, "continue")]
            body.append(f"{HELD} = {self.constant(state.key)}, {self._state(state.values)}; break")
            checks += [indent + line for line in body]
        checks.append(f"{MEMO}[{node}] = {HELD}; {MEMO}.last = {node}")
        if has_several:
            self._require(f"{STATE} == {loop.ends}")

    def _resumed(self, loop: StateLoop, node: str) -> list[str]:
        """Return the lines that continue a loop where another path left it, if this path knows that state."""
        states = loop.states
        position = self.constant({state.key: number for number, state in enumerate(states)})
        lines = [f"{STATE} = {position}.get({MEMO}[{node}][0])"]
        for number, state in enumerate(states):
            fixed = {k: var for k, var in enumerate(state.values) if var not in state.vars}
            if fixed:
                known = f"{{{', '.join(f'{k}: {self.write(var)}' for k, var in fixed.items())}}}"
                lines.append(
                    f"if {STATE} == {number} and not has_values({MEMO}[{node}][1], {known}): {STATE} = None"
                )
        unknown = f"{MEMO}.drop({node})" if loop.repeats else f"{MEMO}.last = {node}; return MISS"
        lines += [f"if {STATE} is None: {unknown}", f"else: {HELD} = {MEMO}.resume({node})"]
        for number, state in enumerate(states):
            items = [f"{HELD}[{state.values.index(var)}]" for var in state.vars]
            if items:
                lines.append(f"if {STATE} == {number}: {self._state(state.vars)} = ({', '.join(items)},)")
        return lines

    def _state(self, vars: Sequence[Var]) -> str:
        """The variables of a state as a tuple."""
        return f"({''.join(f'{self.write(var)}, ' for var in vars)})"

    def _transition(self, transition: LoopTransition, states: Sequence[LoopState], *then: str) -> list[str]:
        """Return the lines of a transition of a loop, and last the statements `then`. If its checks fail, the
        lines have no effect.

        Each check is an `if` in the one before. After `MAX_NESTED` of them, the nesting starts again, with
        whether all have passed in a variable: Python compiles 100 levels of indentation at most.
        """
        lines, indent, depth = list[str](), "", 0
        for step in transition.steps:
            if isinstance(step, Check):
                if depth == MAX_NESTED:
                    lines = [f"{PASSED} = False", *lines] if f"{PASSED} = False" not in lines[:1] else lines
                    lines += [f"{indent}{PASSED} = True", f"if {PASSED}:", f"    {PASSED} = False"]
                    indent, depth = "    ", 1
                lines.append(f"{indent}if {self.condition(step)}:")
                indent, depth = indent + "    ", depth + 1
                continue
            if isinstance(step, Bind):
                statements = [f"{self.write(step.var)} = {self.write(step.value)}"]
            elif isinstance(step, RunLoop):
                statements = self._iterations(step)
            else:
                assert isinstance(step, RunSegment)
                statements = self._segment(step)
            lines += [indent + line for line in statements]
        ends = transition.ends if isinstance(transition.ends, int) else self.write(transition.ends)
        vars = [var for number in transition.after for var in states[number].vars]
        after = [var for values in transition.after.values() for var in values]
        end = [f"{self._state(vars)} = {self._state(after)}"] * bool(after)
        end += [f"{STATE} = {ends}"] * (len(states) > 1)
        return [*lines, indent + "; ".join([*end, *then])]

    # -- actions ---------------------------------------------------------------------------------------------

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
        names = [self.write(var) for var in launch.storages]
        if len(names) >= MANY:
            lines.append(f"release_all({self._tuple(launch.storages, lines)})")
        else:
            lines += [f"if {name}.recording is not None: release({name})" for name in names]
        lines += [f"{self.write(var)} = {self.write(array)}" for var, array in program.copies]

    def launch(self, launch: Launch, program: ReplayProgram) -> None:
        """Write the call into native code, with allocations before it and waits around it."""
        actions = self.actions
        self.names.update(launch=launch.call, pack=launch.pack)
        actions += [self._new(storage, var) for storage, var in program.outputs.items()]
        for var, value in program.values:
            expression = self.make(value)
            actions.append(f"{self.write(var)} = {expression}")
        written = launch.written if launch.is_awaited else ()
        if written:  # older failures are not this call's
            actions.append(f"wait_uncommitted({self._variables_of(written)})")
        for index, stream, total in launch.draws:
            name, (key, counter) = self.constant(stream), _stream(index)
            actions.append(f"{key} = {name}.key; {counter} = {name}.advance({self.write(total)})")
        if not launch.is_empty:
            actions.append(self._call(launch, [*program.outputs.values()], "launch", "pack", actions))
        if written:
            actions.append(f"mark_committed({self._variables_of(written)})")
        actions += [self.effect(effect) for effect in program.effects]
        if launch.storages:
            actions.append(f"if {SHARED}: wait({self._variables_of(launch.storages)}, exclusive=True)")

    def _variables_of(self, storages: Sequence[Var]) -> str:
        """Return the engine variables of storages."""
        if len(storages) >= MANY:
            return f"*variables({self.display(storages)})"
        return ", ".join(f"{self.write(storage)}.variable" for storage in storages)

    def _call(
        self,
        launch: Launch,
        outputs: Sequence[Var],
        call: str,
        pack: str,
        lines: list[str] | None = None,
        blocks: Sequence[NumberBlock] = (),
    ) -> str:
        """Return the `call` with the block that `pack` builds from addresses and numbers, followed by the
        engine's variables.

        lines:  statements that always run before it, to which names of tuples may be added.
        blocks: outputs before `outputs`. The first number of a block orders accesses to all of them.
        """
        values: list[str] = []
        variables: list[str] = []
        keep: list[str] = []

        def add(storages: Sequence[Var]) -> None:
            """Pass the addresses of storages."""
            if len(storages) >= MANY:
                every = self.display(storages) if lines is None else self._tuple(storages, lines)
                values.append(f"*addresses({every})")
                variables.append(f"*variable_addresses({every})")
                keep.append(f"*{every}")
                return
            for name in map(self.write, storages):
                values.append(f"{name}.address")
                variables.append(f"{name}.variable.address")
                keep.append(name)

        for is_start, words in itertools.groupby(launch.words, _is_start):
            if is_start:
                add([word.storage for word in words if isinstance(word, StorageAddress)])
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
        for block in blocks:
            add([block.storage])
            name = self.write(block.storage)
            values += [f"{name}.address + {8 * k}" for k in range(1, len(block.numbers))]
            variables += ["0"] * (len(block.numbers) - 1)
        add(outputs)
        kept = "".join(f"{name}, " for name in dict.fromkeys(keep))
        return f"{call}({pack}({', '.join(values + variables)}), ({kept}))"

    def _drawn(self, word: Drawn) -> str:
        """Return a word of a random stream as Python."""
        key, counter = _stream(word.stream)
        return key if word.drawn is None else f"(({counter} + {self.write(word.drawn)}) & {WORD - 1})"


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
    parameters = [ARGS.name, KWARGS.name] + [MEMO] * (first is not None)
    return function_of(writer.checks, writer.actions, writer.names, name, parameters)


def recogniser_of(program: ReplayProgram, name: str, entry: Any) -> tuple[Callable[[Any, Any], Any], str]:
    """Return a function that returns `PIECEWISE` for the calls of a program, and its source."""
    writer = Writer()
    writer.steps(program.steps)
    writer.actions.append("entry.used = next(CLOCK); return PIECEWISE")
    writer.names.update(entry=entry, CLOCK=CLOCK, PIECEWISE=PIECEWISE)
    return function_of(writer.checks, writer.actions, writer.names, name, [ARGS.name, KWARGS.name])
