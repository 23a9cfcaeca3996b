"""Tasks in Python: callbacks, NumPy routines, and operators between ranks. Their argument blocks contain
the operands.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from tracejit.engine.hosts import OperatorError, has_communication_task
from tracejit.errors import PeerError, TracejitError
from tracejit.ir.evaluate import evaluate_node
from tracejit.ir.graph import Node, Value
from tracejit.ir.types import ArrayType
from tracejit.ops.communicate import COLLECTIVE, agree, transport


class Callback:
    """Calls a Python function with copies of arrays and numbers, which it reads through an argument block."""

    def __init__(self, function: Callable[..., object], operands: Sequence[Value]):
        self._function = function
        self._types = [v.type for v in operands]

    def __call__(self, block: int) -> None:
        self._function(*[_memory(type, block + 8 * i).copy() for i, type in enumerate(self._types)])


class Routine:
    """Evaluates an operator with NumPy on the memory of its operands, located through an argument block."""

    def __init__(self, node: Node):
        self._node = node

    def __call__(self, block: int) -> None:
        node = self._node
        operands = (*node.inputs, *node.outputs)
        arrays = [_memory(value.type, block + 8 * slot) for slot, value in enumerate(operands)]
        n_inputs = len(node.inputs)
        try:
            with np.errstate(all="ignore"):
                results = evaluate_node(node, arrays[:n_inputs])
        except TracejitError as error:
            raise OperatorError(error) from None
        for out, result in zip(arrays[n_inputs:], results, strict=True):
            np.copyto(out, result, casting="no")


class Communication:
    """Begins an operator between ranks, on the communication thread, and then moves bytes until another
    operator is to begin. It also runs in failed launches, because the other ranks wait for it.
    """

    def __init__(self, node: Node, plan: object = None):
        """plan: the record by which machine code begins and ends the operator instead, in the common case."""
        self.node, self._plan = node, plan

    def __call__(self, block: int, failure: BaseException | None, done: Callable[..., object]) -> None:
        node, channel, end = self.node, transport(), self._end(done)
        if node.op is agree:
            channel.agree(node, failure, end)
        else:
            channel.post(node, *self._arrays(block), self._tag(block), end)
        channel.progress(has_communication_task)

    def resume(
        self, begun: object, block: int, failure: BaseException | None, done: Callable[..., object]
    ) -> None:
        """Continue an operator that machine code has begun."""
        _, results = self._arrays(block)
        transport().resume(self.node, begun, results, self._tag(block), self._end(done))

    def _end(self, done: Callable[..., object]) -> Callable[[BaseException | None], None]:
        """Return the function that ends the task."""

        def end(error: BaseException | None) -> None:
            torn = isinstance(error, PeerError) and error.out_of_step
            done(OperatorError(error, torn) if isinstance(error, TracejitError) else error)

        return end

    def _arrays(self, block: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the operands and the results, as arrays on their memory."""
        operands, n_inputs = (*self.node.inputs, *self.node.outputs), len(self.node.inputs)
        arrays = [_memory(value.type, block + 8 * slot) for slot, value in enumerate(operands)]
        return arrays[:n_inputs], arrays[n_inputs:]

    def _tag(self, block: int) -> int:
        """Return the number of the operation among the collective ones."""
        if self.node.op not in COLLECTIVE:
            return 0
        n_operands = len(self.node.inputs) + len(self.node.outputs)
        return ctypes.c_int64.from_address(block + 8 * n_operands).value


def _memory(type: ArrayType, slot: int) -> np.ndarray:
    """Return the array of this type that a slot points to, without a copy, or the number in the slot."""
    start = slot if type.on_host else ctypes.c_int64.from_address(slot).value
    return np.ndarray(type.shape, type.dtype, memoryview((ctypes.c_char * type.nbytes).from_address(start)))
