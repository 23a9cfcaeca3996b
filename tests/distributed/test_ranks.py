"""Real ranks over MPI: jobs of two and of four, in several settings, run everything in `checks.py`."""

import json
import pathlib
import re

import pytest

import tracejit as tj
from tests.distributed import checks, jobs
from tracejit.distributed.window import BLOCK

CHECKS = pathlib.Path(__file__).with_name("checks.py")
NAMES = re.findall(r"@check\ndef (\w+)", CHECKS.read_text())

JOBS = {
    "messages": (2, {"TRACEJIT_LINK": "1e-3,1e9", "TRACEJIT_WINDOW": "0"}, True),
    "link": (2, {"TRACEJIT_LINK": "1e-3,1e9"}, False),
    "narrow": (2, {"TRACEJIT_WINDOW": str(BLOCK)}, False),
    "four": (4, {}, False),
    "python": (4, {}, True),
}
"""Jobs that run the checks: ranks, settings, and whether a timeline is recorded, so that Python begins all
exchanges. Ranks of a narrow window often find no room there, and send messages instead.
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """By name of the job: the results and facts of each rank."""
    folder, found = tmp_path_factory.mktemp("ranks"), {}

    def of(name, timeline=False):
        if timeline:
            of(name)
            return found["timeline", name]
        if name not in found:
            ranks, settings, has_timeline = JOBS[name]
            place = folder / name
            place.mkdir(exist_ok=True)  # where MPI cannot start, each check is skipped
            options = ["--timeline", place / "timeline.json"] if has_timeline else []
            status, output = jobs.run(ranks, *options, CHECKS, place, **settings)
            assert status == 0, output
            files = [place / f"results-{ranks}-{rank}.json" for rank in range(ranks)]
            found[name] = [json.loads(file.read_text()) for file in files]
            if has_timeline:
                found["timeline", name] = json.loads(options[1].read_text())["traceEvents"]
        return found[name]

    return of


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("job", JOBS)
def test_checks(results, job, name):
    told = [f"rank {rank}:\n{p[name]}" for rank, (p, _) in enumerate(results(job)) if p[name] is not None]
    assert not told, "\n".join(told)


def test_training_gives_the_same_bits_on_one_two_and_four_ranks(results, monkeypatch):
    for name, value in {"R": 0, "N": 1, "FACTS": {}}.items():
        monkeypatch.setattr(checks, name, value, raising=False)
    checks.data_parallel_training_is_the_same_on_any_number_of_ranks()
    for job in JOBS:
        assert results(job)[0][1]["data_parallel"] == checks.FACTS["data_parallel"]
    monkeypatch.setattr(checks, "DEVICES", [tj.cpu(0), tj.cpu(1)])
    monkeypatch.setattr(checks, "FACTS", {})
    checks.data_parallel_training_is_the_same_on_any_number_of_ranks()  # on two devices of one process
    assert results("messages")[0][1]["data_parallel"] == checks.FACTS["data_parallel"]


def test_the_naive_engine_serves_ranks(tmp_path):
    names = [
        "containers_travel_in_buckets",
        "a_shared_store_as_in_mxnet",
        "a_step_fails_on_all_ranks_or_on_none",
    ]
    status, output = jobs.run(2, CHECKS, tmp_path, *names, TRACEJIT_ENGINE="naive")
    assert status == 0, output
    for rank in range(2):
        found, _ = json.loads((tmp_path / f"results-2-{rank}.json").read_text())
        assert found == dict.fromkeys(names)


def test_products_are_computed_while_gradients_travel(results):
    rows = results("messages", timeline=True)
    assert {row["args"]["name"] for row in rows if row["name"] == "process_name"} == {"rank 0", "rank 1"}
    for rank in (0, 1):
        mine = [row for row in rows if row["ph"] == "X" and row["pid"] == rank]
        exchanges = [row for row in mine if row["name"] == "exchange"]
        products = [row for row in mine if row["name"].startswith("matmul")]
        assert {row["cat"] for row in exchanges} == {"communication"}
        assert any(
            x["ts"] < y["ts"] + y["dur"] and y["ts"] < x["ts"] + x["dur"] for x in exchanges for y in products
        )
