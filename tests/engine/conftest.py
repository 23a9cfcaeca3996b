"""The engine's own tests compile the executor directly, without the kernel store."""

import pytest

from tracejit import engine
from tracejit.codegen.build import Entry, build_object
from tracejit.codegen.link import link
from tracejit.engine import native
from tracejit.kernels.executor import ENTRIES


def load_executor():
    built = build_object([Entry(*entry) for entry in ENTRIES])
    return link("executor", built.object_code, [name for name, _, _ in ENTRIES])


native.install(load_executor)


@pytest.fixture(autouse=True)
def _quiet_engine():
    """Every test starts and ends with an idle engine and no failure left over."""
    yield
    engine.set_workers(1)
    engine.wait_all()
