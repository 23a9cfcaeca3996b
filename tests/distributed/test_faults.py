"""Whatever one rank does, every rank ends within its deadline, with who and where; no process is left."""

import os
import pathlib
import re
import signal
import threading
import time

import pytest

from tests.distributed import jobs
from tests.thorough import some, thorough

PROGRAM = pathlib.Path(__file__).with_name("faults.py")


def in_turn(name):
    """A mark of a job's own in its command line, by which its processes are found."""
    return f"fault-{name}-{time.monotonic_ns()}"


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("raise", r"rank 0 of 2 failed:[\s\S]*rank 1 failed: ValueError: a bad batch at \S+faults.py:\d+"),
        ("fewer", r"rank 1 has ended its program; rank 0 waits for it in exchange\(float32\[4\]\) at \S+:22"),
        ("shape", r"ranks exchange different arrays: rank 0 exchange\(float32\[4\]\).*rank 1 .*float32\[5\]"),
        ("graph", r"ranks exchange different arrays: rank \d exchange.*same calls in the same order"),
        ("sleep", r"nothing came from rank 1 for 4 s; rank 0 waits for it in exchange\(float32\[4\]\)"),
        ("kill", r"(?i)rank 1 .*(\n.*)?signal 9"),
    ],
    ids=lambda text: text if text.isalpha() else "",
)
def test_a_rank_that_goes_wrong_ends_the_job(what, told):
    mark = in_turn(what)
    begun = time.monotonic()
    status, output = jobs.run(
        2, PROGRAM, what, mark, TRACEJIT_EXCHANGE_DEADLINE="4" if what == "sleep" else "60"
    )
    assert status not in (0, 124), output
    assert re.search(told, output), output
    assert "trained" not in output or what == "fewer"
    assert time.monotonic() - begun < jobs.DEADLINE
    assert jobs.processes_of(mark) == []


@pytest.mark.parametrize(
    ("what", "told"),
    some(
        [
            (
                "raise",
                r"rank 0 of 2 failed:[\s\S]*rank 1 failed: ValueError: a bad batch at \S+faults.py:\d+",
            ),
            ("fewer", r"rank 1 has ended its program; rank 0 waits for it in exchange\(float32\[524288\]\)"),
            ("sleep", r"nothing came from rank 1 for 4 s; rank 0 waits for it in exchange"),
        ],
        2,
        unpack=True,
    ),
    ids=["raise", "fewer", "sleep"],
)
def test_a_rank_whose_large_array_is_read_goes_wrong(what, told):
    status, output = jobs.run(
        2, PROGRAM, what, FAULT_SIZE="524288", TRACEJIT_EXCHANGE_DEADLINE="4" if what == "sleep" else "60"
    )
    assert status not in (0, 124), output
    assert re.search(told, output), output


@pytest.mark.parametrize(
    ("what", "told"),
    some(
        [
            (
                "raise",
                r"rank 0 of 2 failed:[\s\S]*rank 1 failed: ValueError: a bad batch at \S+faults.py:\d+",
            ),
            ("fewer", r"rank 1 has ended its program; rank 0 waits for it in exchange"),
            ("sleep", r"nothing came from rank 1 for 4 s; rank 0 waits for it in exchange"),
            ("kill", r"(?i)rank 1 .*(\n.*)?signal 9"),
        ],
        2,
        unpack=True,
    ),
    ids=["raise", "fewer", "sleep", "kill"],
)
def test_a_rank_goes_wrong_where_a_thread_waits_for_a_large_array(what, told):
    """In a checked run, whose exchanges are not beside kernels."""
    deadline = "4" if what == "sleep" else "60"
    settings = {"FAULT_SIZE": "524288", "TRACEJIT_CHECK": "1", "TRACEJIT_EXCHANGE_DEADLINE": deadline}
    status, output = jobs.run(2, PROGRAM, what, **settings)
    assert status not in (0, 124), output
    assert re.search(told, output), output


def test_an_interrupt_of_the_launcher_ends_all_ranks():
    mark = in_turn("interrupt")
    job = jobs.start(2, PROGRAM, "wait", mark)
    seen = 0
    guard = threading.Timer(jobs.DEADLINE, job.kill)
    guard.start()
    while seen < 2:
        line = job.stdout.readline()
        assert line, "the job has ended before it was interrupted"
        seen += line.count("waiting")
    guard.cancel()
    job.send_signal(signal.SIGINT)
    status, output = jobs.finish(job)
    assert status == 130, output
    assert jobs.processes_of(mark) == []


def test_a_restart_from_the_checkpoint_gives_the_same_bits(tmp_path):
    status, output = jobs.finish(jobs.start(2, "--restarts", "1", PROGRAM, "restart", tmp_path))
    assert status == 0, output
    assert "starting it again (1 of 1)" in output
    assert "from step 3" in output
    assert len(set(re.findall(r"weights (\w+)", output))) == 1  # of both ranks, continued and at once


def test_a_full_disk_fails_the_checkpoint_on_all_ranks_and_training_goes_on(tmp_path):
    status, output = jobs.run(2, PROGRAM, "full", tmp_path)
    assert status == 0, output
    assert re.search(r"full 1 OSError .*File too large", output), output
    assert re.search(r"full 0 PeerError save_checkpoint: rank 1 could not write step 99", output), output
    assert output.count("latest 3\n") == 2
    assert len(set(re.findall(r"weights (\w+)", output))) == 1


@pytest.mark.parametrize("seed", range(int(os.environ.get("TRACEJIT_KILLS", "2"))))
@thorough
def test_a_rank_that_is_killed_at_any_moment_costs_no_bits(seed, tmp_path):
    """Outside CI, `TRACEJIT_KILLS=20` tries more moments."""
    mark = tmp_path / in_turn("moment")
    status, output = jobs.finish(jobs.start(2, "--restarts", "1", PROGRAM, "moment", mark, seed))
    assert status == 0, output
    assert "starting it again (1 of 1)" in output
    assert len(set(re.findall(r"weights (\w+)", output))) == 1
    assert jobs.processes_of(mark.name) == []
