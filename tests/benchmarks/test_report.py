"""Marks are judged at their limits, and the report shows what was found, also what is missing."""

import json

import pytest

from benchmarks import report
from benchmarks.marks import KERNELS, MARKS, judge
from benchmarks.workload import OURS


def side(median=None, status="ok"):
    found = {"status": status, "import": 0.1, "cold": {"first": 1.0}, "warm": {}, "difference": 0.0}
    return found if median is None else found | {"median": median, "low": median, "high": median, "calls": 5}


def workload(**others):
    """A workload in which ours takes a millisecond; `others` are ratios to peers."""
    sides = {name: side(1e-3 / ratio) for name, ratio in others.items()}
    return {
        "kind": "kernel",
        "sides": {OURS: side(1e-3), "numexpr": side(status="missing: not installed here"), **sides},
        "best": max(others, key=others.get),
        "ratios": {name: {"ratio": r, "low": r, "high": r} for name, r in others.items()},
    }


@pytest.fixture
def findings():
    return {
        "date": "today",
        "machine": {"processor": "a processor", "processors": 2},
        "versions": {"python": "3", "jax": "missing"},
        "settings": {"threads": 2},
        "workloads": {
            "stencil": workload(jax=0.5, numpy=0.25),
            "adam-4M": workload(numba=1.05, torch=0.5),
            "mlp-momentum-16x64x32": workload(jax=0.61),
        },
        "bandwidth": {"triad": 10.0, "x *= s": 8.0, "sum(x * x)": 9.0},
        "memory": {
            "lstm": {
                OURS: {"planned": 50, "naive": 100, "step": 10, "allocations": 1},
                "jax": {"step": 10},
            }
        },
        "engine": {"failed": "it crashed"},
    }


def rows(findings, text):
    return {row.label: (row.value, row.met) for row in judge(findings) if row.text.startswith(text)}


def test_nothing_measured_shows_every_mark():
    found = judge({})
    assert {row.text for row in found} == {mark.text for mark in MARKS}
    assert all(row.met is None and row.value == "not measured" for row in found)


def test_ratios_are_of_the_best_peer(findings):
    found = rows(findings, "every single-kernel")
    assert found["stencil"] == ("0.5", True)
    assert found["adam-4M (without numba)"] == ("0.5", True)
    assert rows(findings, "Adam update")["adam-4M / numba"] == ("1.05", True)
    assert len(found) == len(KERNELS)


def test_a_missed_mark_says_so(findings):
    assert rows(findings, "MLP step (16,64,32), of JAX") == {"mlp-momentum-16x64x32 / jax": ("0.61", False)}
    assert rows(findings, "allocations")["lstm"] == ("1 times", False)


def test_marks_hold_at_their_limits(findings):
    assert rows(findings, "internal memory, planned over naive, training")["lstm"] == ("0.5", True)
    assert rows(findings, "memory of the step")["lstm"] == ("1", True)
    assert rows(findings, "memory-bound") == {"x *= s": ("0.8", False), "sum(x * x)": ("0.9", True)}


def test_a_geometric_mean_is_of_all_kernels(findings):
    def together():
        ((label, judged),) = rows(findings, "single-kernel workloads together").items()
        return label, judged

    count = len(KERNELS)
    assert together() == (f"geometric mean of 2 of {count}", ("not measured", None))
    findings["workloads"] = {name: workload(jax=0.5) for name in KERNELS[:-1]}
    assert together() == (f"geometric mean of {count - 1} of {count}", ("not measured", None))
    findings["workloads"][KERNELS[-1]] = workload(jax=1.0)
    assert together() == (f"geometric mean of {count} of {count}", (f"{0.5 * 2 ** (1 / count):.3g}", True))
    for name in KERNELS[:-1]:
        findings["workloads"][name] = workload(jax=0.7)
    assert together()[1] == (f"{0.7 ** ((count - 1) / count):.3g}", False)


def test_markdown_shows_missing_peers_and_failed_sections(findings):
    text = report.markdown(findings)
    assert "jax missing" in text
    assert "| numexpr | missing: not installed here |" in text
    assert "| failed | it crashed |" in text
    assert "| jax (best peer) |" in text


def test_the_readme_is_filled_between_its_comments(findings, tmp_path):
    copy = tmp_path / "README.md"
    copy.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_readme(findings, copy)
    report.write_readme(findings, copy)
    text = copy.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert text.count("### Marks") == 1
    assert text.count(report.BEGIN) == text.count(report.END) == 1


def test_the_real_readme_has_the_place():
    text = report.README.read_text()
    assert text.index(report.BEGIN) < text.index(report.END)


def test_the_file_holds_everything(findings, tmp_path):
    path = tmp_path / "new folder" / "results.json"
    report.write_json(findings, path)
    found = json.loads(path.read_text())
    assert found["workloads"] == findings["workloads"]
    assert {mark["met"] for mark in found["marks"]} == {True, False, None}


def test_a_plot_is_drawn(findings, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "ratios.png"
    assert report.plot(findings, path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (1.5e-5, "15 us"), (3e-8, "30 ns")]
)
def test_durations(seconds, text):
    assert report.duration(seconds) == text
