"""The kernel store: what is put comes back, whatever is damaged, foreign or in the way does not."""

import errno
import json
import os
import pathlib
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import pytest

from tests.counting import calls
from tracejit.codegen.objects import entry as entry_module
from tracejit.codegen.objects import store as store_module
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.entry import DIGEST, MAGIC
from tracejit.codegen.objects.linker import host
from tracejit.codegen.objects.store import Entry, Store, key
from tracejit.kernels.library.table import LIBRARY

TARGET = ("x86_64-unknown-linux-gnu", "znver4", "+avx512f")


def make(name="add", size=1000, **metadata):
    return Entry(name, f"def {name}(): ...  # é\n", os.urandom(size), TARGET, 0.25, metadata)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def file_of(store, k):
    return store.path / f"{k}.kernel"


def owned_by(user, status):
    return os.stat_result((*status[:4], user, *status[5:]))


def given(entry):
    """The fields that the caller gives."""
    return entry[:6]


def test_what_is_put_comes_back_in_another_process_too(store):
    k, entry = key("add", TARGET), make(width=16, symbols=["kernel"])
    assert store.get(k) is None
    assert store.misses == {k: "absent"}
    store.put(k, entry)
    found = store.get(k)
    assert given(found) == given(entry)
    assert (found.key, found.environment["target"]) == (k, " ".join(TARGET))
    assert abs(found.created - time.time()) < 60
    assert (store.hits, store.misses, store.problem) == (1, {}, None)
    program = (
        "import sys, pathlib; from tracejit.codegen.objects.store import Store, key;"
        f"e = Store(pathlib.Path({str(store.path)!r})).get(key('add', {TARGET!r}));"
        f"assert e.object_code == bytes.fromhex({entry.object_code.hex()!r});"
        "assert 'numba' not in sys.modules and 'llvmlite' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_stored_object_code_runs_without_numba(store):
    built = build_object([EntryPoint("kernel", LIBRARY["scatter_add", "int32"])])
    k = key("scatter_add int32", host())
    store.put(k, Entry("scatter_add", "", built.object_code, host(), 0.1))
    program = f"""
import ctypes, pathlib, sys
import numpy as np
from tracejit.codegen.objects.linker import host, link
from tracejit.codegen.objects.store import Store, key
from tracejit.kernels.library.blocks import ScatterAdd
from tracejit.kernels.library.plan import scatter_plan
found = Store(pathlib.Path({str(store.path)!r})).get(key("scatter_add int32", host()))
address = link(found.name, found.object_code, ["kernel"])["kernel"]
x, index, out = np.arange(5, dtype="i4"), np.array([2, 0, 2, 2, 1]), np.empty(3, "i4")
plan = scatter_plan(1, 5, 1, 3)
block = np.array([5, 1, 3, *plan[:4], x.ctypes.data, index.ctypes.data, out.ctypes.data])
assert len(block) == len(ScatterAdd)
function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)(address)
assert function(block.ctypes.data, 0, plan.units, 0) == 0
assert out.tolist() == [1, 4, 5], out
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_uses_are_counted_and_order_the_entries(store):
    keys = [key(name, TARGET) for name in "abc"]
    for k in keys:
        store.put(k, make(k[:4]))
    for k in (keys[0], keys[0], keys[2]):
        store.get(k)
        time.sleep(0.02)
    entries = store.entries()
    assert [e.key for e in entries] == [keys[2], keys[0], keys[1]]
    assert [e.hits for e in entries] == [1, 2, 0]
    assert entries[0].last_used > entries[0].created
    stats = store.stats()
    assert (stats.entries, stats.hits) == (3, 3)
    assert stats.nbytes == sum(file_of(store, k).stat().st_size for k in keys)


def test_keys_depend_on_structure_target_versions_and_sources(monkeypatch):
    base = key("add", TARGET)
    assert len(base) == DIGEST
    assert base == key("add", list(TARGET))
    others = {key("mul", TARGET), key("add", ("aarch64", "", ""))}
    for name, value in [("version", lambda package: "99"), ("sources_digest", lambda: "0")]:
        with monkeypatch.context() as patch:
            patch.setattr(entry_module, name, value)
            entry_module.environment.cache_clear()
            others.add(key("add", TARGET))
        entry_module.environment.cache_clear()
    assert len({base, *others}) == 5
    assert key("add", TARGET) == base


def test_sources_digest_covers_kernels_and_codegen(monkeypatch):
    read, before = pathlib.Path.read_bytes, entry_module.sources_digest()
    for name in ("memory.py", "build.py", "text.py", "columns.py"):
        monkeypatch.setattr(
            pathlib.Path,
            "read_bytes",
            lambda self, name=name: read(self) + (b"#" if self.name == name else b""),
        )
        assert entry_module.sources_digest.__wrapped__() != before
    monkeypatch.setattr(pathlib.Path, "read_bytes", read)
    assert entry_module.sources_digest.__wrapped__() == before


def test_every_damaged_byte_and_every_truncation_is_a_miss(store):
    k, entry = key("add", TARGET), make(size=60)
    store.put(k, entry)
    good = file_of(store, k).read_bytes()
    spoiled = [good[:i] + bytes([good[i] ^ 0x41]) + good[i + 1 :] for i in range(0, len(good), 3)]
    spoiled += [good[:i] for i in range(0, len(good), 5)] + [good + b"x", b"", b"\0" * 5000]
    for data in spoiled:
        file_of(store, k).write_bytes(data)
        assert store.get(k) is None
        assert store.misses[k].startswith(("damaged", "foreign"))
        assert not file_of(store, k).exists()
    store.put(k, entry)
    assert given(store.get(k)) == given(entry)


def test_an_entry_under_another_name_is_foreign(store):
    a, b = key("a", TARGET), key("b", TARGET)
    store.put(a, make("a"))
    file_of(store, a).rename(file_of(store, b))
    assert store.get(b) is None
    assert store.misses[b] == "foreign: written under another key"


@pytest.mark.parametrize("how", ["group", "world", "owner", "link"])
def test_files_that_others_could_have_written_are_not_loaded(store, how, monkeypatch, tmp_path):
    k = key("a", TARGET)
    store.put(k, make("a"))
    file = file_of(store, k)
    if how == "owner":
        real = os.fstat, os.lstat  # the folder is ours, the file is not
        for name, status in zip(("fstat", "lstat"), real, strict=True):
            monkeypatch.setattr(
                os, name, lambda file, status=status: owned_by(os.geteuid() + 1, status(file))
            )
    elif how == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    else:
        file.chmod(0o620 if how == "group" else 0o602)
    with pytest.warns(RuntimeWarning, match="another user") if how == "owner" else nullcontext():
        assert store.get(k) is None
    monkeypatch.undo()
    assert store.misses[k].startswith("foreign")
    assert os.path.lexists(file) == (how == "owner")  # what is not ours is not removed


def test_everything_is_private(store):
    previous = os.umask(0)
    try:
        store.put(key("a", TARGET), make())
        store.get(key("a", TARGET))
    finally:
        os.umask(previous)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
    files = list(store.path.iterdir())
    assert {file.suffix for file in files} == {".kernel", ".hits"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@pytest.mark.parametrize("how", ["writable", "owner"])
def test_a_folder_that_is_not_private_is_not_used(store, how, monkeypatch):
    k = key("a", TARGET)
    store.put(k, make())
    if how == "writable":
        store.path.chmod(0o770)
    else:
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.warns(RuntimeWarning, match="not private"):
        assert store.get(k) is None
    assert "not private" in store.misses[k]
    assert "not private" in store.stats().problem
    assert store.entries() == []
    assert file_of(store, k).exists()  # it is not ours to remove
    store.put(k, make("memory"))  # no second warning
    assert store.get(k).name == "memory"
    assert [e.name for e in store.entries()] == ["memory"]


@pytest.mark.parametrize("path", ["/proc/tracejit", "/dev/null/tracejit"])
def test_a_disk_that_cannot_be_written_degrades_to_memory_with_one_warning(path):
    store = Store(pathlib.Path(path))
    a, b = key("a", TARGET), key("b", TARGET)
    with pytest.warns(RuntimeWarning, match="in memory only"):
        store.put(a, make("a"))
    store.put(b, make("b"))  # a second warning would be an error
    assert store.get(a).name == "a"
    assert {e.name for e in store.entries()} == {"a", "b"}
    assert store.stats().entries == 2
    assert store.clear() == 2
    assert store.entries() == []


def test_a_full_disk_degrades_to_memory_and_leaves_nothing_behind(tmp_path):
    program = f"""
import pathlib, resource, warnings
from tracejit.codegen.objects.store import Entry, Store, key
store = Store(pathlib.Path({str(tmp_path / "store")!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name in "ab":
        store.put(key(name, ()), Entry(name, "", bytes(10000), (), 0.0))
assert len(caught) == 1, caught
assert store.get(key("b", ())).name == "b"
assert list(store.path.iterdir()) == []
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_read_only_folder_is_still_read(store, monkeypatch):
    k = key("a", TARGET)
    store.put(k, make("a"))
    real = os.open

    def read_only(path, flags, *args, **kwargs):
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(30, "Read-only file system")
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.warns(RuntimeWarning, match="Read-only"):
        assert store.get(k).name == "a"
    assert store.get(k).name == "a"


def test_least_recently_used_entries_go_first(tmp_path):
    store = Store(tmp_path, limit=10 * 1500)
    keys = [key(str(i), TARGET) for i in range(20)]
    for k in keys[:8]:
        store.put(k, make(size=800))
    for k in keys[:2]:
        assert store.get(k) is not None
    for k in keys[8:]:
        time.sleep(0.005)
        store.put(k, make(size=800))
        assert store.get(keys[0]) is not None
    left = {e.key for e in store.entries()}
    assert keys[0] in left
    assert keys[-1] in left
    assert keys[3] not in left
    assert 8 <= len(left) < 15
    assert sum(file.stat().st_size for file in tmp_path.glob("*.kernel")) <= store.limit
    assert {file.stem for file in tmp_path.glob("*.hits")} <= left


def test_puts_do_not_look_at_every_file(store, monkeypatch):
    real, looks = os.scandir, []
    monkeypatch.setattr(os, "scandir", lambda path: looks.append(path) or real(path))
    for i in range(200):
        store.put(key(str(i), TARGET), make(size=800))
    assert len(looks) == 1
    full = Store(store.path, limit=200 * 1500)
    for i in range(200, 600):
        full.put(key(str(i), TARGET), make(size=800))
    assert len(looks) < 140
    assert sum(file.stat().st_size for file in store.path.glob("*.kernel")) <= full.limit * (1 + 1 / 64)


def test_unfinished_files_of_dead_processes_are_removed(store):
    store.put(key("a", TARGET), make())
    old, new, other = (store.path / f"{name}.partial" for name in ("0" * 16, "1" * 16, "download"))
    for file in (old, new, other):
        file.write_bytes(b"half")
    for file in (old, other):
        os.utime(file, (0, 0))
    Store(store.path).put(key("b", TARGET), make())  # the first of a process
    assert (old.exists(), new.exists(), other.exists()) == (False, True, True)


def test_verify_removes_what_is_bad_and_clear_only_what_is_ours(store):
    keys = [key(name, TARGET) for name in "abc"]
    for k in keys:
        store.put(k, make())
    other = store.path / "notes.txt"
    other.write_text("mine")
    with open(file_of(store, keys[1]), "r+b") as file:
        file.seek(len(MAGIC) + DIGEST + 50)
        file.write(b"?")
    assert store.verify() == ({keys[1]: "damaged: wrong checksum"}, {})
    assert store.verify() == ({}, {})
    assert {e.key for e in store.entries()} == {keys[0], keys[2]}
    store.get(keys[0])
    assert store.clear() == 2
    assert list(store.path.iterdir()) == [other]


def test_why_names_what_changed(store, monkeypatch):
    assert store.why("unknown") is None
    k = key("add", TARGET)
    store.get(k)
    assert store.why(k) == "never compiled"
    with monkeypatch.context() as patch:
        patch.setattr(entry_module, "version", lambda package: "0.0.1")
        entry_module.environment.cache_clear()
        store.put(key("add", TARGET), make())
    entry_module.environment.cache_clear()
    store.get(k)
    assert "compiled for another environment" in store.why(k)
    assert "numba 0.0.1 is now" in store.why(k)
    store.clear()
    store.put(key("add", ("other machine",)), make()._replace(target=("other machine",)))
    assert store.why(k) == "compiled for another environment: another machine"


def test_processes_and_threads_may_use_one_folder_at_once(store):
    program = f"""
import os, pathlib, random, sys, threading
from tracejit.codegen.objects.store import Entry, Store, key
store = Store(pathlib.Path({str(store.path)!r}), limit=40 * 2000)
def work(seed):
    rng = random.Random(seed)
    for _ in range(150):
        n = rng.randrange(60)
        k, content = key(str(n), ()), bytes([n]) * rng.randrange(1, 3000)
        found = store.get(k)
        assert found is None or set(found.object_code) == {{n}}, found
        if found is None or rng.random() < 0.3:
            store.put(k, Entry(str(n), "", content, (), 0.0))
        if rng.random() < 0.05:
            store.entries()
threads = [threading.Thread(target=work, args=(int(sys.argv[1]) * 10 + i,)) for i in range(2)]
failures = []
threading.excepthook = failures.append
for t in threads: t.start()
for t in threads: t.join()
assert not failures and store.problem is None, (failures, store.problem)
assert set(store.misses.values()) <= {{"absent"}}, store.misses
"""
    processes = [subprocess.Popen([sys.executable, "-W", "error", "-c", program, str(i)]) for i in range(4)]
    assert [p.wait() for p in processes] == [0] * 4
    assert store.verify() == ({}, {})
    assert not list(store.path.glob("*.partial"))


def test_loading_costs_a_few_calls_whatever_the_size(store):
    small, large = key("a", TARGET), key("b", TARGET)
    store.put(small, make(size=20))
    store.put(large, make(size=2_000_000))
    assert max(calls(lambda k=k: store.get(k)) for k in (small, large)) < 150
    assert store.hits == 2


def test_counters_are_right_under_threads(store):
    k = key("a", TARGET)
    store.put(k, make())
    threads = [threading.Thread(target=lambda: [store.get(k) for _ in range(50)]) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert store.hits == 200
    assert store.entries()[0].hits == 200


def test_metadata_must_be_plain(store):
    with pytest.raises(TypeError):
        store.put(key("a", TARGET), make(bad=object()))
    assert store.entries() == []


def failing(monkeypatch, name, number, matches=lambda path: True):
    """Have `os.name` fail as it does on a disk of some kind."""
    real = getattr(os, name)

    def fail(path, *args, **kwargs):
        if matches(path):
            raise OSError(number, os.strerror(number), path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("damaged", [True, False])
def test_what_is_bad_and_cannot_be_removed_is_a_miss_said_once(store, monkeypatch, number, damaged):
    a, b = key("a", TARGET), key("b", TARGET)
    for k in (a, b):
        store.put(k, make())
        file = file_of(store, k)
        if damaged:
            file.write_bytes(file.read_bytes()[:-1])
        else:
            file.chmod(0o622)
    failing(monkeypatch, "unlink", number)
    with pytest.warns(RuntimeWarning, match="in memory only"):
        assert store.get(a) is None
    assert store.get(a) is store.get(b) is None  # a second warning would be an error
    assert store.misses[a].startswith("damaged: wrong" if damaged else "foreign: others")
    assert "not removed" in store.misses[a]
    assert sorted(store.verify().left) == sorted((a, b))
    assert store.clear() == 0
    store.put(a, make("new"))
    assert store.get(a).name == "new"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EMFILE])
def test_a_disk_that_takes_nothing_degrades_to_memory(store, monkeypatch, number):
    k = key("a", TARGET)
    store.put(k, make("a"))
    failing(monkeypatch, "replace", number)
    with pytest.warns(RuntimeWarning, match=os.strerror(number)):
        store.put(key("b", TARGET), make("b"))
    assert [store.get(key(name, TARGET)).name for name in "ab"] == ["a", "b"]
    assert not list(store.path.glob("*.partial"))


def put_there(file, what):
    """Something in the place of an entry; what has to be kept until the end of the test."""
    if what == "folder":
        file.mkdir()
        (file / "photo").write_text("mine")
    elif what == "fifo":
        os.mkfifo(file)
    elif what == "socket":
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(os.path.relpath(file))  # the length of a path is limited
        return listening
    else:
        with open(file, "wb") as sparse:
            sparse.truncate(1 << 40)


@pytest.mark.parametrize("what", ["folder", "fifo", "socket", "huge"])
def test_what_is_no_entry_is_a_miss_and_in_nobodys_way(store, monkeypatch, what):
    k, good = key("a", TARGET), key("b", TARGET)
    store.put(good, make("b"))
    monkeypatch.chdir(store.path)
    file = file_of(store, k)
    kept = [put_there(file, what)]
    assert [entry.name for entry in store.entries()] == ["b"]
    removed, left = store.verify()
    assert list(left if what == "folder" else removed) == [k]
    assert os.path.lexists(file) == (what == "folder")
    if what != "folder":
        kept.append(put_there(file, what))
    with pytest.warns(RuntimeWarning, match="folder") if what == "folder" else nullcontext():
        assert store.get(k) is None
    assert store.misses[k].startswith("damaged: " if what == "huge" else "foreign: not a file")
    store.put(k, make("a"))
    assert store.get(k).name == "a"
    assert store.clear() == 2
    assert os.path.exists(file / "photo") == (what == "folder")
    for listening in filter(None, kept):
        listening.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda header: [1],
        lambda header: None,
        lambda header: {**header, "name": 3},
        lambda header: {**header, "target": "x86"},
        lambda header: {**header, "seconds": "long"},
        lambda header: {**header, "metadata": []},
        lambda header: {**header, "environment": {"python": 3}},
        lambda header: {**header, "created": None},
        lambda header: {**header, "sizes": [1, 1]},
        lambda header: {**header, "sizes": [-1, 1]},
        lambda header: {**header, "sizes": ["a", "b"]},
        *(
            lambda header, gone=gone: {n: v for n, v in header.items() if n != gone}
            for gone in entry_module.HEADER
        ),
        lambda header: {n: v for n, v in header.items() if n != "key"},
        lambda header: "[" * 100_000,
    ],
)
def test_a_right_checksum_around_something_else_is_a_miss(store, change):
    k = key("a", TARGET)
    line, _, content = entry_module.encode(k, make()).split(b"\n", 2)[2].partition(b"\n")
    changed = change(json.loads(line))
    text = changed if isinstance(changed, str) else json.dumps(changed)
    body = text.encode() + b"\n" + content
    store.put(k, make())
    file_of(store, k).write_bytes(MAGIC + entry_module._digest(body).encode() + b"\n" + body)
    assert store.get(k) is None
    assert store.misses[k].startswith("damaged: not as it was written")
    assert not file_of(store, k).exists()


def test_only_files_of_ours_are_removed_from_a_folder(store, monkeypatch):
    keys = [key(name, TARGET) for name in "abc"]
    for k in keys:
        store.put(k, make())
    others = [store.path / name for name in ("linux.kernel", "song.hits", f"{keys[0]}.kernel.bak")]
    for file in others:
        file.write_text("mine")
        os.utime(file, (0, 0))
    foreign = file_of(store, keys[0])
    os.utime(foreign, (0, 0))
    real = os.lstat
    user = os.geteuid()
    if user == 0:
        os.chown(foreign, 12345, -1)
    else:
        monkeypatch.setattr(os, "lstat", lambda f: owned_by(user + (str(f) == str(foreign)), real(f)))
    Store(store.path, limit=0).put(key("d", TARGET), make())
    assert all(file.exists() for file in others)
    if user == 0:
        assert foreign.exists()
        assert list(store.verify().left) == [keys[0]]
    with pytest.warns(RuntimeWarning, match="another user"):
        store.clear()
    assert all(file.exists() for file in (*others, foreign))


def test_a_folder_that_is_not_private_is_neither_verified_nor_cleared(store):
    store.put(key("a", TARGET), make())
    store.path.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="not private"):
        assert store.verify() == ({}, {})
    assert store.clear() == 0
    assert file_of(store, key("a", TARGET)).exists()


def test_without_a_folder_entries_stay_in_memory(monkeypatch):
    store = Store(None)
    with pytest.warns(RuntimeWarning, match="no home folder"):
        assert store.get(key("a", TARGET)) is None
    store.put(key("a", TARGET), make("a"))
    assert store.get(key("a", TARGET)).name == "a"
    assert (store.stats().path, store.stats().entries) == (None, 1)
    assert "no home folder" in store.stats().problem
    monkeypatch.setattr(store_module, "REMEMBERED", 3)
    for number in range(9):
        store.get(key(f"missing {number}", TARGET))
        store.put(key(str(number), TARGET), make())
    assert len(store.misses) <= 3
    assert store.clear() <= 4


def test_a_fifo_in_the_place_of_uses_is_no_obstacle(store):
    k = key("a", TARGET)
    store.put(k, make("a"))
    os.mkfifo(store.path / f"{k}.hits")
    with pytest.warns(RuntimeWarning, match="hits"):
        assert store.get(k).name == "a"
