"""Runs kernels for GPUs on the CPU: the same LLVM code, with threads of a GPU as contexts of one thread here.

    kernel = Simulated(draft)                       # of `tracejit.codegen.objects.ptx`
    kernel(block, Launch((3, 1), (8, 1), 256), order=rng)

One block of threads runs at a time. Each of its threads has a stack and a context (`swapcontext`), runs from
one barrier to the next, and then the next one does, in an order that is another one each time: a kernel that
lacks a barrier computes something else. Threads of a kernel without barriers run one after the other. What is
not as it has to be is an error: a thread that ends while others wait at a barrier, and a write behind the
shared memory that the launch asked for.

What of a GPU is not here: caches, warps, the order of memory, time.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import re
import sys

import llvmlite.binding as llvm
import numpy as np
import pytest
from numba.types import int32, int64, void

from tracejit.codegen.objects.build import Draft, EntryPoint, draft, finish
from tracejit.codegen.objects.linker import load
from tracejit.kernels.compiler.memory import external, store
from tracejit.kernels.compiler.memory import load as word
from tracejit.kernels.gpu.target import BODY, TRIPLE
from tracejit.kernels.gpu.words import BARRIER, REGISTERS, SHARED

MAX_THREADS, STACK, CONTEXT = 1024, 1 << 16, 8192
SHARED_BYTES, POISON = 48 << 10, 0xA5

# Words of the state: what `REGISTERS` read, then these.
BLOCK, CURRENT, THREADS, MAIN, CONTEXTS, STACKS, ENDED, ORDER, ROUND = range(
    len(REGISTERS), len(REGISTERS) + 9
)
WORDS = ROUND + 1
TID_X, TID_Y, NTID_X, NTID_Y = range(4)

# Where glibc has the fields of a `ucontext_t`, on x86-64 and aarch64.
LINK, STACK_START, STACK_SIZE = 8, 16, 32

getcontext = external("getcontext", int32(int64))
makecontext = external("makecontext", void(int64, int64, int64))
swapcontext = external("swapcontext", int32(int64, int64))
state = external("simulated_state", int64())
body = external("simulated_body", void())
start_address = external("simulated_start_address", int64())


def start():
    """The life of a thread."""
    body()
    store(word(state() + 8 * ENDED, int64) + 8 * word(state() + 8 * CURRENT, int64), int64(1))


def wait():
    """Go on with the next thread."""
    here = state()
    swapcontext(
        word(here + 8 * CONTEXTS, int64) + word(here + 8 * CURRENT, int64) * CONTEXT,
        word(here + 8 * MAIN, int64),
    )


def run(here):
    """Run one block of threads. Returns 0, or 1 if some threads end while others wait."""
    count, contexts = word(here + 8 * THREADS, int64), word(here + 8 * CONTEXTS, int64)
    ended, order, main = (
        word(here + 8 * ENDED, int64),
        word(here + 8 * ORDER, int64),
        word(here + 8 * MAIN, int64),
    )
    for thread in range(count):
        context = contexts + thread * CONTEXT
        getcontext(context)
        store(context + LINK, main)
        store(context + STACK_START, word(here + 8 * STACKS, int64) + thread * STACK)
        store(context + STACK_SIZE, int64(STACK))
        makecontext(context, start_address(), int64(0))
        store(ended + 8 * thread, int64(0))
    done, turn = int64(0), int64(0)
    while done == 0:
        for k in range(count):
            place = k
            if turn % 2 == 1:
                place = count - 1 - k
            thread = word(order + 8 * ((place + turn) % count), int64)
            store(here + 8 * CURRENT, thread)
            store(here + 8 * TID_X, thread % word(here + 8 * NTID_X, int64))
            store(here + 8 * TID_Y, thread // word(here + 8 * NTID_X, int64))
            swapcontext(main, contexts + thread * CONTEXT)
        for thread in range(count):
            done += word(ended + 8 * thread, int64)
        turn += 1
    return int64(done != count)


def run_apart(here):
    """Run one block of threads that wait for nothing."""
    for k in range(word(here + 8 * THREADS, int64)):
        thread = word(word(here + 8 * ORDER, int64) + 8 * k, int64)
        store(here + 8 * TID_X, thread % word(here + 8 * NTID_X, int64))
        store(here + 8 * TID_Y, thread // word(here + 8 * NTID_X, int64))
        body()
    return int64(0)


RUNTIME = [
    EntryPoint("simulated_start", start, void()),
    EntryPoint("simulated_wait", wait, void()),
    EntryPoint("simulated_run_together", run, int64(int64)),
    EntryPoint("simulated_run_apart", run_apart, int64(int64)),
]


@functools.cache
def runtime() -> Draft:
    """The functions above; they are the same for all kernels."""
    return draft(RUNTIME)


def surroundings(name: str, run: str) -> str:
    """LLVM IR of what joins a kernel and the runtime: the state, shared memory, and the words of a GPU.

    `run`: the function that runs a block of its threads.
    """
    lines = [
        f'target triple = "{llvm.get_process_triple()}"',
        f"@simulated_words = internal global [{WORDS} x i64] zeroinitializer",
        f"@{SHARED} = addrspace(3) global [{SHARED_BYTES} x i8] zeroinitializer, align 16",
        "define i64 @simulated_state() { ret i64 ptrtoint (ptr @simulated_words to i64) }",
        f"define i64 @simulated_shared() {{ ret i64 ptrtoint (ptr addrspace(3) @{SHARED} to i64) }}",
        "declare void @simulated_start()",
        "define i64 @simulated_start_address() { ret i64 ptrtoint (ptr @simulated_start to i64) }",
        "declare void @simulated_wait()",
        f"declare i64 @{run}(i64)",
        "define i64 @simulated_run(i64 %0) {",
        f"  %status = call i64 @{run}(i64 %0)",
        "  ret i64 %status",
        "}",
        "define void @simulated_barrier(i32 %0) { call void @simulated_wait() ret void }",
        f'declare void @"{name}{BODY}"(ptr)',
        "define void @simulated_body() {",
        f"  %block = load ptr, ptr {at(BLOCK)}",
        f'  call void @"{name}{BODY}"(ptr %block)',
        "  ret void",
        "}",
    ]
    for number, register in enumerate(REGISTERS.values()):
        lines += [
            f"define i32 @simulated_{register.replace('.', '_')}() {{",
            f"  %value = load i64, ptr {at(number)}",
            "  %short = trunc i64 %value to i32",
            "  ret i32 %short",
            "}",
        ]
    return "\n".join(lines)


def at(number: int) -> str:
    """The place of a word of the state, in LLVM IR."""
    return f"getelementptr ([{WORDS} x i64], ptr @simulated_words, i64 0, i64 {number})"


def for_the_host(text: str) -> str:
    """LLVM IR of a kernel for GPUs, with what the simulator has in the place of a GPU's words."""
    layout = re.search(r"target datalayout.*", runtime().modules[0])
    text = re.sub(r"target datalayout.*", layout[0] if layout else "", text)
    text = text.replace(TRIPLE, llvm.get_process_triple()).replace(BARRIER, "simulated_barrier")
    for register in REGISTERS.values():
        text = text.replace(f"llvm.nvvm.read.ptx.sreg.{register}", f"simulated_{register.replace('.', '_')}")
    assert "nvvm" not in text, "a word that the simulator does not know"
    return text


def object_code(kernel: Draft) -> bytes:
    """What a simulated GPU loads, in the place of PTX."""
    (name,) = kernel.names
    texts = [for_the_host(text) for text in kernel.modules if f'ptx_kernel void @"{name}"' not in text]
    waits = any("simulated_barrier" in text for text in texts)
    own = surroundings(name, "simulated_run_together" if waits else "simulated_run_apart")
    parts = runtime()
    names = ("simulated_run", "simulated_state", "simulated_shared")
    hidden = (*kernel.hidden, *(n for n in parts.names if n not in names), *parts.hidden)
    return finish(Draft(names, (own, *texts, *parts.modules), hidden)).object_code


@functools.cache
def stacks() -> np.ndarray:
    """Memory for the contexts and stacks of all threads of the one block that runs."""
    return np.empty((MAX_THREADS + 1) * CONTEXT + MAX_THREADS * STACK + 64, np.uint8)


class Simulated:
    """A kernel that runs here."""

    def __init__(self, code: bytes) -> None:
        if sys.platform != "linux":
            pytest.skip("the simulator of GPUs switches between threads by a function of glibc")
        self._code = load("simulated", code, ["simulated_run", "simulated_state", "simulated_shared"])
        addresses = self._code.addresses
        self._run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(addresses["simulated_run"])
        get = ctypes.CFUNCTYPE(ctypes.c_int64)
        self._state = get(addresses["simulated_state"])()
        self._words = np.frombuffer((ctypes.c_int64 * WORDS).from_address(self._state), np.int64)
        shared = get(addresses["simulated_shared"])()
        self._shared = np.frombuffer((ctypes.c_uint8 * SHARED_BYTES).from_address(shared), np.uint8)

    def __call__(self, block, launch, rng=None) -> None:
        """Run all blocks of threads; `block`: the address of the argument block."""
        threads = math.prod(launch.threads)
        assert 1 <= threads <= MAX_THREADS
        assert 0 <= launch.shared <= SHARED_BYTES
        place = -(-stacks().ctypes.data // 64) * 64
        ended = np.zeros(threads, np.int64)
        words = self._words
        words[TID_X : NTID_Y + 1] = 0, 0, *launch.threads
        words[len(REGISTERS) - 2 : len(REGISTERS)] = launch.grid
        words[BLOCK], words[THREADS], words[ENDED] = block, threads, ended.ctypes.data
        words[MAIN], words[CONTEXTS] = place, place + CONTEXT
        words[STACKS] = place + (threads + 1) * CONTEXT
        blocks = list(itertools.product(*map(range, launch.grid)))
        if rng is not None:
            rng.shuffle(blocks)
        self._shared[:] = POISON
        for position in blocks:
            order = np.arange(threads) if rng is None else rng.permutation(threads)
            words[len(REGISTERS) - 4 : len(REGISTERS) - 2] = position
            words[ORDER] = order.ctypes.data
            self._shared[: launch.shared] = POISON
            assert self._run(self._state) == 0, "some threads of a block ended while others wait at a barrier"
            if launch.shared or not position[0]:
                intact = (self._shared[launch.shared :] == POISON).all()
                assert intact, "a write behind a block's shared memory"
