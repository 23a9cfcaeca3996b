"""The tests on another device than the CPU, on which they were written.

    TRACEJIT_TEST_DEVICE=gpu:0 pytest tests/semantics       # on the driver that computes on the CPU

Arrays are then made there, on every thread, where a test names no device; NumPy stays what results are
compared with. Two kinds of tests do not pass there, and both say so:

- those about memory of the CPU, its kernels or its engine: `@pytest.mark.cpu("why")`, they are skipped;
- those that need an operator without a kernel for GPUs: they are listed in `gpu/not_there_yet.txt`, and must
  fail with the error that says so. One that passes fails the run until its line is taken out.

TRACEJIT_TEST_SEED chooses the order in which the driver's streams take turns, graphs run their kernels and
threads of a kernel run. With TRACEJIT_TEST_FAILURES=0.01 one call of the driver in a hundred fails: a test
then passes, ends with the error of the driver, or compares it with another outcome; wrong numbers, other
errors, a crash, a hang are failures.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

DEVICE = os.environ.get("TRACEJIT_TEST_DEVICE", "cpu:0")
FAILURES = float(os.environ.get("TRACEJIT_TEST_FAILURES", "0"))
SEED = int(os.environ.get("TRACEJIT_TEST_SEED", "0"))
ELSEWHERE = DEVICE != "cpu:0"
MARK = "cpu(reason): is about the CPU, and runs on no other device"
MISSING = f"does not run on {DEVICE} yet"
TOLD = "CUDA_ERROR_", "gpu:0 has no memory", "there is no memory for an array", "'DeviceError", "CacheInfo("
"""Of a failure of the driver: its error, its name where a test compares outcomes, and counts of replays."""

TABLE = pathlib.Path(__file__).parent / "gpu" / "not_there_yet.txt"


def not_there_yet() -> frozenset[str]:
    """The tests that need what GPUs do not have yet, by their ids."""
    lines = TABLE.read_text().splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


class Elsewhere:
    """A plugin of pytest: see the module."""

    def __init__(self) -> None:
        from tests.gpu.fake import fake_driver

        self.driver = fake_driver(SEED)
        self.missing = not_there_yet()
        make_arrays_on(DEVICE)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        mark = item.get_closest_marker("cpu")
        if mark is not None:
            pytest.skip(f"about the CPU: {mark.args[0]}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.driver.failures, self.driver.failed = FAILURES, 0
        try:
            return (yield)
        finally:
            self.driver.failures = 0
            self.driver.restore()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Any:
        report = yield
        listed = item.nodeid in self.missing
        if report.when != "call" or report.outcome == "skipped":
            return report
        if listed and report.passed:
            report.outcome = "failed"
            report.longrepr = f"It runs on {DEVICE} now: take its line out of {TABLE.name}"
        elif listed and MISSING in str(report.longrepr):
            report.outcome, report.wasxfail = "skipped", "not there yet"
        elif (
            report.failed
            and FAILURES
            and self.driver.failed
            and any(told in str(report.longrepr) for told in TOLD)
        ):
            report.outcome, report.wasxfail = "skipped", "the driver failed"
        return report


def make_arrays_on(device: str) -> None:
    """Have all threads make their arrays on a device, from now on."""
    import tracejit as tj
    from tracejit.frontend.recording.recording import ThreadState

    place = tj.device(device).__enter__()
    begin = ThreadState.__init__

    def begin_there(self: ThreadState) -> None:
        begin(self)
        self.device = place

    ThreadState.__init__ = begin_there  # type: ignore[method-assign]
