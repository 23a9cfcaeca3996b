"""The examples for several ranks, as their first lines say they are started."""

import pathlib
import re
import subprocess
import sys

from tests.distributed import jobs
from tests.thorough import thorough

FOLDER = pathlib.Path(__file__).parent.parent.parent / "examples"


def alone(program, *arguments):
    """What a program prints that is started without a launcher."""
    command = [sys.executable, str(FOLDER / program), *map(str, arguments)]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, timeout=jobs.DEADLINE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(ranks, program, *arguments, **settings):
    return jobs.run(ranks, FOLDER / program, *arguments, **settings)


def digests(output):
    return re.findall(r"(?:weights|state) (\w{16})", output)


def test_data_parallel_training_on_four_ranks_gives_the_bits_of_one():
    status, output = run(4, "data_parallel.py", "--epochs", "1")
    assert status == 0, output
    assert "4 ranks" in output
    assert digests(output) == digests(alone("data_parallel.py", "--epochs", "1"))


@thorough
def test_stale_sums_are_the_same_in_every_run():
    status, output = run(2, "stale_sgd.py", "--steps", "40", TRACEJIT_LINK="1e-3,1e9")
    assert status == 0, output
    sync, zero, three = digests(output)
    assert sync == zero != three
    losses = re.findall(r"loss ([\d.]+) -> ([\d.]+)", output)
    assert all(float(last) < float(first) / 3 for first, last in losses)


def test_a_job_that_loses_a_rank_goes_on_with_fewer(tmp_path):
    status, output = run(4, "elastic.py", tmp_path / "lost", "--lose", "17")
    assert status != 0
    assert not digests(output)
    status, output = run(2, "elastic.py", tmp_path / "lost")
    assert status == 0, output
    assert "from step 15 on 2 rank(s)" in output
    assert digests(output) == digests(alone("elastic.py", tmp_path / "whole"))


@thorough
def test_a_job_that_loses_a_rank_is_started_again_with_its_divided_state(tmp_path):
    started = jobs.start(2, "--restarts", "1", FOLDER / "elastic.py", tmp_path / "lost", "--lose", "17")
    status, output = jobs.finish(started)
    assert status == 0, output
    assert "starting it again (1 of 1)" in output
    assert "from step 15 on 2 rank(s)" in output
    assert digests(output) == digests(alone("elastic.py", tmp_path / "whole"))
