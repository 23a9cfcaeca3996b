"""Settings from the environment: where kernels are stored, and what is said of values of no use."""

import os
import pwd
import subprocess
import sys

import pytest

import tracejit as tj
from tracejit.config import PASSES, Config
from tracejit.errors import ArgumentError
from tracejit.passes.driver import clean, form_kernels


@pytest.fixture
def environment(monkeypatch):
    for name in ("TRACEJIT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(user):
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    return monkeypatch


def folder():
    path = Config().store
    return None if path is None else str(path)


def test_a_user_without_a_home_has_no_store(environment):
    assert folder() is None
    for home in ("", "somewhere"):
        environment.setenv("HOME", home)
        assert folder() is None


def test_the_system_knows_a_home_that_the_environment_does_not(environment):
    user = type("User", (), {"pw_dir": "/home/somebody"})
    environment.setattr(pwd, "getpwuid", lambda number: user)
    for home in (None, ""):
        if home is not None:
            environment.setenv("HOME", home)
        assert folder() == "/home/somebody/.cache/tracejit"


def test_a_cache_folder_that_is_relative_or_empty_is_ignored(environment):
    environment.setenv("HOME", "/home/me")
    for base, wanted in (("", "/home/me/.cache"), ("caches", "/home/me/.cache"), ("/fast", "/fast")):
        environment.setenv("XDG_CACHE_HOME", base)
        assert folder() == f"{wanted}/tracejit"


def test_a_store_that_is_named_does_not_move_with_the_process(environment, tmp_path):
    environment.chdir(tmp_path)
    environment.setenv("TRACEJIT_CACHE_DIR", "kernels")
    assert folder() == str(tmp_path / "kernels")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("TRACEJIT_WORKERS", ["abc", "-1", "1.5"]),
        ("TRACEJIT_CACHE_LIMIT", ["x", "-1", "1G"]),
        ("TRACEJIT_SIGNATURES", ["many", "0"]),
        ("TRACEJIT_ENGINE", ["fast"]),
        ("TRACEJIT_JIT", ["of", "2"]),
        ("TRACEJIT_CHECK", ["maybe"]),
        ("TRACEJIT_DUMP", ["fusion", "cse,all"]),
        ("TRACEJIT_DISABLE", ["fusion", "record", "cse,fusion"]),
    ],
)
def test_a_value_of_no_use_is_an_error_that_names_the_variable(monkeypatch, name, values):
    for value in values:
        monkeypatch.setenv(name, value)
        with pytest.raises(ArgumentError, match=f"{name}='{value}': expected"):
            Config()
    monkeypatch.setenv(name, "")
    Config()


def test_numbers_are_taken_from_the_environment(monkeypatch):
    monkeypatch.setenv("TRACEJIT_WORKERS", "0")
    monkeypatch.setenv("TRACEJIT_CACHE_LIMIT", "4096")
    monkeypatch.setenv("TRACEJIT_SIGNATURES", "7")
    config = Config()
    assert (config.workers, config.store_limit, config.signatures) == (0, 4096, 7)


WITHOUT_HOME = """
import os, pwd, sys, warnings
def unknown(user):
    raise KeyError(user)
pwd.getpwuid = unknown
import tracejit as tj
from tracejit import cli
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = tj.jit(lambda x: tj.tanh(x) + 1)(tj.zeros(5000))
    assert float(x[7]) == 1
assert [w.category for w in caught] == [RuntimeWarning], caught
assert "no home folder" in str(caught[0].message)
warnings.simplefilter("ignore")
print(cli.main(["cache", "stats"]), cli.main(["cache", "list"]), cli.main(["cache", "path"]))
"""


def test_a_user_without_a_home_computes_and_is_told(tmp_path):
    gone = ("TRACEJIT_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    environment = {name: value for name, value in os.environ.items() if name not in gone}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HOME],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert "no home folder" in done.stdout
    assert done.stdout.endswith("0 0 1\n")
    assert "tracejit: there is no home folder" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_store_that_is_a_file_is_told(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    program = (
        "import tracejit as tj; assert float((tj.jit(lambda x: tj.tanh(x) + 1)(tj.zeros(5000)))[7]) == 1;"
        "from tracejit import cli; cli.main(['cache', 'stats'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"TRACEJIT_CACHE_DIR": str(file)},
    )
    assert done.stderr.count("RuntimeWarning") <= 2  # one for the program's store, one for the command's
    assert "cannot be used" in done.stderr
    assert "Not a directory" in done.stdout
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["TRACEJIT_JIT", "TRACEJIT_CHECK", "TRACEJIT_VERIFY", "TRACEJIT_EXPLAIN"])
def test_flags_are_words_or_digits_in_any_case(monkeypatch, name):
    attribute = name.removeprefix("TRACEJIT_").lower()
    for text in ("1", "true", "Yes", "ON"):
        monkeypatch.setenv(name, text)
        assert getattr(Config(), attribute) is True
    for text in ("0", "false", "No", "OFF"):
        monkeypatch.setenv(name, text)
        assert getattr(Config(), attribute) is False
    monkeypatch.setenv(name, "")
    assert getattr(Config(), attribute) is (name == "TRACEJIT_JIT")


def test_passes_can_be_named(monkeypatch):
    monkeypatch.setenv("TRACEJIT_DUMP", "record, fuse,legalize,")
    monkeypatch.setenv("TRACEJIT_DISABLE", "cse,components")
    assert Config().dump == {"record", "fuse", "legalize"}
    assert Config().disable == {"cse", "components"}


def test_the_known_names_are_those_of_the_passes():
    times = {}
    form_kernels(clean(tj.jit(lambda x: x + 1).graph(tj.ones(3)), times), times)
    assert [name for name in PASSES if name != "components"] == list(times)
