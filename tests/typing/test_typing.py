"""Type checkers know the parameters and results of traced functions and of gradients."""

import pathlib
import re
import subprocess
import sys

SAMPLE = pathlib.Path(__file__).with_name("sample.py")
ROOT = SAMPLE.parent.parent.parent
REPORT = re.compile(
    r"sample\.py:(\d+): (?:note: Revealed type is \"(.*)\"|error: .*\[([\w-]+)\])$", re.MULTILINE
)
MODULES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])")


def test_mypy_reports_what_the_sample_says():
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(SAMPLE)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    reported: dict[int, list[str]] = {}
    for line, revealed, code in REPORT.findall(done.stdout):
        reported.setdefault(int(line), []).append(MODULES.sub("", revealed) if revealed else code)
    expected = {}
    for number, line in enumerate(SAMPLE.read_text().splitlines(), 1):
        found = re.search(r"\S +# (reveals|error): (.*)$", line)
        if found:
            expected[number] = [found[2]] if found[1] == "reveals" else found[2].split(", ")
    assert len(expected) > 20, "the sample has no expectations"
    assert {n: sorted(each) for n, each in reported.items()} == expected, done.stdout + done.stderr
