"""Tasks in Python: callbacks, routines of NumPy's, operators between ranks. Blocks hold their operands."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from tracejit.engine.hosts import OperatorError, communication_is_wanted
from tracejit.errors import PeerError, TracejitError
from tracejit.ir.evaluate import evaluate_node
from tracejit.ir.graph import Node, Value
from tracejit.ir.types import ArrayType
from tracejit.ops.communicate import COLLECTIVE, agree, transport


class Callback:
    """Calls a Python function with copies of arrays and numbers, which it finds through an argument block."""

    def __init__(self, function: Callable[..., object], operands: Sequence[Value]):
        self._function = function
        self._types = [v.type for v in operands]

    def __call__(self, block: int) -> None:
        self._function(*[_memory(type, block + 8 * i).copy() for i, type in enumerate(self._types)])


class Routine:
    """Runs NumPy's meaning of an operator on the memory of its operands, found through an argument block."""

    def __init__(self, node: Node):
        self._node = node

    def __call__(self, block: int) -> None:
        node = self._node
        operands = (*node.inputs, *node.outputs)
        arrays = [_memory(value.type, block + 8 * slot) for slot, value in enumerate(operands)]
        count = len(node.inputs)
        try:
            with np.errstate(all="ignore"):
                results = evaluate_node(node, arrays[:count])
        except TracejitError as error:
            raise OperatorError(error) from None
        for out, result in zip(arrays[count:], results, strict=True):
            np.copyto(out, result, casting="no")


class Communication:
    """Begins an operator between ranks, on the thread of communication, and moves bytes until there is
    another one to begin. It runs in failed launches, too: the other ranks wait for it.
    """

    def __init__(self, node: Node, plan: object = None):
        """plan: the record by which machine code begins and ends it instead, in the common case."""
        self.node, self._plan = node, plan

    def __call__(self, block: int, failure: BaseException | None, done: Callable[..., object]) -> None:
        node, carrier, end = self.node, transport(), self._end(done)
        if node.op is agree:
            carrier.agree(node, failure, end)
        else:
            carrier.post(node, *self._arrays(block), self._tag(block), end)
        carrier.progress(communication_is_wanted)

    def resume(
        self, begun: object, block: int, failure: BaseException | None, done: Callable[..., object]
    ) -> None:
        """Go on with what machine code has begun."""
        _, results = self._arrays(block)
        transport().resume(self.node, begun, results, self._tag(block), self._end(done))

    def _end(self, done: Callable[..., object]) -> Callable[[BaseException | None], None]:
        """The function that ends the task."""

        def end(error: BaseException | None) -> None:
            torn = isinstance(error, PeerError) and error.out_of_step
            done(OperatorError(error, torn) if isinstance(error, TracejitError) else error)

        return end

    def _arrays(self, block: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The operands and the results, on the memory itself."""
        operands, count = (*self.node.inputs, *self.node.outputs), len(self.node.inputs)
        arrays = [_memory(value.type, block + 8 * slot) for slot, value in enumerate(operands)]
        return arrays[:count], arrays[count:]

    def _tag(self, block: int) -> int:
        """The number of the operation among the collective ones."""
        if self.node.op not in COLLECTIVE:
            return 0
        count = len(self.node.inputs) + len(self.node.outputs)
        return ctypes.c_int64.from_address(block + 8 * count).value


def _memory(type: ArrayType, slot: int) -> np.ndarray:
    """The array of this type that a slot points to, without a copy, or the number in it."""
    start = slot if type.on_host else ctypes.c_int64.from_address(slot).value
    return np.ndarray(type.shape, type.dtype, memoryview((ctypes.c_char * type.nbytes).from_address(start)))
