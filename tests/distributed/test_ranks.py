"""Real ranks over MPI: one job of two and one of four run everything in `checks.py`."""

import json
import pathlib
import re

import pytest

from tests.distributed import checks, jobs

CHECKS = pathlib.Path(__file__).with_name("checks.py")
NAMES = re.findall(r"@check\ndef (\w+)", CHECKS.read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """By number of ranks: the results and facts of each rank."""
    folder, found = tmp_path_factory.mktemp("ranks"), {}

    def of(ranks):
        if ranks not in found:
            status, output = jobs.run(ranks, CHECKS, folder)
            assert status == 0, output
            files = [folder / f"results-{ranks}-{rank}.json" for rank in range(ranks)]
            found[ranks] = [json.loads(file.read_text()) for file in files]
        return found[ranks]

    return of


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_checks(results, ranks, name):
    for rank, (passed, _) in enumerate(results(ranks)):
        assert passed[name] is None, f"rank {rank}:\n{passed[name]}"


def test_training_gives_the_same_bits_on_one_two_and_four_ranks(results, monkeypatch):
    for name, value in {"R": 0, "N": 1, "FACTS": {}}.items():
        monkeypatch.setattr(checks, name, value, raising=False)
    checks.data_parallel_training_is_the_same_on_any_number_of_ranks()
    for ranks in (2, 4):
        assert results(ranks)[0][1]["data_parallel"] == checks.FACTS["data_parallel"]
