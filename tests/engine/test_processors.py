"""A worker is taken off the processor of the thread that wakes it, and may use it again when it runs."""

import ctypes
import os
import sys
import threading

import pytest

from tests.engine.programs import compiled
from tracejit.codegen.objects.build import EntryPoint
from tracejit.engine.native import Record
from tracejit.kernels.executor.layout import (
    ENGINE_BYTES,
    ENGINE_CROWDED,
    THREAD_BYTES,
    THREAD_EXCLUDED,
    THREAD_PROCESSOR,
    THREAD_SYSTEM,
)

if not sys.platform.startswith("linux"):
    pytest.skip("only Linux says which processor a thread is on", allow_module_level=True)

from numba import types

from tracejit.kernels.executor import threads as executor_threads

HERE = sorted(os.sched_getaffinity(0))


def keep_apart(engine, thread):
    executor_threads.keep_apart(engine, thread)


def restore_affinity(engine, thread):
    executor_threads.restore_affinity(engine, thread)


@pytest.fixture(scope="module")
def native():
    """The two subroutines, callable."""
    signature = types.void(types.int64, types.int64)
    entries = [
        EntryPoint("keep_apart", keep_apart, signature),
        EntryPoint("restore_affinity", restore_affinity, signature),
    ]
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
    return {name: kind(address) for name, address in compiled("processors", entries).items()}


class Other:
    """A thread that waits until it shall run a function, and its record."""

    def __init__(self):
        self.engine, self.record = Record(ENGINE_BYTES), Record(THREAD_BYTES)
        self.ask, self.answer, self.job = threading.Event(), threading.Event(), None
        self.python = threading.Thread(target=self.live, daemon=True)
        self.python.start()
        self.number = self.run(threading.get_native_id)
        self.record.words[THREAD_SYSTEM >> 3] = self.number

    def live(self):
        while True:
            self.ask.wait()
            self.ask.clear()
            self.result = self.job()
            self.answer.set()

    def run(self, job):
        self.job = job
        self.answer.clear()
        self.ask.set()
        assert self.answer.wait(10)
        return self.result

    def may_use(self):
        return os.sched_getaffinity(self.number)


@pytest.fixture
def on_first():
    """This thread is on the first of its processors."""
    os.sched_setaffinity(0, HERE[:1])
    yield HERE[0]
    os.sched_setaffinity(0, HERE)


several = pytest.mark.skipif(len(HERE) < 2, reason="there is one processor only")


@several
def test_a_worker_leaves_and_may_come_back(native, on_first):
    other = Other()
    os.sched_setaffinity(other.number, HERE)
    other.record.words[THREAD_PROCESSOR >> 3] = on_first
    native["keep_apart"](other.engine.address, other.record.address)
    assert other.may_use() == set(HERE) - {on_first}
    other.run(lambda: native["restore_affinity"](other.engine.address, other.record.address))
    assert other.may_use() == set(HERE)
    assert other.record.words[THREAD_EXCLUDED >> 3] == 0
    os.sched_setaffinity(other.number, HERE[1:])
    other.run(lambda: native["restore_affinity"](other.engine.address, other.record.address))
    assert other.may_use() == set(HERE[1:])  # nobody took it off one


@several
def test_who_is_elsewhere_stays(native, on_first):
    other = Other()
    os.sched_setaffinity(other.number, HERE)
    other.record.words[THREAD_PROCESSOR >> 3] = HERE[1]
    native["keep_apart"](other.engine.address, other.record.address)
    assert other.may_use() == set(HERE)


@several
def test_threads_of_users_stay(native, on_first):
    other = Other()
    os.sched_setaffinity(other.number, HERE)
    other.record.words[THREAD_PROCESSOR >> 3] = on_first
    other.record.words[THREAD_SYSTEM >> 3] = 0
    native["keep_apart"](other.engine.address, other.record.address)
    assert other.may_use() == set(HERE)


@several
def test_a_worker_stays_where_other_ranks_have_the_processors(native, on_first):
    other = Other()
    os.sched_setaffinity(other.number, HERE)
    other.record.words[THREAD_PROCESSOR >> 3] = on_first
    other.engine.words[ENGINE_CROWDED >> 3] = 1
    native["keep_apart"](other.engine.address, other.record.address)
    assert other.may_use() == set(HERE)


def test_who_has_nowhere_else_to_go_stays(native, on_first):
    other = Other()
    os.sched_setaffinity(other.number, HERE[:1])
    other.record.words[THREAD_PROCESSOR >> 3] = on_first
    native["keep_apart"](other.engine.address, other.record.address)
    assert other.may_use() == {on_first}
    assert other.record.words[THREAD_EXCLUDED >> 3] == 0


def test_systems_that_do_not_say_where_threads_are():
    """What stands in for all this there compiles, and does nothing."""
    processor, stay, do_nothing = executor_threads.elsewhere()

    def probe(engine, thread):
        stay(engine, thread)
        do_nothing(engine, thread)
        return processor()

    signature = types.int64(types.int64, types.int64)
    address = compiled("elsewhere", [EntryPoint("probe", probe, signature)])["probe"]
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    assert kind(address)(0, 0) == -1
