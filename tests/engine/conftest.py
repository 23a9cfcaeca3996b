"""The engine's own tests compile the executor directly, without the kernel store."""

import pytest

from tests.engine.programs import compiled
from tracejit import engine
from tracejit.codegen.objects.build import EntryPoint
from tracejit.engine import native
from tracejit.kernels.executor.entry_points import ENTRIES


def load_executor():
    return compiled("executor", [EntryPoint(*entry) for entry in ENTRIES])


native.install(load_executor)


@pytest.fixture(autouse=True)
def _quiet_engine():
    """Every test starts and ends with an idle engine and no failure left over."""
    yield
    engine.set_workers(1)
    engine.wait_all()
