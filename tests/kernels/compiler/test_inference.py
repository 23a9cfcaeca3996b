"""Type inference of kernels (`tracejit.kernels.compiler.inference`), against Numba's own."""

import pytest
from llvmlite.binding import ffi
from numba import float64, int64
from numba.core.errors import TypingError
from numba.core.typed_passes import type_inference_stage

from tracejit.codegen.objects import build
from tracejit.kernels.compiler import inference, target
from tracejit.kernels.compiler.memory import number_slot, pointer_slot
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.executor.entry_points import ENTRIES
from tracejit.kernels.library.table import LIBRARY


def straight(a, b):
    c = a + 2 * b
    return min(c, a) - (c < b)


def turns_real(a, b):
    x = 0
    for i in range(a):
        x = x + b * 0.5
        x = x if x > i else i
    return x


def handed_on(a, b):
    first, second, third = 0, 1, 2
    while a > 0:
        first, second, third = second, third, first * 1.5 + b
        a -= 1
    return first + second


def two_kinds(a, b):
    x = a
    if a > b:
        x = (a, b)
    return x


def kernel(block, lo, hi, scratch):
    x, y = pointer_slot(block, 0, float64), pointer_slot(block, 1, float64)
    scale = number_slot(block, 2, float64)
    best = 0.0
    for i in independent(lo, hi):
        value = scale * x[i]
        best += value
        y[i] = value
    y[hi] = best
    return 0


WORDS = int64(int64, int64)
FUNCTIONS = [
    (straight, WORDS),
    (turns_real, float64(int64, int64)),
    (handed_on, float64(int64, float64)),
    (kernel, build.KERNEL),
    *[
        (LIBRARY[name], build.KERNEL)
        for name in (("gemm", "float32"), ("copy", "uint8"), ("scatter_add", "float64"))
    ],
]


@pytest.fixture
def compared(monkeypatch):
    """Every inference is repeated by Numba; how many there were."""
    counted = []

    def both(state):
        given = state.return_type
        inference.infer(state)
        types, result, calls, _ = type_inference_stage(
            state.typingctx, state.targetctx, state.func_ir, state.args, given
        )
        assert state.typemap == types
        assert state.return_type == result
        assert state.calltypes == calls
        counted.append(state)

    monkeypatch.setattr(target, "infer", both)
    return counted


@pytest.mark.parametrize(("function", "signature"), FUNCTIONS, ids=lambda f: getattr(f, "__name__", ""))
def test_types_are_those_of_numba(compared, function, signature):
    target.translate(function, signature, "function")
    assert compared


def test_a_constraint_is_evaluated_again_only_for_a_reason(monkeypatch):
    asked = []
    evaluate = inference._StatementConstraints.propagate

    def propagate(constraints, of):
        asked.append(constraints)
        return evaluate(constraints, of)

    monkeypatch.setattr(inference._StatementConstraints, "propagate", propagate)
    target.translate(straight, WORDS, "function")
    assert len(set(asked)) == len(asked) > 5
    asked.clear()
    target.translate(handed_on, float64(int64, float64), "function")
    assert len(set(asked)) < len(asked) < 3 * len(set(asked))


def test_errors_are_those_of_numba(monkeypatch):
    with pytest.raises(TypingError, match="Cannot unify"):
        target.translate(two_kinds, WORDS, "function")
    with pytest.raises(TypingError, match="No implementation of function"):
        target.translate(lambda a, b: a @ b, WORDS, "function")


def test_the_front_ends_never_ask_llvm(monkeypatch):
    """LLVM has one lock, which its own part of a compile holds for as long as it works."""
    build.draft([build.EntryPoint("kernel", kernel, build.KERNEL)])

    def enter(lock):
        raise AssertionError("this would wait")

    with monkeypatch.context() as patch:
        patch.setattr(ffi._LLVMLock, "__enter__", enter)
        for function, signature in FUNCTIONS:
            build.draft([build.EntryPoint("function", function, signature)])
        build.draft([build.EntryPoint("kernel", LIBRARY["gemm", "float64"])])  # with subroutines not used yet
        build.draft([build.EntryPoint(*entry) for entry in ENTRIES])
        with pytest.raises(AssertionError, match="would wait"):
            build.finish(build.draft([build.EntryPoint("kernel", kernel, build.KERNEL)]))
