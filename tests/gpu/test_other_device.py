"""Tests of other folders with arrays on the GPU, in ordinary CI, and the list of those that cannot pass yet.

All of `tests/semantics`: `make gpu-semantics`. Here run copies, failures and loops of looks.
"""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

from tests.gpu.conftest import REAL
from tests.other_device import TABLE, not_there_yet

ROOT = pathlib.Path(__file__).parents[2]
CHOSEN = [
    "tests/semantics/test_copies.py",
    "tests/semantics/test_failure.py",
    "tests/semantics/test_rounds_ahead.py",
]


@pytest.mark.skipif(REAL, reason="its driver is the one that computes on the CPU")
def test_chosen_tests_pass_with_arrays_on_the_gpu():
    variables = {"TRACEJIT_TEST_DEVICE": "gpu:0", "PYTEST_ADDOPTS": "", "TRACEJIT_TEST_SEED": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *CHOSEN],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_the_list_names_tests_that_exist():
    lines = TABLE.read_text().splitlines()
    assert lines == [*(line for line in lines if line.startswith("#")), *sorted(not_there_yet())]
    for test in (*not_there_yet(), *CHOSEN):
        path, _, name = test.partition("::")
        defined = {
            f.name for f in ast.parse((ROOT / path).read_text()).body if isinstance(f, ast.FunctionDef)
        }
        assert not name or name.partition("[")[0] in defined, test
