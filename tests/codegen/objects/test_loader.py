"""Kernels that one thread makes for all: whatever breaks it off, nobody waits for good."""

import itertools
import os
import shutil
import subprocess
import sys
import threading

import pytest

from tracejit.assembly.link import EXECUTOR
from tracejit.assembly.loops import LOOP
from tracejit.codegen.objects import loader
from tracejit.codegen.objects.linker import Code
from tracejit.codegen.objects.loader import Kernel, Promise, forget, load
from tracejit.config import config

KERNEL = Kernel("k", "key", "", "compiled", 0.0, 4, Code({"kernel": 1}, None))
PATIENCE = 20  # seconds


class BrokenOffError(Exception):
    pass


def broken_off(function, step):
    """Call `function`, with an exception at its event number `step`; whether there was one."""
    left = [step]

    def trace(frame, event, argument):
        left[0] -= 1
        if left[0] == 0:
            raise BrokenOffError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except BrokenOffError:
        return True
    finally:
        sys.settrace(before)
    return False


def wait(promise):
    """A thread that waits for `promise`, and the list for what it gets."""
    got = []
    thread = threading.Thread(target=lambda: got.append(promise.result()), daemon=True)
    thread.start()
    return thread, got


def assert_comes(thread, got):
    thread.join(PATIENCE)
    assert got == [KERNEL]


def test_one_structure_is_loaded_once():
    forget()
    (first, origin), (second, again), (third, _) = load([EXECUTOR, EXECUTOR, LOOP])
    assert first is second
    assert origin in ("loaded", "compiled")
    assert again == "memory"
    assert third is not first


def test_who_asks_gets_the_kernel_before_and_after():
    promise = Promise()
    waiters = [wait(promise) for _ in range(5)]
    assert not promise.done()
    promise.fulfil(KERNEL)
    assert promise.done()
    for waiter in [*waiters, wait(promise)]:
        assert_comes(*waiter)


def test_who_asks_gets_the_error():
    promise = Promise()
    promise.fail(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        promise.result()


def test_a_wait_that_is_broken_off_stops_nobody_else():
    for step in itertools.count(1):
        promise = Promise()
        timer = threading.Timer(0.001, promise.fulfil, [KERNEL])
        timer.start()
        ended = not broken_off(promise.result, step)
        assert_comes(*wait(promise))
        timer.join()
        if ended:
            break
    assert step > 5


def test_a_maker_that_is_broken_off_is_heard_again():
    for step in itertools.count(1):
        promise = Promise()
        waiters = [wait(promise) for _ in range(2)]
        ended = not broken_off(lambda promise=promise: promise.fulfil(KERNEL), step)
        if promise.done():
            promise.wake()  # as `load` does
        else:
            promise.fulfil(KERNEL)
        for waiter in waiters:
            assert_comes(*waiter)
        if ended:
            break
    assert step > 3


FORK_WHILE_A_THREAD_COMPILES = """
import os, threading, sys, gc
import tracejit as tj
from tracejit.codegen.objects import loader

foreign, inside, forked = threading.Lock(), threading.Event(), threading.Event()
drafted = loader._drafted

def needs_a_foreign_lock(recipe):
    if threading.current_thread() is not threading.main_thread():
        inside.set()
        forked.wait(60) if {needs_the_fork} else None
        with foreign:
            pass
    return drafted(recipe)

loader._drafted = needs_a_foreign_lock
os.register_at_fork(before=foreign.acquire, after_in_parent=foreign.release, after_in_child=foreign.release)

@tj.jit
def step(x):
    return tj.tanh(tj.cumulative_sum(x, axis=1) + 64).sum()

def work():
    return float(step(tj.ones((64, 64)))), float((tj.ones((64, 64)) * 2.0).sum())

usual = gc.isenabled(), sys.getswitchinterval()
thread = threading.Thread(target={target})
thread.start()
assert inside.wait(60)
child = os.fork()
if child == 0:
    code = 1
    try:
        code = 0 if work() == (4096.0, 8192.0) and (gc.isenabled(), sys.getswitchinterval()) == usual else 2
    finally:
        os._exit(code)
forked.set()
status = os.waitpid(child, 0)[1]
thread.join()
print(status, work())
"""


def run(program, store):
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "TRACEJIT_CACHE_DIR": str(store)},
    )


@pytest.fixture(scope="module")
def executor_only(tmp_path_factory):
    """A store that has the executor."""
    store = tmp_path_factory.mktemp("executor")
    assert run("import tracejit as tj; tj.engine.start()", config.store).stderr == ""
    shutil.copy(config.store / f"{loader._key(EXECUTOR)}.kernel", store)
    return store


@pytest.mark.parametrize(
    ("target", "needs_the_fork"),
    [
        ("work", False),
        ("work", True),
        ("lambda: float(tj.exp(tj.ones((64, 64)) + 1).sum())", True),
        ("tj.engine.start", True),
    ],
)
def test_a_fork_does_not_wait_for_a_compile(tmp_path, executor_only, target, needs_the_fork):
    """Fork hooks of other libraries, such as `logging`, hold locks; the child compiles for itself."""
    if target != "tj.engine.start":  # there the thread compiles the executor
        shutil.copytree(executor_only, tmp_path, dirs_exist_ok=True)
    program = FORK_WHILE_A_THREAD_COMPILES.format(target=target, needs_the_fork=needs_the_fork)
    done = run(program, tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("0 (4096.0, 8192.0)", "")
