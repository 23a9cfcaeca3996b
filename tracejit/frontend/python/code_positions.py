"""The operation of a single instruction: a call or comparison and its operands, and the use of its result.

Operands are described by the expressions that load them, as far as these are variables, attributes of
variables, and constants. An instruction is identified by its offset in the code, such as a frame's `f_lasti`.

>>> from tracejit.frontend.python.stack import call_offsets
>>> def f(model, x): return model.layer.forward(x) * 2
>>> (offset,) = call_offsets(f.__code__)
>>> call_at(f.__code__, offset).callee
Loaded(variable='model', attributes=('layer', 'forward'), constant=None)
>>> use_of_result(f.__code__, offset).kind
'computation'
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import dis
import functools
import types
from collections.abc import Sequence
from typing import Any, NamedTuple

from tracejit.frontend.python.bytecode import CONSTANTS
from tracejit.frontend.python.stack import ATTRIBUTES, StackStep, depth_below_called, stack_steps, steps_to

_VARIABLES = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_GLOBAL"})
_TRUTHS = frozenset({"UNARY_NOT", "TO_BOOL"})

_COMPUTATIONS = ("BINARY_OP", "COMPARE_OP", "UNARY_NEGATIVE")
"""Instructions that compute a new object from their operands."""

_STORE, _CALL = "STORE_SUBSCR", "CALL"
_CALLS = frozenset({_CALL, "CALL_KW"})

_POPS = {"BINARY_OP": 2, "BINARY_SUBSCR": 2, "COMPARE_OP": 2, "UNARY_NEGATIVE": 1, _STORE: 3}
"""The number of operands that each instruction pops, for instructions that only compute or store."""

COMPUTATION, ITEM, CALL = "computation", "item", "call"
"""Kinds of uses: an operand of an operator or comparison, a value assigned to an item of a container, an
argument of a call.
"""


class Loaded(NamedTuple):
    """An expression that only loads: a variable and attributes of it, or (variable: None) a constant."""

    variable: str | None
    attributes: tuple[str, ...] = ()
    constant: Any = None


class CallSite(NamedTuple):
    """A call.

    callee:       how it is loaded; None if it is another expression.
    methods:      names of attributes of other expressions that are called, the callee's last.
    n_positional: number of arguments, if all are positional; else None.
    """

    callee: Loaded | None
    methods: tuple[str, ...]
    n_positional: int | None


class Use(NamedTuple):
    """The instruction that uses up a value.

    kind:      one of the above; None if the value may be kept.
    offset:    the instruction's offset.
    container: how the container is loaded to an item of which the value is assigned; None if it is another
               expression.
    """

    kind: str | None
    offset: int = 0
    container: Loaded | None = None


_TAKE_DTYPES = frozenset(
    {
        *("arange", "array", "asanyarray", "asarray", "ascontiguousarray", "astype", "cumprod", "cumsum"),
        *("dtype", "empty", "empty_like", "eye", "fromiter", "full", "full_like", "identity", "linspace"),
        *("mean", "ones", "ones_like", "prod", "sum", "tri", "view", "zeros", "zeros_like"),
    }
)
"""Functions and methods whose last argument may be a dtype."""

_BEFORE_CALL = frozenset({"KW_NAMES", "PRECALL", "LOAD_CONST", "NOP"})
"""Instructions between the last argument and a call."""


def dtype_uses(code: types.CodeType, name: str) -> int:
    """Return how often the value of a global is the last argument of a function of NumPy or a method that
    takes a dtype there.

    >>> def f(np, n, x): return np.zeros(n, dtype=int), x.astype(int), int(n), isinstance(n, int)
    >>> dtype_uses(f.__code__, "int")
    2
    """
    sequence, count = list(dis.get_instructions(code)), 0
    for index, load in enumerate(sequence):
        if load.opname != "LOAD_GLOBAL" or load.argval != name:
            continue
        after = (each for each in sequence[index + 1 :] if each.opname not in _BEFORE_CALL)
        call = next(after, None)
        if call is None or call.opname not in _CALLS:
            continue
        site = call_at(code, call.offset)
        if site is not None:
            loaded = site.callee.attributes if site.callee is not None else site.methods
            count += bool(loaded) and loaded[-1] in _TAKE_DTYPES
    return count


def tests_truth(code: types.CodeType, offset: int) -> bool:
    """Whether an instruction does nothing but ask for the truth of one value."""
    name = steps_to(code, offset)[-1].instruction.opname
    return name.startswith(("POP_JUMP", "JUMP_IF")) or name in _TRUTHS


def asks_once(code: types.CodeType, offset: int) -> bool:
    """Whether an instruction does nothing but compare two numbers, or ask for the truth of one."""
    return steps_to(code, offset)[-1].instruction.opname == "COMPARE_OP" or tests_truth(code, offset)


def continues_for(code: types.CodeType, offset: int) -> bool:
    """Whether an instruction is a ``for`` that asks its iterator for the next item."""
    return steps_to(code, offset)[-1].instruction.opname == "FOR_ITER"


@functools.lru_cache(maxsize=256)
def compared_at(code: types.CodeType, offset: int) -> tuple[Loaded | None, Loaded | None] | None:
    """Return the operands of a comparison that also asks for the truth of its result, as from Python 3.13 on;
    None for other instructions.
    """
    steps = steps_to(code, offset)
    instruction, depth, _after = steps[-1]
    if instruction.opname != "COMPARE_OP" or "bool" not in instruction.argrepr:
        return None
    if depth is None:
        return None, None
    return _loaded(steps[:-1], depth - 2, depth - 1), _loaded(steps[:-1], depth - 1, depth)


@functools.lru_cache(maxsize=256)
def call_at(code: types.CodeType, offset: int) -> CallSite | None:
    """Return the call at an instruction; None for other instructions."""
    steps = steps_to(code, offset)
    low = depth_below_called(steps)
    if low is None:
        return None
    methods = [i.argval for i, _before, after in steps if after == low + 2 and i.opname in ATTRIBUTES]
    call = steps[-1].instruction
    return CallSite(_loaded(steps, low, low + 2), tuple(methods), call.arg if call.opname == _CALL else None)


@functools.lru_cache(maxsize=256)
def use_of_result(code: types.CodeType, offset: int) -> Use:
    """Return the use of the result of the call at an offset.

    >>> from tracejit.frontend.python.stack import call_offsets
    >>> def f(x, y): return max(x, y)
    >>> use_of_result(f.__code__, *call_offsets(f.__code__)).kind is None
    True
    """
    depth = None
    for instruction, before, after in stack_steps(code):
        if instruction.offset <= offset:
            depth = after
            continue
        name = instruction.opname
        if depth is None or before is None or after is None or instruction.is_jump_target:
            break
        if name == "PRECALL":  # its pops are those of the call
            continue
        if name in _POPS or name == _CALL:
            lowest = after - 1 if name == _CALL else before - _POPS[name]
            if lowest < depth:  # the value is among the operands
                return _use(code, instruction, lowest, depth)
        elif name.startswith("BUILD_"):
            if after <= depth:
                break
        elif not name.startswith("LOAD_") and name not in ("PUSH_NULL", "NOP"):
            break
        elif name in ATTRIBUTES and before == depth:
            break  # an attribute of the value
    return Use(None)


def _use(code: types.CodeType, instruction: dis.Instruction, lowest: int, depth: int) -> Use:
    """Return the use by an instruction with operands from the depth `lowest` upwards, of which the one below
    `depth` is the value.
    """
    name, offset = instruction.opname, instruction.offset
    if name in _COMPUTATIONS:
        return Use(COMPUTATION, offset)
    if name == _CALL:
        return Use(CALL, offset)
    if name == _STORE and lowest == depth - 1:
        return Use(ITEM, offset, _loaded(steps_to(code, offset)[:-1], depth, depth + 1))
    return Use(None, offset)


def _loaded(steps: Sequence[StackStep], low: int, high: int) -> Loaded | None:
    """Return the expression that has last pushed a constant, or a variable and its attributes, between two
    depths of the stack; None if something else is there.
    """
    steps = [single for step in steps for single in _single_loads(step)]
    start = max((k for k, step in enumerate(steps) if step.before == low), default=len(steps))
    loads: list[dis.Instruction] = []
    for instruction, before, _after in steps[start:]:
        is_attribute = instruction.opname in ATTRIBUTES  # it replaces the value below `high`
        if before is None or (loads and before >= high + is_attribute):
            break
        if instruction.opname == "PUSH_NULL":
            continue
        if instruction.opname not in (ATTRIBUTES if loads else _VARIABLES | CONSTANTS):
            return None
        loads.append(instruction)
    if not loads:
        return None
    first = loads[0]
    if first.opname in CONSTANTS:
        return Loaded(None, (), first.argval)
    return Loaded(first.argval, tuple(load.argval for load in loads[1:]))


def _single_loads(step: StackStep) -> list[StackStep]:
    """Return a step as loads of one variable each: from Python 3.13 on, an instruction may load two."""
    instruction, before, after = step
    if instruction.opname != "LOAD_FAST_LOAD_FAST" or before is None:
        return [step]
    first, second = (instruction._replace(opname="LOAD_FAST", argval=name) for name in instruction.argval)
    return [StackStep(first, before, before + 1), StackStep(second, before + 1, after)]
