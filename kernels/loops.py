"""Loops whose iterations do not wait for one another, side by side.

LLVM turns 16 iterations of a float32 loop into one of vectors, and takes several of these at a time where it
adds up. In a loop that only reads, computes and stores it takes one: a processor, it supposes, finds the next
one by itself. Ours are long, though, hundreds of instructions with divisions among them, of which a processor
sees hardly two iterations at once; with two of them mixed it always has something to do.

    for i in range(a, b):
        v0 = x0[i]
        v1 = tanh(v0)
        x1[i] = v1        # stores: two vectors at a time
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import ir as numba_ir
from numba.core import lowering

VECTORS = 2
"""How many of them are computed side by side."""


class Loops(lowering.Lower):
    """Numba's IR to LLVM's, with a hint at the end of each loop that stores and carries nothing along."""

    def post_block(self, block: Any) -> None:
        """After the last instruction of a block: the jump back to a loop's beginning carries the hint."""
        jump = block.terminator
        if not isinstance(jump, numba_ir.Jump) or self.blocks[jump.target].loc.line > block.loc.line:
            return
        if _stores(block) and not _carries(block):
            self.builder.block.terminator.set_metadata("llvm.loop", _hint(self.module))


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


def _hint(module: ir.Module) -> ir.MDValue:
    """A node that names one loop: LLVM knows it by its first operand, which is the node itself."""
    name = ir.MetaDataString(module, "llvm.loop.interleave.count")
    count = module.add_metadata([name, ir.Constant(ir.IntType(32), VECTORS)])
    node = ir.MDValue(module, [count], name=str(len(module.metadata)))
    node.operands = (node, count)
    return node
