"""Every test run uses a kernel store of its own, so that results never depend on an earlier run.

Garbage collection rests while tests are collected, and never looks at what that made (half a million objects,
a quarter of a second each time), nor again at what is alive after every `SPAN` tests: wherever an array seems
to escape there is a full collection.
"""

import gc
import os
import pathlib
import shutil
import signal
import tempfile

import pytest

os.environ.setdefault("TRACEJIT_VERIFY", "1")
SPAN = 100
STORE = pathlib.Path(tempfile.gettempdir()) / f"tracejit-tests-{os.getpid()}"
os.environ.setdefault("TRACEJIT_CACHE_DIR", str(STORE))  # processes started by this one share it


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background; tests send Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    from tests.other_device import ELSEWHERE, MARK, Elsewhere

    config.addinivalue_line("markers", MARK)
    if ELSEWHERE:
        config.pluginmanager.register(Elsewhere())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    try:
        return (yield)
    finally:
        item.session.tests_done = getattr(item.session, "tests_done", 0) + 1
        if item.session.tests_done % SPAN == 0:
            gc.collect()
            gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure():
    """The process that chose the store removes it."""
    shutil.rmtree(STORE, ignore_errors=True)


@pytest.fixture
def nothing_known():
    """No analysis of an earlier test is remembered: for tests that change constants, or count analyses. Call
    it to forget those of this test.
    """
    from tracejit.passes.fusion import fuse

    def forget():
        fuse._PROGRAMS.clear()
        fuse._ANALYSES.clear()

    forget()
    yield forget
    forget()
