"""Serial kernels: loops that compute single elements, as a program of statements for one thread.

A `loop` whose body computes scalars, or few elements, and reads and writes single elements of arrays gains
nothing from fusion or from several threads. One kernel runs it: its loop-carried scalars are variables, its
branches are branches.

    for i in range(1, n):                      Repeat count
        if x[i] > x[i - 1]:                        load, load, greater
            y[i] = y[i - 1] + x[i]                 Choose: branch 1: load, add, store

`lower_serial` translates a `loop` node, with its nested loops and cases, or raises `NotSerial` with the
reason. The program contains no shape: extents, offsets, strides, addresses and numbers are slots of the
kernel's argument block. Equal loops over arrays of other shapes are therefore the same kernel.

Arrays of few elements are scalars, one for each element (`ShortArray`).

Arrays are updated in place. The graph is pure: a `scatter` returns a new array. Each write
changes the version of a memory, and a read of an older version raises `NotSerial`.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value, producers_of
from tracejit.ir.moving import Moving
from tracejit.ir.op import ELEMENTWISE, Op, Trait
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View
from tracejit.loopnest.assignments import assigned_in_branches, line_count, with_assignments
from tracejit.loopnest.inner_loops import with_inner_loops
from tracejit.loopnest.literals import LITERALS, literal_constants
from tracejit.loopnest.merging import merged
from tracejit.loopnest.operands import (
    MAX_SHORT,
    MOVES,
    InMemory,
    NotSerial,
    ShortArray,
    check_same,
    check_short,
    check_type,
    is_register,
    of_elements,
    positions_of,
    selected_elements,
    single_elements,
    window_of,
)
from tracejit.loopnest.selects import with_selects
from tracejit.loopnest.statements import (
    MAX_DEPTH,
    ApplyFunction,
    CheckIndex,
    Choose,
    KnownSlot,
    LiteralNumber,
    LoadElement,
    LoweredSerial,
    Offset,
    OperandSlot,
    Register,
    Repeat,
    SerialProgram,
    SlotNumber,
    StatementBlock,
    StoreElement,
)
from tracejit.ops.loops import targets

MAX_STATEMENTS = 2000
"""The maximal number of statements of a kernel. Compiling more takes seconds."""

MAX_ASSIGNED = 1_000_000
"""The maximal product of the variables that branches assign and the lines of a kernel. Numba's front end
visits all lines for each such variable: 5 us for each unit, and so 5 s at most.
"""


EXACT_REDUCTIONS: tuple[Op, ...] = (ops.max, ops.min, ops.any, ops.all)
INTEGER_REDUCTIONS: tuple[Op, ...] = (ops.sum, ops.prod)
"""Reductions whose results do not depend on the order of the elements, and those of which only the results
for integers do not.
"""


def lower_serial(node: Node) -> LoweredSerial:
    """Return the serial kernel of a `loop` node. Raises `NotSerial`."""
    return _Lowering(node).lowered()


class _Lowering:
    """A serial kernel under construction. Values are lowered to numbers of scalars, to `InMemory`, or to
    `ShortArray`.

    versions:   the version of each memory.
    _available: results of statements that have run, by their description.
    _writes:    for each version that results from a write: the version before, and the written array.
    _terms:     the truth values of which another one is the conjunction.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.slots: list[OperandSlot | KnownSlot] = []
        self.memories: list[tuple[str, int]] = []
        self.versions: list[int] = []
        self.constants: list[SlotNumber | LiteralNumber] = []
        self.checks: list[tuple[Node, int]] = []
        self.statements: list[Any] = []
        self.depth = self.scalar_count = self.version_count = self.statement_count = 0
        self.literals = literal_constants(node)
        self._integer_slots: dict[int, int] = {}
        self._constants: dict[tuple[str, str, bool], int] = {}
        self._available: dict[Any, int] = {}
        self._writes: dict[int, tuple[int, InMemory]] = {}
        self._terms: dict[int, frozenset[int]] = {}
        self._producers: dict[int, dict[Value, Node]] = {}

    def lowered(self) -> LoweredSerial:
        """Lower the node."""
        node, operands = self.node, list[Any]()
        for i, value in enumerate(node.inputs):
            kind = check_type(value.type)
            if value.type.on_host:
                operands.append(self._number(SlotNumber, kind, self._slot(OperandSlot(i))))
                continue
            self.memories.append((kind, self._slot(OperandSlot(i))))
            self.versions.append(0)
            operands.append(InMemory(len(self.memories) - 1, 0, (), View.of_shape((value.type.size,))))
        results = self._repeat(node, operands)
        for i, result in zip(targets(node.attrs["body"]), results, strict=True):
            if isinstance(result, int):
                memory = operands[1 + i].memory
                self._add(StoreElement(memory, Offset(-1, ()), result, self.memories[memory][0]))
        block = merged(StatementBlock(tuple(self.statements), ()), self.constants, self.scalar_count)
        block = with_assignments(with_selects(block, self.constants))
        block = with_inner_loops(block, self.constants)
        if len(assigned_in_branches(block)) * line_count(block) > MAX_ASSIGNED:
            raise NotSerial("it has too many branches and variables")
        program = SerialProgram(tuple(self.memories), tuple(self.constants), block)
        return LoweredSerial(program, tuple(self.checks), tuple(self.slots))

    # -- slots and statements --------------------------------------------------------------------------------

    def _slot(self, slot: OperandSlot | KnownSlot) -> int:
        self.slots.append(slot)
        return len(self.slots) - 1

    def _integer(self, value: Any) -> int:
        """Return the slot of an integer."""
        if type(value) is Moving:
            raise NotSerial(MOVES)
        if value not in self._integer_slots:
            self._integer_slots[value] = self._slot(KnownSlot(value))
        return self._integer_slots[value]

    def _scalar(self) -> int:
        self.scalar_count += 1
        return self.scalar_count - 1

    def _add(self, statement: Any) -> None:
        self.statement_count += 1
        if self.statement_count > MAX_STATEMENTS:
            raise NotSerial(f"it has more than {MAX_STATEMENTS} statements")
        self.statements.append(statement)

    def _emit(self, statement: Any, *fields: Any) -> int:
        """Return the result of a statement: that of an equal one that has run, or of a new one."""
        key = statement, fields
        if key not in self._available:
            self._available[key] = self._scalar()
            self._add(statement(self._available[key], *fields))
        return self._available[key]

    @contextmanager
    def _block(self) -> Iterator[list[Any]]:
        """Collect statements of a block within the present one, whose results are available in it only."""
        statements, available = self.statements, self._available
        self.statements, self._available = [], dict(available)
        yield self.statements
        self.statements, self._available = statements, available

    def _number(self, statement: Any, *fields: Any) -> int:
        """Add a number that no statement changes; return its scalar."""
        result = self._scalar()
        self.constants.append(statement(result, *fields))
        return result

    def _offset(self, elements: InMemory) -> Offset:
        """Return the offset of the only element."""
        terms = tuple((scalar, -1 if n == 1 else self._integer(n)) for scalar, n in elements.terms if n != 0)
        start = elements.view.offset
        if type(start) is int and 0 <= start < MAX_SHORT:  # LLVM sees which elements are neighbours
            return Offset(-1, terms, start)
        return Offset(self._integer(start), terms)

    def _check_version(self, elements: InMemory) -> None:
        if self.versions[elements.memory] != elements.version:
            raise NotSerial("it reads elements that it has overwritten")

    def _value(self, lowered: Any, kind: str) -> int:
        """Return the scalar that a lowered value of one element contains."""
        if isinstance(lowered, int):
            return lowered
        self._check_version(lowered)
        offset = self._offset(lowered)
        key = LoadElement, lowered.memory, lowered.version, offset
        if key not in self._available:
            self._available[key] = self._scalar()
            self._add(LoadElement(self._available[key], kind, lowered.memory, offset))
        return self._available[key]

    def _elements(self, lowered: Any, type: ArrayType) -> tuple[int, ...]:
        """Return the scalars of the elements of a lowered value, in C order."""
        if isinstance(lowered, ShortArray):
            return lowered.elements
        kind = check_type(type)
        if type.size == 1:
            return (self._value(lowered, kind),)
        check_short(type.size)
        return tuple(self._value(each, kind) for each in single_elements(lowered, lowered.view))

    def _store_all(self, target: InMemory, base: InMemory, values: Sequence[int]) -> InMemory:
        """Write elements of the memory of `base`; return the new `base`."""
        for element, value in zip(single_elements(target, target.view), values, strict=True):
            base = self._store(element, base, value)
        return base

    def _store(self, elements: InMemory, base: InMemory, value: int) -> InMemory:
        """Write the only element of `elements`, which is in the memory of `base`; return the new `base`."""
        self._check_version(base)
        kind, _ = self.memories[base.memory]
        self._add(StoreElement(base.memory, self._offset(elements), value, kind))
        result = self._changed(base)
        self._writes[result.version] = base.version, base
        return result

    def _changed(self, elements: InMemory) -> InMemory:
        """Return the elements after a write to their memory."""
        self.version_count += 1
        self.versions[elements.memory] = self.version_count
        return elements._replace(version=self.version_count)

    # -- graphs ----------------------------------------------------------------------------------------------

    def _graph(self, graph: Graph, inputs: Sequence[Any]) -> dict[Value, Any]:
        """Lower the nodes of a graph; return its values."""
        values = dict(zip(graph.inputs, inputs, strict=True))
        for node in graph.nodes:
            operands = [values[value] for value in node.inputs]
            if node.op is ops.loop:
                results = self._repeat(node, operands)
            elif node.op is ops.case:
                results = self._choose(node, operands)
            else:
                results = [self._node(node, operands)]
            values.update(zip(node.outputs, results, strict=True))
        return values

    def _node(self, node: Node, operands: list[Any]) -> Any:
        """Lower a node without nested graphs."""
        op = node.op
        if len(node.outputs) != 1:
            raise NotSerial(f"it contains {op.name}")
        type = node.output.type
        kind = check_type(type)
        if op is ops.constant:
            return self._constant(node, kind)
        if op is ops.view:
            return self._view(operands[0], node.attrs["view"])
        if op is ops.gather:
            return self._gather(operands, node)
        if op is ops.scatter or op is ops.update:
            return self._update(operands, node)
        if op in EXACT_REDUCTIONS or (op in INTEGER_REDUCTIONS and type.dtype.kind in "iub"):
            return self._reduced(node, operands[0])
        if type.size != 1:
            return self._short(node, operands)
        if op is ops.full or op is ops.copy:
            return self._value(operands[0], kind)
        if op is ops.iota:
            return self._literal(0, kind)
        if op is ops.check_index:
            return self._check_index(node, self._value(operands[0], kind))
        if ELEMENTWISE not in op.traits or op.kernel is None:
            raise NotSerial(f"it contains {op.name}")
        kinds = [check_type(value.type) for value in node.inputs]
        args = tuple(self._value(x, k) for x, k in zip(operands, kinds, strict=True))
        return self._apply(node, args)

    def _apply(self, node: Node, args: tuple[int, ...]) -> int:
        """Return the result of an elementwise operator for one element."""
        if node.op is ops.logical_and and all(value.type.dtype == np.bool_ for value in node.inputs):
            return self._conjunction(*args)
        return self._emit(ApplyFunction, check_type(node.output.type), node.op.kernel, args)

    def _short(self, node: Node, operands: list[Any]) -> ShortArray:
        """Lower a node that computes several elements."""
        op, type = node.op, node.output.type
        check_short(type.size)
        if op is ops.empty:
            kind = check_type(type)
            return ShortArray((self._literal(False if kind == "bool" else 0, kind),) * type.size)
        if op is ops.iota:
            return ShortArray(tuple(self._literal(i, "int64") for i in range(type.size)))
        args = [self._elements(x, value.type) for x, value in zip(operands, node.inputs, strict=True)]
        if op is ops.full:
            return ShortArray(args[0] * type.size)
        if op is ops.copy:
            return ShortArray(args[0])
        if op is ops.check_index:
            return ShortArray(tuple(self._check_index(node, index) for index in args[0]))
        if Trait.SCAN in op.traits and type.ndim == 1 and op.kernel is not None:
            return ShortArray(tuple(itertools.accumulate(args[0], lambda x, y: self._apply(node, (x, y)))))
        if ELEMENTWISE not in op.traits or op.kernel is None:
            raise NotSerial(f"{op.name} computes {type}")
        spread = [each if len(each) == type.size else each * type.size for each in args]
        return ShortArray(tuple(self._apply(node, each) for each in zip(*spread, strict=True)))

    def _reduced(self, node: Node, operand: Any) -> Any:
        """Lower a reduction of a short array whose result does not depend on the order of the elements."""
        x, axes = node.inputs[0].type, node.attrs["axes"]
        if node.attrs.get("pieces") or node.output.type.size * x.size == 0:
            raise NotSerial(f"{node.op.name} reduces {x}")
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        places = np.arange(x.size).reshape(x.shape).transpose(*kept, *axes)
        elements = self._elements(operand, x)
        return of_elements(
            tuple(
                functools.reduce(lambda a, b: self._apply(node, (a, b)), [elements[i] for i in row])
                for row in places.reshape(node.output.type.size, -1).tolist()
            )
        )

    def _literal(self, value: int, kind: str) -> int:
        """Return the scalar of a number that is part of the program."""
        key = kind, repr(value), True
        if key not in self._constants:
            self._constants[key] = self._number(LiteralNumber, kind, value)
        return self._constants[key]

    def _conjunction(self, a: int, b: int) -> int:
        """Return the conjunction of truth values. Checks of indices repeat many terms."""
        terms, others = (self._terms.get(x, frozenset((x,))) for x in (a, b))
        if others <= terms:
            return a
        result = self._emit(ApplyFunction, "bool", "logical_and", (a, b))
        self._terms[result] = terms | others
        return result

    def _constant(self, node: Node, kind: str) -> int:
        value = node.attrs["value"]
        is_literal = kind == "bool" or id(node) in self.literals or (kind == "int64" and value in LITERALS)
        key = kind, repr(value), is_literal
        if key not in self._constants:
            if is_literal:
                self._constants[key] = self._number(LiteralNumber, kind, value)
            else:
                bits = np.asarray(value, kind).tobytes().ljust(8, b"\0")
                slot = self._slot(KnownSlot(struct.unpack("q", bits)[0]))
                self._constants[key] = self._number(SlotNumber, kind, slot)
        return self._constants[key]

    def _check_index(self, node: Node, index: int) -> int:
        extent = self._integer(node.attrs["extent"])
        key = CheckIndex, index, extent
        if key not in self._available:
            self._available[key] = self._scalar()
            self._add(CheckIndex(self._available[key], index, extent, len(self.checks)))
            self.checks.append((node, self.depth))
        return self._available[key]

    def _view(self, x: Any, view: View) -> Any:
        if isinstance(x, int):
            if view.size == 1:
                return x
            check_short(view.size)
            return ShortArray((x,) * view.size)
        if isinstance(x, ShortArray):
            if view.size == 1:
                return x.elements[view.offset]
            check_short(view.size)
            return ShortArray(tuple(x.elements[position] for position in positions_of(view)))
        composed = x.view.compose(view)
        if composed is None:
            raise NotSerial("it reads a view of a view that has no strides")
        return self._read(x._replace(view=composed))

    def _read(self, x: InMemory) -> Any:
        """Return elements; if it is a single one, the scalar that it contains now."""
        return self._value(x, self.memories[x.memory][0]) if x.view.size == 1 else x

    def _gather(self, operands: list[Any], node: Node) -> Any:
        x, index = operands
        axis, n_indices = node.attrs["axis"], node.inputs[1].type.size
        if n_indices != 1:
            if not isinstance(x, InMemory) or len(x.view.shape) != 1:
                raise NotSerial(f"it gathers {n_indices} elements")
            indices = self._elements(index, node.inputs[1].type)
            return ShortArray(tuple(self._read(selected_elements(x, i, 0, ())) for i in indices))
        if isinstance(x, ShortArray):
            raise NotSerial("it selects an element of a short array")
        i = self._value(index, "int64")
        if isinstance(x, int):
            return x
        return self._read(selected_elements(x, i, axis, node.output.type.shape))

    def _update(self, operands: list[Any], node: Node) -> Any:
        base, x = operands[:2]
        kind = check_type(node.output.type)
        if isinstance(base, ShortArray):
            return self._updated(base, node, operands)
        if node.inputs[1].type.size != 1:
            return self._update_several(base, x, node, operands)
        value = self._value(x, kind)
        if isinstance(base, int):
            return value
        if node.op is ops.update:
            view = base.view.compose(node.attrs["view"])
            if view is None:
                raise NotSerial("it writes to a view that has no strides")
            return self._store(base._replace(view=view), base, value)
        i, x_type = self._value(operands[2], "int64"), node.inputs[1].type
        return self._store(selected_elements(base, i, node.attrs["axis"], x_type.shape), base, value)

    def _updated(self, base: ShortArray, node: Node, operands: list[Any]) -> ShortArray:
        """Return a short array with other elements."""
        if node.op is not ops.update:
            raise NotSerial("it writes an element of a short array")
        elements = list(base.elements)
        values = self._elements(operands[1], node.inputs[1].type)
        for position, value in zip(positions_of(node.attrs["view"]), values, strict=True):
            elements[position] = value
        return ShortArray(tuple(elements))

    def _update_several(self, base: InMemory, x: Any, node: Node, operands: list[Any]) -> InMemory:
        """Write several elements of an array; return it."""
        view, values = None, node.inputs[1].type
        if node.op is ops.update:
            view = base.view.compose(node.attrs["view"])
            if view is None:
                raise NotSerial("it writes to a view that has no strides")
            if isinstance(x, InMemory) and x._replace(version=0) == base._replace(version=0, view=view):
                return self._written_back(base, x)
            return self._store_all(base._replace(view=view), base, self._elements(x, values))
        if node.inputs[2].type.size != 1:
            raise NotSerial("it writes at several indices")
        elements, i = self._elements(x, values), self._value(operands[2], "int64")
        return self._store_all(selected_elements(base, i, node.attrs["axis"], values.shape), base, elements)

    def _written_back(self, base: InMemory, x: InMemory) -> InMemory:
        """Return `base` with elements replaced by `x`, a version of the same elements."""
        self._check_version(x)
        version = x.version
        while version in self._writes and version != base.version:
            version, written = self._writes[version]
            if written._replace(version=0) != x._replace(version=0):
                break
        if version != base.version:
            raise NotSerial("it writes elements that it has changed in a copy")
        return base._replace(version=x.version)

    # -- branches --------------------------------------------------------------------------------------------

    def _choose(self, node: Node, operands: list[Any]) -> list[Any]:
        which_type = node.inputs[0].type
        which = self._value(operands[0], str(which_type.dtype))
        before = list(self.versions)
        arrays = [k for k, value in enumerate(node.outputs) if self._is_in_memory(node, operands, k)]
        computed = [k for k in range(len(node.outputs)) if k not in arrays]
        ends: list[tuple[list[Any], list[int], list[Any]]] = []  # results, versions and statements
        for branch in node.attrs["branches"]:
            self.versions = list(before)
            with self._block() as statements:
                values = self._graph(branch, operands[1:])
                results = [values[v] for v in branch.outputs]
                for k in computed:
                    results[k] = self._elements(results[k], branch.outputs[k].type)
            ends.append((results, self.versions, statements))
        self.versions = before
        changed = {m for _, versions, _ in ends for m, old in enumerate(before) if versions[m] != old}
        scalars = {k: tuple(self._scalar() for _ in range(node.outputs[k].type.size)) for k in computed}
        lowered: dict[int, Any] = {k: of_elements(each) for k, each in scalars.items()}
        for k in arrays:
            check_same([(values[k], versions) for values, versions, _ in ends], node.outputs[k])
            lowered[k] = ends[0][0][k]
        if not changed <= {lowered[k].memory for k in arrays}:
            raise NotSerial("a branch overwrites elements that are read later")
        branches = tuple(
            StatementBlock(tuple(statements), tuple(each for k in computed for each in values[k]))
            for values, _, statements in ends
        )
        choice = tuple(itertools.chain.from_iterable(scalars.values()))
        self._add(Choose(choice, which, which_type.dtype == np.bool_, branches))
        for memory in changed:
            self.version_count += 1
            self.versions[memory] = self.version_count
        lowered.update((k, lowered[k]._replace(version=self.versions[lowered[k].memory])) for k in arrays)
        return [lowered[k] for k in range(len(node.outputs))]

    def _is_in_memory(self, node: Node, operands: list[Any], k: int) -> bool:
        """Whether result `k` of a `case` is an array in memory in all branches."""
        size = node.outputs[k].type.size
        if not 1 <= size <= MAX_SHORT:
            return True

        def stays(graph: Graph, value: Value, is_input_in_memory: Callable[[int], bool]) -> bool:
            if value in graph.inputs:
                return is_input_in_memory(graph.inputs.index(value))
            if id(graph) not in self._producers:
                self._producers[id(graph)] = producers_of(graph.nodes)
            inner = self._producers[id(graph)][value]
            reshapes = inner.op is ops.view and value.type.size == inner.inputs[0].type.size
            if reshapes or inner.op in (ops.update, ops.scatter):
                return stays(graph, inner.inputs[0], is_input_in_memory)
            if inner.op is not ops.case:
                return inner.op is ops.loop
            position = inner.outputs.index(value)
            return all(
                stays(
                    each,
                    each.outputs[position],
                    lambda i: stays(graph, inner.inputs[1 + i], is_input_in_memory),
                )
                for each in inner.attrs["branches"]
            )

        return size > 1 and all(
            stays(branch, branch.outputs[k], lambda i: isinstance(operands[1 + i], InMemory))
            for branch in node.attrs["branches"]
        )

    # -- loops -----------------------------------------------------------------------------------------------

    def _repeat(self, node: Node, operands: list[Any]) -> list[Any]:
        """Lower a loop; `operands` are the lowered ones, the count first. Return its outputs."""
        attrs = node.attrs
        body: Graph = attrs["body"]
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotSerial(f"it contains more than {MAX_DEPTH} nested loops")
        written, count = targets(body), operands[0]
        iteration, registers = self._scalar(), dict[int, Register]()
        inputs: list[Any] = []
        for i, (value, (start, step)) in enumerate(zip(body.inputs, attrs["moves"], strict=True)):
            operand, kind, type = operands[1 + i], check_type(value.type), value.type
            if type.on_host and step:
                registers[i] = Register(self._scalar(), kind, operand, step=self._integer(step))
            elif is_register(type, node.inputs[1 + i].type, step) and i in written:
                if node.inputs[1 + i].type.size != 1:
                    raise NotSerial("it carries an element of an array")
                registers[i] = Register(self._scalar(), kind, self._value(operand, kind), value=0)
            elif isinstance(operand, InMemory):
                window = window_of(operand, iteration, start, step, type.shape)
                is_constant = type.size == 1 and i not in written and step == 0
                inputs.append(self._value(window, kind) if is_constant else window)
                continue
            elif isinstance(operand, ShortArray) and (
                i in written or step != 0 or type.size != len(operand.elements)
            ):
                raise NotSerial("a loop in it reads parts of a short array, or changes it")
            inputs.append(registers[i].variable if i in registers else operand)
        self._check_distinct(inputs, written)
        for operand in (operands[1 + i] for i in written):
            if isinstance(operand, InMemory):
                self._check_version(operand)
        for i in written:  # their elements differ between the iterations
            inputs[i] = self._changed(inputs[i]) if isinstance(inputs[i], InMemory) else inputs[i]
        before = list(self.versions)
        returned, ends = list[int](), set[int]()
        with self._block() as statements:
            inputs = [
                self._value(x, check_type(v.type)) if v.type.size == 1 and i not in written else x
                for i, (x, v) in enumerate(zip(inputs, body.inputs, strict=True))
            ]
            values = self._graph(body, inputs)
            for i, effect in zip(written, body.effects, strict=True):
                if i in registers:
                    scalar = self._value(values[effect.value], registers[i].dtype)
                    registers[i] = registers[i]._replace(value=len(returned))
                    returned.append(scalar)
                else:
                    ends.add(self._written(inputs[i], values[effect.value], effect.value).memory)
        if not {m for m, old in enumerate(before) if self.versions[m] != old} <= ends:
            raise NotSerial("an iteration overwrites elements that later ones read")
        block = StatementBlock(tuple(statements), tuple(returned))
        positions = {i: position for position, i in enumerate(registers)}
        until = attrs.get("until")
        ending = -1 if until is None else positions[written[until]]
        self._add(Repeat(count, iteration, tuple(registers.values()), block, ending))
        self.depth -= 1
        results: list[Any] = []
        for i in written:
            if i in registers:
                results.append(registers[i].variable)
            else:
                operand = operands[1 + i]
                results.append(operand._replace(version=self.versions[operand.memory]))
        return results

    def _check_distinct(self, inputs: Sequence[Any], written: Sequence[int]) -> None:
        """Raise if an input that iterations write has the memory of another one."""
        memories = [x.memory for x in inputs if isinstance(x, InMemory)]
        for i in written:
            if isinstance(inputs[i], InMemory) and memories.count(inputs[i].memory) > 1:
                raise NotSerial("a loop in it reads elements that another iteration overwrites")

    def _written(self, window: InMemory, result: Any, value: Value) -> InMemory:
        """Return the window with what an iteration stores in it."""
        if not isinstance(result, InMemory):
            current = window._replace(version=self.versions[window.memory])
            return self._store_all(current, current, self._elements(result, value.type))
        if not isinstance(result, InMemory) or result._replace(version=0) != window._replace(version=0):
            raise NotSerial("an iteration copies an array")
        self._check_version(result)
        return result
