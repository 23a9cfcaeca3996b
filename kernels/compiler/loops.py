"""Loop metadata for LLVM: the interleave count, and the absence of loop-carried dependences.

LLVM turns 16 iterations of a float32 loop into one vector iteration, and interleaves several vector
iterations of a reduction. It does not interleave a loop that only loads, computes and stores, because
out-of-order execution is expected to overlap its iterations. Generated loops are long, hundreds of
instructions with divisions among them, and two iterations hardly fit the reorder buffer. Interleaving two
vector iterations keeps the execution units busy.

    for i in range(a, b):
        v0 = x0[i]
        v1 = tanh(v0)
        x1[i] = v1        # stores: two vectors at a time

To vectorise a loop, LLVM must prove that no iteration writes memory that another one reads. It compares the
pointers at run time if there are few; with more than about ten it does not vectorise. A loop over
`tracejit.kernels.compiler.ranges.independent` needs no such check: all memory accesses of the function belong
to one *access group*, which the loop declares free of loop-carried dependences.
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
    """Numba's lowering with loop metadata.

    An interleave count is attached to each loop whose last block stores and updates no accumulator.
    """

    is_inlined = True  # whether LLVM may inline the function

    def setup_function(self, descriptor: Any) -> None:
        """Create the LLVM function."""
        super().setup_function(descriptor)
        if not self.is_inlined:
            self.function.attributes.add("noinline")

    def lower_block(self, block: Any) -> None:
        """Lower all statements; unlike Numba's own method, describe a statement only if it has an error."""
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

    def lower_inst(self, statement: Any) -> None:
        """Lower a statement; unlike Numba's own method, do not format assignments for debugging output."""
        if isinstance(statement, numba_ir.Assign):
            name = statement.target.name
            self.storevar(self.lower_assign(self.typeof(name), statement), name)
        else:
            super().lower_inst(statement)

    def lower_binop(self, result_type: Any, expression: Any, operator: Any) -> ir.Value:
        """Lower an operator; unlike Numba's own method, do not try implementations for constant operands
        first: only Numba's rewriting of constants, which kernels skip, declares operands as constant.
        """
        context, builder = self.context, self.builder
        function = context.typing_context.resolve_value_type(operator)
        signature = self.fndesc.calltypes[expression]
        operands = [
            context.cast(builder, self.loadvar(operand.name), self.typeof(operand.name), kind)
            for operand, kind in zip((expression.lhs, expression.rhs), signature.args, strict=True)
        ]
        signature = function.get_call_type(context.typing_context, signature.args, {})
        result = context.get_function(function, signature)(builder, operands)
        return context.cast(builder, result, signature.return_type, result_type)

    def storevar(self, value: ir.Value, name: str, argidx: int | None = None) -> None:
        """Store a variable; unlike Numba's own method, do not load the old value to release it."""
        self._alloca_var(name, self.typeof(name))
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))

    def post_block(self, block: Any) -> None:
        """Attach the loop's metadata to the back edge, if this block ends in one."""
        jump = block.terminator
        if not isinstance(jump, numba_ir.Jump) or jump.target >= self._labels[id(block)]:
            return
        properties = []
        if _stores(block) and not _has_accumulator(block):
            count = ir.Constant(ir.IntType(32), VECTORS)
            properties.append(_loop_property(self.module, "llvm.loop.interleave.count", count))
        if self._is_independent(jump.target):
            properties.append(_loop_property(self.module, "llvm.loop.parallel_accesses", self._access_group))
        if properties:
            self.builder.block.terminator.set_metadata("llvm.loop", _loop_node(self.module, properties))

    @functools.cached_property
    def _labels(self) -> dict[int, int]:
        """The offset in the bytecode at which each block begins."""
        return {id(block): label for label, block in self.blocks.items()}

    def lower_function_body(self) -> Any:
        """Lower all blocks; then put every memory access into the access group, if a loop refers to it."""
        result = super().lower_function_body()
        if "_access_group" in vars(self):
            for block in self.function.blocks:
                for instruction in block.instructions:
                    if isinstance(instruction, ir.LoadInstr | ir.StoreInstr):
                        instruction.set_metadata("llvm.access.group", self._access_group)
        return result

    @functools.cached_property
    def _access_group(self) -> ir.MDValue:
        """The access group of the function, created by the first loop that refers to it."""
        return AccessGroup(self.module, [], name=str(len(self.module.metadata)))

    def _is_independent(self, header: int) -> bool:
        """Whether the loop with the block `header` iterates over an `independent` range."""
        block = self.blocks[header]
        if isinstance(block.terminator, numba_ir.Jump):  # the preheader
            block = self.blocks[block.terminator.target]
        kinds = [self.typeof(step.value.name) for step in block.find_exprs("iternext")]
        return any(isinstance(kind, Counter) and kind.independent for kind in kinds)


def _stores(block: Any) -> bool:
    return any(isinstance(s, numba_ir.SetItem | numba_ir.StaticSetItem) for s in block.body)


def _has_accumulator(block: Any) -> bool:
    """Whether a block assigns a variable after reading it: a loop-carried value."""
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
        """Append the node's text to `buf`."""
        buf += ["distinct !{}", "\n"]


def _loop_property(module: ir.Module, name: str, value: ir.Value) -> ir.MDValue:
    """Create a metadata node that states a property of a loop."""
    return module.add_metadata([ir.MetaDataString(module, name), value])


def _loop_node(module: ir.Module, properties: list[ir.MDValue]) -> ir.MDValue:
    """Create the metadata node of a loop; its first operand is the node itself, which makes it distinct."""
    node = ir.MDValue(module, properties, name=str(len(module.metadata)))
    node.operands = (node, *properties)
    return node
