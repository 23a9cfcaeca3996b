"""Names that a code object mentions: variables and attributes, read or assigned.

A body can reach by name only what its code names, and `surroundings` follows these names. A function defined
inside another one has a code object, and names, of its own.

>>> def step(x): return x * model.scale
>>> facts(step.__code__).globals, facts(step.__code__).attributes
(frozenset({'model'}), frozenset({'scale'}))
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import dis
import functools
import itertools
import re
import sys
import types
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import NamedTuple

_GLOBAL_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_GLOBAL_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
_VARIABLES = _GLOBAL_LOADS | {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})
_LOADS = _VARIABLES | _ATTRIBUTES
_MENTIONS = _VARIABLES | _GLOBAL_STORES | {"STORE_DEREF", "DELETE_DEREF"}
_STORES = {"STORE_ATTR", "DELETE_ATTR"}
_ITEM_STORES = {"STORE_SUBSCR", "DELETE_SUBSCR"}
_STORERS = frozenset({"setattr", "delattr"})
_ACCESSORS = _STORERS | {"getattr", "hasattr"}
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
_NEVER_ON = frozenset(
    {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD"}
)
"""Instructions that the next one does not follow."""
_COLLECTING = frozenset({"LIST_APPEND", "SET_ADD", "MAP_ADD"})
GENERATORS = 0x20 | 0x80 | 0x200  # inspect.CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
_LOCAL_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})


class Facts(NamedTuple):
    """Names that a code object mentions.

    variables:  names of globals and of variables of enclosing functions, read or assigned.
    globals:    names read as globals (or builtins).
    attributes: names of attributes read or assigned, and all strings that may be such names (`getattr`).
    strings:    constants that may be keys.
    stored:     names of attributes, globals and cells that are assigned.
    written:    names of globals that are assigned or deleted.
    uses:       (name, attribute) where the attribute is read directly from a variable or attribute of that
                name; (name, "") where something else is done with it.
    imports:    (level, module) of what is imported.
    handed:     names of globals and attributes whose value is used other than for a call or an attribute.
    stores_items: whether ``x[...] = ...``, ``del x[...]`` or an in-place operator occurs.
    compares_types: whether something is asked of ``type(...)`` besides its attributes.
    compares: whether two values are compared (``is``, ``==``, ``in``), of which none is a constant.
    """

    variables: frozenset[str]
    globals: frozenset[str]
    attributes: frozenset[str]
    strings: frozenset[str]
    stored: frozenset[str]
    written: frozenset[str]
    uses: frozenset[tuple[str, str]]
    imports: frozenset[tuple[int, str]]
    handed: frozenset[str]
    stores_items: bool
    compares_types: bool
    compares: bool


@dataclass
class Mentions:
    """The union of the `Facts` of several code objects; `uses` has the attributes by name."""

    attributes: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    handed: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    uses: dict[str, set[str]] = field(default_factory=dict)
    stores_items: bool = False
    compares: bool = False

    def add(self, found: Facts) -> None:
        """Add the facts of a code object."""
        self.attributes |= found.attributes
        self.variables |= found.variables
        self.handed |= found.handed
        self.add_stores(found)
        for name, attribute in found.uses:
            self.uses.setdefault(name, set()).add(attribute)
        self.compares |= found.compares

    def add_stores(self, found: "Facts | Mentions") -> None:
        """Add the names that code assigns."""
        self.stored |= found.stored
        self.strings |= found.strings
        self.stores_items |= found.stores_items

    def uses_of(self, names: Iterable[str]) -> set[str]:
        """Attributes that are read directly from what has one of these names, and "" for all else."""
        return set().union(*(self.uses.get(name, ()) for name in names))


def codes(code: types.CodeType) -> list[types.CodeType]:
    """A code object and those of the functions defined in it."""
    found = [code]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += codes(constant)
    return found


@functools.lru_cache(maxsize=64)
def instructions(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of `code`, cached because disassembly is slow and several functions need them."""
    return tuple(dis.get_instructions(code))


@functools.lru_cache(maxsize=256)
def operations(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of `code` without caches and extended arguments."""
    return tuple(i for i in instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG"))


class StackStep(NamedTuple):
    """An instruction, and the depth of the stack before and after it; None: nothing before leads there."""

    instruction: dis.Instruction
    before: int | None
    after: int | None


@functools.lru_cache(maxsize=256)
def stack_steps(code: types.CodeType) -> tuple[StackStep, ...]:
    """The instructions of `code` with the depths of the stack, in the order in which they are written.

    A ``PRECALL`` of Python 3.11 takes the arguments from the stack here, which its ``CALL`` has still.
    """
    depths = {0: 0}  # by offset, where a jump says it
    depth: int | None = 0
    found = []
    for i in instructions(code):
        if i.opname == "CACHE":
            continue
        depth = before = depths.get(i.offset, depth)
        if depth is not None:
            if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs:
                depths.setdefault(i.argval, depth + dis.stack_effect(i.opcode, i.arg, jump=True))
            argument = i.arg if i.opcode >= dis.HAVE_ARGUMENT else None
            depth += dis.stack_effect(i.opcode, argument, jump=False)
            if i.opname in _NEVER_ON:
                depth = None
        if i.opname != "EXTENDED_ARG":
            found.append(StackStep(i, before, depth))
    return tuple(found)


def enclosing(code: types.CodeType, offset: int) -> list[int]:
    """The places of the ``for`` statements and comprehensions around an instruction."""
    ends = ((i.offset, i.argval) for i in instructions(code) if i.opname == "FOR_ITER")
    return [begin for begin, end in ends if begin <= offset < end]


def collects(code: types.CodeType, begin: int) -> bool:
    """Whether a ``for`` is that of a comprehension, which holds its results where nobody can read them."""
    end = next(i.argval for i in instructions(code) if i.offset == begin)
    return any(begin < i.offset < end and i.opname in _COLLECTING for i in instructions(code))


@functools.lru_cache(maxsize=256)
def steps_to(code: types.CodeType, offset: int) -> tuple[StackStep, ...]:
    """The steps of `code` up to the instruction at an offset, or in whose caches the offset is."""
    return tuple(step for step in stack_steps(code) if step.instruction.offset <= offset)


@functools.lru_cache(maxsize=4096)
def facts(code: types.CodeType) -> Facts:
    """Collect the names that `code` mentions."""
    found = _without(code)
    strings = strings_in(code.co_consts)
    attributes = _named(found, _ATTRIBUTES | _STORES | {"IMPORT_FROM"})
    operations = {instruction.opname for instruction in found}
    if "MATCH_CLASS" in operations:
        attributes.add("__match_args__")
    set_by_name = {name for accessor, name in _accesses(code) if accessor in _STORERS and name is not None}
    return Facts(
        variables=frozenset(_named(found, _MENTIONS)),
        globals=frozenset(_named(found, _GLOBAL_LOADS)),
        attributes=frozenset(attributes | set(filter(str.isidentifier, strings))),
        strings=frozenset(strings),
        stored=frozenset(_named(found, _STORES | _GLOBAL_STORES | {"STORE_DEREF"}) | set_by_name),
        written=frozenset(_named(found, _GLOBAL_STORES)),
        uses=frozenset(_uses(found)),
        imports=frozenset(_imports(found)),
        handed=frozenset(_handed(found)),
        stores_items=not operations.isdisjoint(_ITEM_STORES) or any(map(_is_in_place, found)),
        compares_types=_compares_types(code),
        compares=_compares(code),
    )


def _named(found: Iterable[dis.Instruction], operations: Set[str]) -> set[str]:
    """The names that instructions of these operations mention."""
    return {instruction.argval for instruction in found if instruction.opname in operations}


def _is_in_place(instruction: dis.Instruction) -> bool:
    return instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("=")


def _without(code: types.CodeType, *operations: str) -> list[dis.Instruction]:
    """The instructions of `code` but for caches and these operations."""
    return [i for i in instructions(code) if i.opname not in ("CACHE", "PRECALL", *operations)]


def _uses(shown: list[dis.Instruction]) -> Iterator[tuple[str, str]]:
    """Each variable and attribute that is loaded, and the attribute that is looked up in it (see `Facts`)."""
    for load, following in itertools.pairwise(shown):
        if load.opname in _LOADS:
            yield load.argval, following.argval if following.opname in _ATTRIBUTES else ""


def _handed(shown: list[dis.Instruction]) -> Iterator[str]:
    """Variables and attributes whose value is used other than for a call or an attribute."""
    taken: str | None = None
    is_called = False  # whether what is loaded now will be called: before Python 3.13 NULL comes first
    last = ""
    for instruction in shown:
        name = instruction.opname
        is_attribute = name in _ATTRIBUTES
        if taken is not None and not is_attribute and name != "PUSH_NULL":
            yield taken
        is_load = name in _VARIABLES or name == "LOAD_ATTR"
        follows = is_attribute or last == "PUSH_NULL"  # the NULL of a call that is to come
        is_called = "NULL" in instruction.argrepr or (is_load and is_called and follows)
        taken = instruction.argval if is_load and not is_called else None
        is_called |= name == "PUSH_NULL" and sys.version_info < (3, 13)
        last = name


def _imports(found: list[dis.Instruction]) -> Iterator[tuple[int, str]]:
    """Level and name of every module that is imported. The level is the first of two constants before it."""
    for index, each in enumerate(found):
        if each.opname == "IMPORT_NAME":
            level, _names = [i.argval for i in found[:index] if i.opname in _CONSTANTS][-2:]
            yield level, each.argval


def _accesses(code: types.CodeType) -> Iterator[tuple[str, str | None]]:
    """Each use of ``getattr`` and the like: the function, and the constant name with which it is called; None
    for any other use.
    """
    shown = _without(code, "PUSH_NULL", "NOP")
    for index, each in enumerate(shown):
        if each.opname not in _GLOBAL_LOADS or each.argval not in _ACCESSORS:
            continue
        operands = list(itertools.takewhile(lambda i: i.opname in _LOADS | _LOCAL_LOADS, shown[index + 1 :]))
        rest = shown[index + 1 + len(operands) :][:3]
        given = [i.opname if i.opname != "CALL" else i.argval for i in rest]
        named = given[:2] == ["LOAD_CONST", 2] or (
            given[::2] == ["LOAD_CONST", 3] and given[1] in _LOADS | _LOCAL_LOADS | {"LOAD_CONST"}
        )
        is_name = bool(operands) and named and isinstance(rest[0].argval, str)
        yield each.argval, rest[0].argval if is_name else None


@functools.lru_cache(maxsize=4096)
def computed_access(code: types.CodeType) -> str | None:
    """The function by which `code` itself may reach attributes that it does not name, if there is one."""
    found = [accessor for accessor, name in _accesses(code) if name is None]
    attributes = _named(instructions(code), _ATTRIBUTES)
    found += sorted(_ACCESSORS & attributes)  # builtins.getattr
    if "format" in attributes and any(map(looks_up, facts(code).strings)):
        found.append("format")
    return found[0] if found else None


def _compares_types(code: types.CodeType) -> bool:
    """Whether `code` uses ``type(...)`` other than for an attribute, as messages do. ``type(self)`` does not
    count, as a method's own object is no number.
    """
    found = _without(code, "PUSH_NULL", "NOP")
    for index, each in enumerate(found):
        if each.opname in _GLOBAL_LOADS and each.argval == "type":
            loads = list(itertools.takewhile(lambda i: i.opname in _LOADS | _LOCAL_LOADS, found[index + 1 :]))
            then = found[index + 1 + len(loads) :][:2]
            is_call = len(loads) > 0 and len(then) == 2 and then[0].opname == "CALL" and then[0].argval == 1
            is_own = is_call and len(loads) == 1 and loads[0].argval in ("self", "cls")
            if not (is_own or (is_call and then[1].opname in _ATTRIBUTES)):
                return True
    return False


def looks_up(text: str) -> bool:
    """Whether `text` may be a format string that looks up attributes: ``"{0.rate}".format(...)``."""
    return re.search(r"\{[^}]*\.[^\W\d]", text) is not None


def is_made_by_dataclass(code: types.CodeType) -> bool:
    """Whether `dataclasses` generated a function: the variables that it captured are constants."""
    return code.co_filename == "<string>" and code.co_qualname.startswith("__create_fn__.<locals>.")


def handles_errors(code: types.CodeType) -> bool:
    """Whether `code` itself has ``except``, ``finally`` or ``with``."""
    return any(instruction.opname == "PUSH_EXC_INFO" for instruction in instructions(code))


def _compares(code: types.CodeType) -> bool:
    """Whether `code` compares two values of which none is a constant."""
    before = ""
    for instruction in instructions(code):
        question = instruction.opname in ("IS_OP", "CONTAINS_OP") or instruction.argval in ("==", "!=")
        if question and before != "LOAD_CONST":
            return True
        before = instruction.opname
    return False


def strings_in(constants: tuple[object, ...]) -> list[str]:
    """The strings in nested tuples."""
    found: list[str] = []
    for constant in constants:
        if isinstance(constant, str):
            found.append(constant)
        elif isinstance(constant, tuple | frozenset):
            found += strings_in(tuple(constant))
    return found


def mention(all_codes: set[types.CodeType], name: str) -> str | None:
    """``file:line`` where one of the codes first names `name`."""
    places = [
        (each.co_filename, instruction.positions.lineno)
        for each in all_codes
        for instruction in instructions(each)
        if instruction.argval == name and instruction.positions is not None and instruction.positions.lineno
    ]
    return "{}:{}".format(*min(places)) if places else None
