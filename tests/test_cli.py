"""The command line against a real store in a folder of its own."""

import os
import re
import subprocess
import sys

import pytest

from tracejit import cli
from tracejit.codegen.objects.listing import vector_width
from tracejit.codegen.objects.store import Entry, Store, key
from tracejit.config import config

TARGET = ("x86_64-unknown-linux-gnu", "znver4", "+avx512f,+avx512vl")
SOURCE = """
from numba import float32, int64
from tracejit.kernels.compiler.memory import load, pointer

def kernel(block, lo, hi, scratch):
    x = pointer(load(block, int64), float32)
    for i in range(lo, hi):
        x[i] = x[i] + float32(1)
    return 0
"""


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "store", tmp_path / "store")
    return Store(config.store)


@pytest.fixture
def filled(store):
    for name, width in (("add", 16), ("mul", 1)):
        entry = Entry(name, SOURCE, b"object" * 200, TARGET, 0.123, {"symbols": ["kernel"], "width": width})
        store.put(key(name, TARGET), entry)
    store.get(key("add", TARGET))
    return store


@pytest.fixture
def run(capsys):
    def run(*arguments, status=0):
        assert cli.main(arguments) == status
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run


def test_list_shows_every_kernel_in_order_of_use(filled, run):
    header, *rows = run("cache", "list").splitlines()
    assert header.split() == [
        "key",
        "name",
        "target",
        "size",
        "compile",
        "s",
        "hits",
        "width",
        "last",
        "used",
    ]
    assert [row.split()[:4] for row in rows] == [
        [key(name, TARGET)[:12], name, TARGET[0], TARGET[1]] for name in ("add", "mul")
    ]
    assert [row.split()[6:9] for row in rows] == [["0.123", "1", "16"], ["0.123", "0", "1"]]


def test_show_takes_a_prefix_or_a_name(filled, run):
    k = key("add", TARGET)
    by_name = run("cache", "show", "add")
    assert by_name == run("cache", "show", k[:10]) == run("cache", "show", k)
    for text in (k, "znver4", "width", "16", "0.123 s", "numba", "1 times"):
        assert text in by_name
    assert run("cache", "show", "add", "--source") == SOURCE + "\n"


def test_show_says_what_there_is_when_a_key_does_not_fit(filled, run):
    error = run("cache", "show", "zzz", status=1)
    assert "no kernel has the key or name 'zzz'" in error
    assert f"{key('add', TARGET)[:12]}  add" in error
    assert f"{key('mul', TARGET)[:12]}  mul" in error
    filled.put(key("another add", ()), Entry("add", "", b"x", (), 0.0))
    assert "'add' fits 2 kernels" in run("cache", "show", "add", status=1)


def test_of_versions_of_one_kernel_the_last_one_used_is_shown(filled, run):
    older, newer = key("add", TARGET), key("add", ())
    assert older[:12] == newer[:12]
    filled.put(newer, Entry("add", "", b"x", (), 0.0))
    for wanted, seconds in [(newer, 3e9), (older, 4e9)]:
        filled.get(wanted)
        os.utime(config.store / f"{wanted}.hits", (seconds, seconds))
        assert wanted in run("cache", "show", older[:12]).split()


def test_an_empty_store(store, run):
    assert len(run("cache", "list").splitlines()) == 1
    assert "is empty" in run("cache", "show", "a", status=1)
    assert "0 B of" in run("cache", "stats")
    assert run("cache", "verify") == "0 kernels good, 0 removed\n"
    assert run("cache", "clear") == "0 kernels removed\n"


def test_stats_count_what_was_saved(filled, run):
    filled.get(key("add", TARGET))
    lines = dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in run("cache", "stats").splitlines())
    assert (lines["kernels"], lines["loaded"]) == ("2", "2 times")
    assert (lines["compile time stored"], lines["compile time saved"]) == ("0.2 s", "0.2 s")
    assert lines["folder"] == str(config.store)
    assert lines["problem"] == "none"


def test_verify_reports_damage_and_clear_empties(filled, run):
    file = config.store / f"{key('mul', TARGET)}.kernel"
    file.write_bytes(file.read_bytes()[:-1])
    assert "damaged: wrong checksum\n1 kernel good, 1 removed\n" in run("cache", "verify", status=1)
    assert not file.exists()
    assert run("cache", "verify") == "1 kernel good, 0 removed\n"
    assert run("cache", "clear") == "1 kernel removed\n"
    assert filled.entries() == []


def test_path(store, run):
    assert run("cache", "path") == f"{config.store}\n"


def test_llvm_and_assembly_are_recomputed_from_the_source(filled, run):
    llvm = run("cache", "show", "add", "--llvm")
    assert re.search(r"^define .*i64 @kernel\(", llvm, re.MULTILINE)
    assert vector_width(llvm) >= 4
    assembly = run("cache", "show", "add", "--asm")
    assert "kernel:" in assembly
    assert ".text" in assembly or "__text" in assembly


def test_a_source_that_lacks_its_symbol_is_an_error(store, run):
    store.put(key("bad", TARGET), Entry("bad", "x = 1", b"object", TARGET, 0.0))
    assert "does not define kernel" in run("cache", "show", "bad", "--llvm", status=1)


def test_warm_calls_the_function_and_counts(store, run, tmp_path):
    program = tmp_path / "ahead_of_time.py"
    program.write_text(
        "from tracejit.codegen.objects.store import Entry, Store, key\n"
        "from tracejit.config import config\n"
        "def warm():\n"
        "    store = Store(config.store)\n"
        "    if store.get(key('a', ())) is None:\n"
        "        store.put(key('a', ()), Entry('a', '', b'object', (), 0.0))\n"
        "def step(w, x, lr=0.1): ...\n"
    )
    assert "1 kernel compiled, 0 found" in run("cache", "warm", str(program))
    assert "0 kernels compiled, 1 found" in run("cache", "warm", f"{program}:warm")
    error = run("cache", "warm", f"{program}:step", status=1)
    assert "needs arguments (w, x)" in error
    assert "step.warm(tj.spec(" in error
    assert "has no function 'other'" in run("cache", "warm", f"{program}:other", status=1)
    assert "there is no file" in run("cache", "warm", f"{tmp_path}/none.py", status=1)
    assert "there is no module nowhere" in run("cache", "warm", "nowhere:warm", status=1)


@pytest.mark.parametrize(
    "arguments", [[], ["cache"], ["cache", "show"], ["cache", "show", "a", "--llvm", "--asm"]]
)
def test_a_wrong_command_line_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert "usage: tracejit" in capsys.readouterr().err


def test_listing_needs_no_numba(filled):
    program = (
        f"import sys, pathlib; from tracejit import cli; from tracejit.config import config;"
        f"config.store = pathlib.Path({str(config.store)!r}); assert cli.main(['cache', 'list']) == 0;"
        "assert 'numba' not in sys.modules"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert len(output.splitlines()) == 3


def test_vector_width_is_the_widest_that_computes():
    assert vector_width("%1 = add <8 x i32> %a, %b\n %2 = fadd <4 x double> %c, %d") == 8
    assert vector_width("%1 = getelementptr [16 x float], ptr %p") == 1


def test_what_is_no_kernel_stays_and_is_named(filled, run):
    (config.store / f"{key('photos', TARGET)}.kernel").mkdir()
    with pytest.warns(RuntimeWarning, match="folder"):
        assert "is a folder" in run("cache", "verify", status=1) + run("cache", "clear", status=1)
    assert filled.entries() == []


def test_a_folder_of_others_is_left_alone_without_a_traceback(filled, run):
    config.store.chmod(0o777)
    for command in ("verify", "clear", "stats", "list"):
        with pytest.warns(RuntimeWarning, match="not private"):
            shown = run("cache", command, status=int(command in ("verify", "clear")))
        assert command == "list" or "not private" in shown
    config.store.chmod(0o700)
    assert len(filled.entries()) == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["-m", "this_module", "a", "-n", "3"], "['a', '-n', '3']"),
        (["-c", "import sys; print(sys.argv[1:])", "-m", "x"], "['-m', 'x']"),
        (["this_module.py", "-x", "-c"], "['-x', '-c']"),
    ],
)
def test_run_takes_what_python_takes(given, told, capfd, tmp_path, monkeypatch):
    """A file, a module or a text, and all that follows belongs to the program."""
    (tmp_path / "this_module.py").write_text("import sys; print(sys.argv[1:])")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "-n", "1", *given]) == 0
    assert told in capfd.readouterr().out
