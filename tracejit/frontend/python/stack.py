"""The evaluation stack of Python at each instruction of a code object.

Values on the stack of a frame cannot be read. If the code has no branch since the start of the statement, it
determines what they are: loaded values, results of operators on loaded values, and results of calls.

>>> def f(x, y): return -x, f(x), y, bool(x)
>>> pending(f.__code__, call_offsets(f.__code__)[-1])
(1, 1)
>>> sorted(names_on_stack(f.__code__, call_offsets(f.__code__)[0]))
['x']
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import dis
import functools
import types
from collections.abc import Sequence
from typing import NamedTuple

from tracejit.frontend.python.bytecode import CONSTANTS, instructions, is_jump, variables_of
from tracejit.frontend.python.code_loops import enclosing

_NO_FALLTHROUGH = frozenset(
    {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD"}
)
"""Instructions after which control does not continue at the next instruction."""

_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
_OPERANDS = {"COMPARE_OP": 2, "BINARY_SUBSCR": 2, "BINARY_SLICE": 3}
ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})

_LOADED, _COMPUTED, _ANY = "loaded", "computed", "any"
"""Kinds of temporaries: a variable or constant, the result of an operator on these, anything else."""


class StackStep(NamedTuple):
    """An instruction with the stack depth before and after it; None where the depth is unknown because no
    preceding instruction leads there.
    """

    instruction: dis.Instruction
    before: int | None
    after: int | None


@functools.lru_cache(maxsize=256)
def stack_steps(code: types.CodeType) -> tuple[StackStep, ...]:
    """Return the instructions of `code` with the stack depths, in textual order.

    A ``PRECALL`` of Python 3.11 counts as popping the arguments, although they stay until its ``CALL``.
    """
    depths = {0: 0}  # depth at the targets of jumps, by offset
    depth: int | None = 0
    steps = []
    for i in instructions(code):
        if i.opname == "CACHE":
            continue
        depth = before = depths.get(i.offset, depth)
        if depth is not None:
            if is_jump(i):
                depths.setdefault(i.argval, depth + dis.stack_effect(i.opcode, i.arg, jump=True))
            argument = i.arg if i.opcode >= dis.HAVE_ARGUMENT else None
            depth += dis.stack_effect(i.opcode, argument, jump=False)
            if i.opname in _NO_FALLTHROUGH:
                depth = None
        if i.opname != "EXTENDED_ARG":
            steps.append(StackStep(i, before, depth))
    return tuple(steps)


@functools.lru_cache(maxsize=256)
def steps_to(code: types.CodeType, offset: int) -> tuple[StackStep, ...]:
    """Return the steps of `code` up to the instruction that contains an offset, caches included."""
    return tuple(step for step in stack_steps(code) if step.instruction.offset <= offset)


def call_offsets(code: types.CodeType) -> list[int]:
    """Return the offsets of the calls in `code`."""
    return [i.offset for i in instructions(code) if i.opname in _CALLS]


def depth_below_called(steps: Sequence[StackStep]) -> int | None:
    """Return the depth of the stack below the callee of the last instruction and its object or null; None if
    the instruction is not a call.
    """
    call, before, _after = steps[-1]
    if call.opname not in _CALLS or call.arg is None:
        return None
    if len(steps) > 1 and steps[-2].instruction.opname == "PRECALL":
        before = steps[-2].before
    count = 1 + (call.arg & 1) if call.opname == "CALL_FUNCTION_EX" else call.arg + (call.opname == "CALL_KW")
    return None if before is None else before - count - 2


@functools.lru_cache(maxsize=256)
def pending(code: types.CodeType, offset: int) -> tuple[int, int] | None:
    """Count the temporaries on the stack below the operands of an instruction: how many are results of
    operators on loaded values, and how many are others (a call may return anything). Iterators of the
    enclosing ``for`` statements and values that were only loaded do not count. None if the stack is unknown,
    for instance after a branch.

    >>> def f(x, y): return (x if y else 1.0) * float(x)
    >>> pending(f.__code__, call_offsets(f.__code__)[-1]) is None
    True
    """
    low = len(enclosing(code, offset))
    steps = steps_to(code, offset)
    kinds = _kinds(_statement(steps, low), low)
    if kinds is None:
        return None
    callee, (instruction, depth, _after) = depth_below_called(steps), steps[-1]
    operand_count = _OPERANDS.get(instruction.opname, 1)
    below = kinds[: (callee if callee is not None else (depth or 0) - operand_count) - low]
    return below.count(_COMPUTED), below.count(_ANY)


def slices_variable(code: types.CodeType, offset: int) -> bool:
    """Whether an instruction takes a slice of a variable, between bounds that are variables or results of
    operators on variables.

    >>> def f(x, row, i): return x[row[i] : row[i + 1]]
    >>> [slices_variable(f.__code__, i.offset) for i in instructions(f.__code__)].count(True)
    1
    """
    steps = steps_to(code, offset)
    name, bounds = steps[-1].instruction.opname, steps
    if name == "BINARY_SUBSCR" and len(steps) > 1:  # of a slice, until Python 3.11
        previous, bounds = steps[-2].instruction, steps[:-1]
        if previous.opname != "BUILD_SLICE" or previous.arg != 2:
            return False
    elif name != "BINARY_SLICE":
        return False
    low = len(enclosing(code, offset))
    kinds = _kinds(_statement(bounds, low), low)
    return kinds is not None and kinds[-3] == _LOADED and _ANY not in kinds[-2:]


def _statement(steps: Sequence[StackStep], low: int) -> Sequence[StackStep]:
    """Return the steps since the stack was last empty; none if there is a branch among them."""
    for k in range(len(steps) - 1, -1, -1):
        instruction, before, _after = steps[k]
        if before == low:
            return steps[k:]
        jumps = is_jump(instruction) and k < len(steps) - 1
        if before is None or instruction.is_jump_target or jumps:
            break
    return ()


def _kinds(steps: Sequence[StackStep], low: int) -> list[str] | None:
    """Return the kinds of the stack's values before the last of these steps, from a depth upwards."""
    if not steps:
        return None
    kinds: list[str] = []
    for instruction, before, after in steps[:-1]:
        if before is None or after is None:
            return None
        name, depth = instruction.opname, after - low
        if name.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "PUSH_NULL")) or name in CONSTANTS:
            kinds += [_LOADED] * (depth - len(kinds))
        elif name in ATTRIBUTES:
            kinds += [kinds[-1]] * (depth - len(kinds))
        elif name.startswith(("BINARY", "UNARY", "COMPARE")):
            operands = [kinds.pop() for _ in range(len(kinds) - depth + 1)]
            kinds.append(_ANY if _ANY in operands else _COMPUTED)
        elif name == "COPY":
            kinds.append(kinds[-(instruction.arg or 1)])
        elif name not in ("SWAP", "PRECALL", "KW_NAMES", "RESUME", "NOP"):
            del kinds[max(depth - 1, 0) :]
            kinds += [_ANY] * (depth - len(kinds))
    return kinds


TESTS = ("POP_JUMP", "TO_BOOL", "UNARY_NOT")
"""The beginnings of the names of instructions that test whether a value is true, and remove it."""


@functools.lru_cache(maxsize=256)
def names_on_stack(code: types.CodeType, offset: int) -> frozenset[str]:
    """Return the variables, and the attributes (with a leading dot), whose values, or results computed from
    them, may be on the stack at an instruction. The operand of a test is not among them: the test uses it up.
    """
    stacked: list[tuple[int, str]] = []  # the depth of the stack below each, and its name
    for i, before, after in stack_steps(code):
        if i.offset >= offset:
            if before is not None and i.offset == offset and i.opname.startswith(TESTS):
                stacked = [(below, name) for below, name in stacked if below < before - 1]
            break
        if before is None:  # an exception handler
            return frozenset((*code.co_varnames, *(f".{name}" for name in code.co_names)))
        if i.opname.startswith("LOAD_FAST"):
            stacked += ((before, name) for name in variables_of(i))
        elif i.opname == "STORE_FAST_LOAD_FAST":  # from Python 3.13 on, of one line
            stacked.append((before - 1, variables_of(i)[1]))
        elif i.opname == "LOAD_ATTR":
            stacked.append((before - 1, f".{i.argval}"))
        if i.opname != "PRECALL" and after is not None:
            stacked = [(below, name) for below, name in stacked if below < after]
    return frozenset(name for _, name in stacked)
