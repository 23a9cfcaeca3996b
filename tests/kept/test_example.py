"""The example runs: trained here, tuned in another process, drawn."""

import pathlib
import runpy
import sys

EXAMPLE = pathlib.Path(__file__).parent.parent.parent / "examples" / "kept_graph.py"


def test_the_example(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--folder", str(tmp_path), "--steps", "60"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capfd.readouterr().out
    assert "<KeptGraph network(x): " in printed
    right = [int(line.partition("%")[0].split()[-1]) for line in printed.splitlines() if "%" in line]
    assert right[0] > 95
    assert right[1] < 70
    assert right[3] == right[2] > right[1]
    assert (tmp_path / "step.svg").exists()
