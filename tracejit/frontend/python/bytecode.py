"""The names that a code object mentions: variables and attributes, read or assigned.

A body can reach by name only the values whose names occur in its code, and `surroundings` follows these
names. A nested function has its own code object, with its own names.

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
CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
_GENERATORS = 0x20 | 0x80 | 0x200  # inspect.CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_LOCAL_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})


class Facts(NamedTuple):
    """The names that a code object mentions.

    variables:  names of globals and free variables, read or assigned.
    globals:    names read as globals (or builtins).
    attributes: names of attributes read or assigned, and all strings that may be such names (`getattr`).
    strings:    constants that may be keys.
    stored:     names of attributes, globals and cells that are assigned.
    written:    names of globals that are assigned or deleted.
    uses:       pairs (name, attribute) where the attribute is read directly from a variable or attribute with
                that name; (name, "") for any other use of its value.
    imports:    pairs (level, module) of the imports.
    escaping:   names of globals and attributes whose value is used other than for a call or an attribute.
    escaping_loads: these names, once for each such use.
    stores_items: whether ``x[...] = ...``, ``del x[...]`` or an in-place operator occurs.
    compares_types: whether ``type(...)`` is used for more than its attributes.
    compares: whether two values, neither of them a constant, are compared (``is``, ``==``, ``in``).
    """

    variables: frozenset[str]
    globals: frozenset[str]
    attributes: frozenset[str]
    strings: frozenset[str]
    stored: frozenset[str]
    written: frozenset[str]
    uses: frozenset[tuple[str, str]]
    imports: frozenset[tuple[int, str]]
    escaping: frozenset[str]
    escaping_loads: tuple[str, ...]
    stores_items: bool
    compares_types: bool
    compares: bool


@dataclass(eq=False, repr=False)
class Mentions:
    """The union of the `Facts` of several code objects; `uses` has the attributes by name."""

    attributes: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    escaping: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    uses: dict[str, set[str]] = field(default_factory=dict)
    stores_items: bool = False
    compares: bool = False

    def add(self, new: Facts) -> None:
        """Add the facts of a code object."""
        self.attributes |= new.attributes
        self.variables |= new.variables
        self.escaping |= new.escaping
        self.add_stores(new)
        for name, attribute in new.uses:
            self.uses.setdefault(name, set()).add(attribute)
        self.compares |= new.compares

    def add_stores(self, new: "Facts | Mentions") -> None:
        """Add the names that code assigns."""
        self.stored |= new.stored
        self.strings |= new.strings
        self.stores_items |= new.stores_items

    def uses_of(self, names: Iterable[str]) -> set[str]:
        """Return the attributes read directly from a value with one of these names, and "" for other uses."""
        return set().union(*(self.uses.get(name, ()) for name in names))


def codes(code: types.CodeType) -> list[types.CodeType]:
    """Return a code object and the code objects of all functions defined in it, recursively."""
    result = [code]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            result += codes(constant)
    return result


@functools.lru_cache(maxsize=64)
def instructions(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """Return the instructions of `code`, cached because disassembly is slow and several functions need it."""
    return tuple(dis.get_instructions(code))


@functools.lru_cache(maxsize=256)
def operations(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """Return the instructions of `code` without caches and extended arguments."""
    return tuple(i for i in instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG"))


def variables_of(instruction: dis.Instruction) -> tuple[str, ...]:
    """Return the variables of an instruction that loads or stores one or two."""
    names = instruction.argval
    return names if isinstance(names, tuple) else (names,)


def is_jump(instruction: dis.Instruction) -> bool:
    """Whether an instruction may continue at its target."""
    return instruction.opcode in _JUMPS


def is_generator(code: types.CodeType) -> bool:
    """Whether `code` is that of a generator or a coroutine."""
    return bool(code.co_flags & _GENERATORS)


@functools.lru_cache(maxsize=4096)
def facts(code: types.CodeType) -> Facts:
    """Collect the names that `code` mentions."""
    code_instructions = _without(code)
    strings = strings_in(code.co_consts)
    attributes = _named(code_instructions, _ATTRIBUTES | _STORES | {"IMPORT_FROM"})
    opnames = {instruction.opname for instruction in code_instructions}
    if "MATCH_CLASS" in opnames:
        attributes.add("__match_args__")
    escaping = list(_escaping(code_instructions))
    set_by_name = {name for accessor, name in _accesses(code) if accessor in _STORERS and name is not None}
    return Facts(
        variables=frozenset(_named(code_instructions, _MENTIONS)),
        globals=frozenset(_named(code_instructions, _GLOBAL_LOADS)),
        attributes=frozenset(attributes | set(filter(str.isidentifier, strings))),
        strings=frozenset(strings),
        stored=frozenset(_named(code_instructions, _STORES | _GLOBAL_STORES | {"STORE_DEREF"}) | set_by_name),
        written=frozenset(_named(code_instructions, _GLOBAL_STORES)),
        uses=frozenset(_uses(code_instructions)),
        imports=frozenset(_imports(code_instructions)),
        escaping=frozenset(escaping),
        escaping_loads=tuple(escaping),
        stores_items=not opnames.isdisjoint(_ITEM_STORES) or any(map(_is_in_place, code_instructions)),
        compares_types=_compares_types(code),
        compares=_compares(code),
    )


def _named(sequence: Iterable[dis.Instruction], operations: Set[str]) -> set[str]:
    """Return the names mentioned by the instructions with these operations."""
    return {instruction.argval for instruction in sequence if instruction.opname in operations}


def _is_in_place(instruction: dis.Instruction) -> bool:
    return instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("=")


def _without(code: types.CodeType, *operations: str) -> list[dis.Instruction]:
    """Return the instructions of `code` except caches and these operations."""
    return [i for i in instructions(code) if i.opname not in ("CACHE", "PRECALL", *operations)]


def _uses(sequence: list[dis.Instruction]) -> Iterator[tuple[str, str]]:
    """Yield each loaded variable and attribute with the attribute read from it (see `Facts.uses`)."""
    for load, following in itertools.pairwise(sequence):
        if load.opname in _LOADS:
            yield load.argval, following.argval if following.opname in _ATTRIBUTES else ""


def _escaping(sequence: list[dis.Instruction]) -> Iterator[str]:
    """Yield the variables and attributes whose value is used other than for a call or an attribute."""
    pending: str | None = None
    is_called = False  # whether the value being loaded is called: before Python 3.13, NULL is pushed first
    last = ""
    for instruction in sequence:
        name = instruction.opname
        is_attribute = name in _ATTRIBUTES
        if pending is not None and not is_attribute and name != "PUSH_NULL":
            yield pending
        is_load = name in _VARIABLES or name == "LOAD_ATTR"
        follows = is_attribute or last == "PUSH_NULL"  # the NULL of a following call
        is_called = "NULL" in instruction.argrepr or (is_load and is_called and follows)
        pending = instruction.argval if is_load and not is_called else None
        is_called |= name == "PUSH_NULL" and sys.version_info < (3, 13)
        last = name


def _imports(sequence: list[dis.Instruction]) -> Iterator[tuple[int, str]]:
    """Yield level and name of every imported module. Of the two constants loaded before, the level
    is first.
    """
    for index, each in enumerate(sequence):
        if each.opname == "IMPORT_NAME":
            level, _names = [i.argval for i in sequence[:index] if i.opname in CONSTANTS][-2:]
            yield level, each.argval


def _accesses(code: types.CodeType) -> Iterator[tuple[str, str | None]]:
    """Yield each use of ``getattr`` and related functions: the function, and the constant name passed to it,
    or None if it is used in any other way.
    """
    sequence = _without(code, "PUSH_NULL", "NOP")
    for index, each in enumerate(sequence):
        if each.opname not in _GLOBAL_LOADS or each.argval not in _ACCESSORS:
            continue
        operands = list(
            itertools.takewhile(lambda i: i.opname in _LOADS | _LOCAL_LOADS, sequence[index + 1 :])
        )
        arguments = sequence[index + 1 + len(operands) :][:3]
        shape = [i.opname if i.opname != "CALL" else i.argval for i in arguments]
        is_constant = shape[:2] == ["LOAD_CONST", 2] or (
            shape[::2] == ["LOAD_CONST", 3] and shape[1] in _LOADS | _LOCAL_LOADS | {"LOAD_CONST"}
        )
        is_name = bool(operands) and is_constant and isinstance(arguments[0].argval, str)
        yield each.argval, arguments[0].argval if is_name else None


@functools.lru_cache(maxsize=4096)
def computed_access(code: types.CodeType) -> str | None:
    """Return the function by which `code` may access attributes that it does not name, if there is one."""
    accessors = [accessor for accessor, name in _accesses(code) if name is None]
    attributes = _named(instructions(code), _ATTRIBUTES)
    accessors += sorted(_ACCESSORS & attributes)  # builtins.getattr
    if "format" in attributes and any(map(looks_up, facts(code).strings)):
        accessors.append("format")
    return accessors[0] if accessors else None


def _compares_types(code: types.CodeType) -> bool:
    """Return whether `code` uses ``type(...)`` for more than its attributes (which messages use).
    ``type(self)`` does not count, because a method's own object is not a number.
    """
    sequence = _without(code, "PUSH_NULL", "NOP")
    for index, each in enumerate(sequence):
        if each.opname in _GLOBAL_LOADS and each.argval == "type":
            loads = list(
                itertools.takewhile(lambda i: i.opname in _LOADS | _LOCAL_LOADS, sequence[index + 1 :])
            )
            following = sequence[index + 1 + len(loads) :][:2]
            is_call = (
                len(loads) > 0
                and len(following) == 2
                and following[0].opname == "CALL"
                and following[0].argval == 1
            )
            is_own = is_call and len(loads) == 1 and loads[0].argval in ("self", "cls")
            if not (is_own or (is_call and following[1].opname in _ATTRIBUTES)):
                return True
    return False


def looks_up(text: str) -> bool:
    """Return whether `text` may be a format string that reads attributes: ``"{0.rate}".format(...)``."""
    return re.search(r"\{[^}]*\.[^\W\d]", text) is not None


def is_made_by_dataclass(code: types.CodeType) -> bool:
    """Return whether `dataclasses` generated the function; the variables it captured are constants."""
    return code.co_filename == "<string>" and code.co_qualname.startswith("__create_fn__.<locals>.")


def handles_errors(code: types.CodeType) -> bool:
    """Return whether `code` itself contains ``except``, ``finally`` or ``with``."""
    return any(instruction.opname == "PUSH_EXC_INFO" for instruction in instructions(code))


def _compares(code: types.CodeType) -> bool:
    """Return whether `code` compares two values, neither of which is a constant."""
    previous = ""
    for instruction in instructions(code):
        is_comparison = instruction.opname in ("IS_OP", "CONTAINS_OP") or instruction.argval in ("==", "!=")
        if is_comparison and previous != "LOAD_CONST":
            return True
        previous = instruction.opname
    return False


def strings_in(constants: tuple[object, ...]) -> list[str]:
    """Return the strings in nested tuples and frozensets."""
    strings: list[str] = []
    for constant in constants:
        if isinstance(constant, str):
            strings.append(constant)
        elif isinstance(constant, tuple | frozenset):
            strings += strings_in(tuple(constant))
    return strings


def attributes_after(code: types.CodeType, roots: Set[str], name: str) -> set[str]:
    """Return the attributes that `code` reads from ``root.name`` for globals `roots`, and "" if it uses
    ``root.name`` in any other way, or attributes with this name of other variables called like a root.

    >>> sorted(attributes_after((lambda: os.path.join(os.path.sep)).__code__, {"os"}, "path"))
    ['join', 'sep']
    """
    found = set()
    sequence = _without(code, "PUSH_NULL", "NOP")
    for root, load, following in zip(sequence, sequence[1:], sequence[2:], strict=False):
        if load.opname in _ATTRIBUTES and load.argval == name and root.argval in roots:
            is_direct = root.opname in _GLOBAL_LOADS and following.opname in _ATTRIBUTES
            found.add(following.argval if is_direct else "")
    return found


def mention(all_codes: set[types.CodeType], name: str) -> str | None:
    """Return the first ``file:line`` at which one of the code objects mentions `name`, or None."""
    lines = [
        (each.co_filename, instruction.positions.lineno)
        for each in all_codes
        for instruction in instructions(each)
        if instruction.argval == name and instruction.positions is not None and instruction.positions.lineno
    ]
    return "{}:{}".format(*min(lines)) if lines else None
