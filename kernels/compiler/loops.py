"""Loops whose iterations do not wait for one another, side by side.

LLVM turns 16 iterations of a float32 loop into one of vectors, and takes several of these at a time where it
adds up. In a loop that only reads, computes and stores it takes one: a processor, it supposes, finds the next
one by itself. Ours are long, though, hundreds of instructions with divisions among them, of which a processor
sees hardly two iterations at once; with two of them mixed it always has something to do.

    for i in range(a, b):
        v0 = x0[i]
        v1 = tanh(v0)
        x1[i] = v1        # stores: two vectors at a time

Before it takes several iterations at a time LLVM must know that none writes what another one reads. It
compares all pointers at run time, as long as they are few; with more than about ten it gives up. In a loop
over `tracejit.kernels.compiler.ranges.independent` it need not: all accesses of the function are one *access
group*, and the loop says that within it those of this group do not depend on one another.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba.core import ir as numba_ir
from numba.core import lowering

from tracejit.kernels.compiler.ranges import Counter

VECTORS = 2
"""How many of them are computed side by side."""


class Loops(lowering.Lower):
    """Numba's IR to LLVM's, with a hint at the end of each loop that stores and carries nothing along."""

    def post_block(self, block: Any) -> None:
        """After the last instruction of a block: the jump back to a loop's beginning carries the hint."""
        jump = block.terminator
        if not isinstance(jump, numba_ir.Jump) or jump.target >= self._labels[id(block)]:
            return
        facts = []
        if _stores(block) and not _carries(block):
            count = ir.Constant(ir.IntType(32), VECTORS)
            facts.append(_fact(self.module, "llvm.loop.interleave.count", count))
        if self._is_independent(jump.target):
            facts.append(_fact(self.module, "llvm.loop.parallel_accesses", self._access_group))
        if facts:
            self.builder.block.terminator.set_metadata("llvm.loop", _loop(self.module, facts))

    @functools.cached_property
    def _labels(self) -> dict[int, int]:
        """Where each block begins in the bytecode."""
        return {id(block): label for label, block in self.blocks.items()}

    def lower_function_body(self) -> Any:
        """All blocks; then every access to memory enters the group, if a loop has named it."""
        result = super().lower_function_body()
        if "_access_group" in vars(self):
            for block in self.function.blocks:
                for instruction in block.instructions:
                    if isinstance(instruction, ir.LoadInstr | ir.StoreInstr):
                        instruction.set_metadata("llvm.access.group", self._access_group)
        return result

    @functools.cached_property
    def _access_group(self) -> ir.MDValue:
        return AccessGroup(self.module, [], name=str(len(self.module.metadata)))

    def _is_independent(self, header: int) -> bool:
        """Whether a loop that begins with the block `header` goes over an `independent` range."""
        block = self.blocks[header]
        if isinstance(block.terminator, numba_ir.Jump):  # nothing but the way into the loop
            block = self.blocks[block.terminator.target]
        kinds = [self.typeof(step.value.name) for step in block.find_exprs("iternext")]
        return any(isinstance(kind, Counter) and kind.independent for kind in kinds)


def _stores(block: Any) -> bool:
    return any(isinstance(s, numba_ir.SetItem | numba_ir.StaticSetItem) for s in block.body)


def _carries(block: Any) -> bool:
    """Whether a block assigns what it has read before: an accumulator."""
    read: set[str] = set()
    for assignment in block.find_insts(numba_ir.Assign):
        value = assignment.value
        if isinstance(value, numba_ir.Var):
            read.add(value.name)
        elif isinstance(value, numba_ir.Expr):
            read.update(variable.name for variable in value.list_vars())
        if assignment.target.name in read:
            return True
    return False


class AccessGroup(ir.MDValue):
    """A node that holds nothing and equals no other one."""

    def descr(self, buf: list[str]) -> None:
        """The node as text."""
        buf += ["distinct !{}", "\n"]


def _fact(module: ir.Module, name: str, value: ir.Value) -> ir.MDValue:
    """A node that says something about a loop."""
    return module.add_metadata([ir.MetaDataString(module, name), value])


def _loop(module: ir.Module, facts: list[ir.MDValue]) -> ir.MDValue:
    """A node that names one loop: LLVM knows it by its first operand, which is the node itself."""
    node = ir.MDValue(module, facts, name=str(len(module.metadata)))
    node.operands = (node, *facts)
    return node
