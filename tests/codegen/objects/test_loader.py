"""Kernels that one thread makes for all: whatever breaks it off, nobody waits for good."""

import itertools
import sys
import threading

import pytest

from tracejit.codegen.objects.link import Code
from tracejit.codegen.objects.loader import Kernel, Promise

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


def test_who_asks_gets_the_kernel_before_and_after():
    promise = Promise()
    waiters = [wait(promise) for _ in range(5)]
    assert not promise.done()
    promise.keep(KERNEL)
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
        timer = threading.Timer(0.001, promise.keep, [KERNEL])
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
        ended = not broken_off(lambda promise=promise: promise.keep(KERNEL), step)
        if promise.done():
            promise.wake()  # as `load` does
        else:
            promise.keep(KERNEL)
        for waiter in waiters:
            assert_comes(*waiter)
        if ended:
            break
    assert step > 3
