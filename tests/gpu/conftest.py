"""The GPU of these tests: the driver that computes on the CPU, or a real one under TRACEJIT_REAL_GPU=1."""

import contextlib
import os

import pytest

import tracejit as tj
from tests.gpu.fake import fake_driver

REAL = os.environ.get("TRACEJIT_REAL_GPU") == "1"


@pytest.fixture
def fake():
    """The driver; what a test has broken is whole again afterwards."""
    if REAL:
        pytest.skip("a real driver cannot be told to fail or to wait, and may have one device only")
    driver = fake_driver()
    tj.gpu(0), tj.gpu(1)  # its functions are Python's, which no body of a traced function may call
    yield driver
    driver.restore()
    with contextlib.suppress(tj.errors.TracejitError):
        tj.wait_all()


@pytest.fixture
def gpu():
    """The device."""
    if not REAL:
        fake_driver()
    return tj.gpu(0)
