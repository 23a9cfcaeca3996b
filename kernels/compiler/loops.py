"""Interleaving of loops whose iterations are independent.

LLVM turns 16 iterations of a float32 loop into one vector iteration, and interleaves several of these in
reductions. In a loop that only reads, computes and stores it does not: out-of-order execution is expected to
overlap iterations. Generated loops are long, hundreds of instructions with divisions among them, and two
iterations hardly fit the reorder buffer. Interleaving two of them keeps the execution units busy.

    for i in range(a, b):
        v0 = x0[i]
        v1 = tanh(v0)
        x1[i] = v1        # stores: two vectors at a time

Before it vectorises, LLVM must know that no iteration writes what another one reads. It compares all pointers
at run time if they are few; with more than about ten it does not vectorise. A loop over
`tracejit.kernels.compiler.ranges.independent` needs no such check: all accesses of the function are one
*access group*, which the loop declares free of loop-carried dependences.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba.core import errors, lowering
from numba.core import ir as numba_ir

from tracejit.kernels.compiler.ranges import Counter

VECTORS = 2
"""The interleave count."""


class LoopLowering(lowering.Lower):
    """Numba's lowering, with loop metadata for each loop that stores and carries no value."""

    def lower_block(self, block: Any) -> None:
        """Lower all statements; what to say of an error is prepared only where there is one, unlike Numba's
        own method.
        """
        self.pre_block(block)
        for statement in block.body:
            self.loc = statement.loc
            try:
                self.lower_inst(statement)
            except Exception:
                kind = functools.partial(errors.LoweringError, loc=self.loc)
                message = 'lowering "{inst}" at {loc}'
                with errors.new_error_context(message, inst=statement, loc=self.loc, errcls_=kind):
                    raise
        self.post_block(block)

    def post_block(self, block: Any) -> None:
        """Attach the loop's metadata to the back edge, if this block ends in one."""
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
        """The offset in the bytecode at which each block begins."""
        return {id(block): label for label, block in self.blocks.items()}

    def lower_function_body(self) -> Any:
        """Lower all blocks; then put every memory access into the access group, if a loop names it."""
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
        if isinstance(block.terminator, numba_ir.Jump):  # the preheader
            block = self.blocks[block.terminator.target]
        kinds = [self.typeof(step.value.name) for step in block.find_exprs("iternext")]
        return any(isinstance(kind, Counter) and kind.independent for kind in kinds)


def _stores(block: Any) -> bool:
    return any(isinstance(s, numba_ir.SetItem | numba_ir.StaticSetItem) for s in block.body)


def _carries(block: Any) -> bool:
    """Whether a block assigns a variable that it has read before: an accumulator."""
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
    """A distinct, empty metadata node."""

    def descr(self, buf: list[str]) -> None:
        """The node as text."""
        buf += ["distinct !{}", "\n"]


def _fact(module: ir.Module, name: str, value: ir.Value) -> ir.MDValue:
    """A metadata node that states a property of a loop."""
    return module.add_metadata([ir.MetaDataString(module, name), value])


def _loop(module: ir.Module, facts: list[ir.MDValue]) -> ir.MDValue:
    """The metadata node of a loop; its first operand is the node itself, which makes it distinct."""
    node = ir.MDValue(module, facts, name=str(len(module.metadata)))
    node.operands = (node, *facts)
    return node
