"""Jobs of several ranks, with a deadline; no process of one is left."""

import functools
import os
import subprocess
import sys

import pytest

import tracejit as tj
from tracejit.codegen.objects.loader import load
from tracejit.distributed.calls import RECIPE

DEADLINE = 90  # seconds; a job takes eight on an idle machine, half a minute if it has to compile
COMMAND = "import sys; from tracejit.cli import main; sys.exit(main(sys.argv[1:]))"


def need_mpi():
    """Skip the test where MPI cannot start; in CI that fails."""
    problem = None
    try:
        import mpi4py  # noqa: F401

        from tracejit.launcher import find_mpiexec

        find_mpiexec()
    except Exception as error:
        problem = f"no ranks can be started: {error}"
    if problem and os.environ.get("CI"):
        pytest.fail(f"{problem}; CI has to test them: install the extra 'dist'")
    if problem:
        pytest.skip(problem)


@functools.cache
def compile_once():
    """Compile here what all ranks need, which each of them would compile at the same time."""
    load([RECIPE])
    x = tj.ones((64, 64))
    tj.jit(lambda x: x @ x)(x).wait()


def start(ranks, *command, **settings):
    """A job that runs; its output is one text."""
    need_mpi()
    compile_once()
    given = ["run", "-n", str(ranks), "--timeout", str(DEADLINE), *map(str, command)]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *given],
        env={**os.environ, "PYTHONPATH": os.getcwd(), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    """The status and output of a job."""
    try:
        output, _ = process.communicate(timeout=DEADLINE + 20)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate(timeout=20)
        pytest.fail(f"the launcher has not ended its job in time:\n{output}")
    return process.returncode, output


def run(ranks, *command, **settings):
    """The status and output of a job, when it has ended."""
    return finish(start(ranks, *command, **settings))


def processes_of(mark):
    """The numbers of processes whose command line holds a text, where the system tells."""
    found = []
    if not os.path.exists("/proc"):
        return found
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(number))
        except OSError:
            pass
    return found
