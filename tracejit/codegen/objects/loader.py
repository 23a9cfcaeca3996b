"""Kernels as addresses: from memory, from the kernel store, or from the compiler.

A `Recipe` says what a kernel is (its structure, whose text the store's key hashes) and how its source comes
about. `load` turns recipes into `Kernel`s. What always holds:

- A structure is compiled once, however many threads request it: the first one makes a promise, the others
  wait for it. A failed compile leaves nothing behind, so the next request tries again.
- A kernel's code stays in the process as long as anybody refers to the `Kernel`, as programs do, which are
  referred to while a launch is in flight. Besides, the `KEPT` kernels that were requested last are kept.
- LLVM is loaded with the first kernel (see `linker`). Numba and llvmlite are imported only when
  something must be compiled, by `_heavy`, the lazy gate of the package: a second process that finds its
  kernels in the store never pays for them.
- Of several kernels, LLVM works on one while Numba's front end, which is Python, works on the next.
- A fork waits for no compile, which may need a lock that the fork holds (any library may take locks before a
  fork). A child that was forked during one has Numba's locks taken for good: it discards the promises that no
  thread will fulfil, and has its kernels compiled by another process.

    (kernel, origin), = load([Recipe("add", spec, lambda: emit(spec))])
    kernel.addresses["kernel"], origin       # "compiled", "loaded" (from the store) or "memory"
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from tracejit import collector
from tracejit.codegen.objects import linker
from tracejit.codegen.objects.entry import Entry, key
from tracejit.codegen.objects.store import Store
from tracejit.config import config
from tracejit.errors import EngineError
from tracejit.forking import make_lock

if TYPE_CHECKING:
    import queue

SLOW = 1.0
"""Seconds after which a compile says that it runs."""

KEPT = 512
"""Kernels that stay in memory for the next program: each takes two mappings of memory and 50 KiB or more."""

INTERVAL = 2e-4
"""Seconds after which, during a compile, a thread gives Python's lock to another one that waits for it."""


class Recipe(NamedTuple):
    """The description of a kernel. `source` returns executable Python that defines the functions `symbols`.

    Equal `structure`s are one kernel; ``repr(structure)`` is canonical. `entries` is for functions with
    another signature than a kernel's: a module and an attribute, a list of (name, function, signature).
    `handwritten`: made of functions in this package, many short ones, on which Numba works longer than LLVM;
    for a generated kernel, one long function, it is the other way round.
    """

    name: str
    structure: Hashable
    source: Callable[[], str]
    symbols: tuple[str, ...] = ("kernel",)
    entries: tuple[str, str] | None = None
    handwritten: bool = False


class Kernel:
    """Machine code in this process, for as long as somebody refers to this object. `seconds`: to compile it;
    `width`: elements in its widest vector.
    """

    def __init__(
        self, name: str, key: str, source: str, origin: str, seconds: float, width: int, code: linker.Code
    ) -> None:
        self.name, self.key, self.source, self.origin = name, key, source, origin
        self.seconds, self.width, self._code = seconds, width, code

    @property
    def addresses(self) -> Mapping[str, int]:
        """The addresses of its functions, by their names."""
        return self._code.addresses


class Promise:
    """A kernel that one thread makes, for all that request it.

    A signal handler may raise between any two steps, in the thread that makes the kernel or in one that
    waits; all others must go on. (`threading.Event` could keep its lock forever.)
    """

    def __init__(self) -> None:
        self._kernel: Kernel | None = None
        self._error: BaseException | None = None
        self._waiting: list[queue.SimpleQueue[None]] = []

    def keep(self, kernel: Kernel) -> None:
        """Fulfil the promise with a kernel."""
        self._kernel = kernel
        self.wake()

    def fail(self, error: BaseException) -> None:
        """Break the promise: whoever waits raises `error`."""
        self._error = error
        self.wake()

    def wake(self) -> None:
        """Wake all waiting threads; idempotent."""
        for waiting in list(self._waiting):
            waiting.put(None)

    def done(self) -> bool:
        """Whether it is fulfilled or has failed."""
        return self._kernel is not None or self._error is not None

    def result(self) -> Kernel:
        """The kernel, when it is there."""
        if not self.done():
            import queue  # not needed where all kernels are in the store

            waiting: queue.SimpleQueue[None] = queue.SimpleQueue()
            self._waiting.append(waiting)
            if not self.done():  # else `waiting` may never be woken
                waiting.get()
        if self._kernel is None:
            assert self._error is not None
            raise self._error
        return self._kernel


Promised = tuple[Recipe, Promise]

_lock = make_lock()
_kernels: OrderedDict[Hashable, Promise] = OrderedDict()  # the one requested last comes last
_alive: WeakValueDictionary[Hashable, Kernel] = WeakValueDictionary()  # all that anybody refers to
_store: Store | None = None
_compiling = threading.RLock()  # held while Numba and LLVM are at work


def store() -> Store:
    """The process's kernel store, at `config.store`."""
    global _store
    with _lock:
        if _store is None or _store.path != config.store:
            _store = Store(config.store, config.store_limit)
        return _store


def forget() -> None:
    """Forget the kernels in memory, so that they are looked up in the store again; those that a program
    refers to stay valid.
    """
    with _lock:
        _kernels.clear()
        _alive.clear()


_forking: set[int] = set()  # threads that fork while no other one compiles
_torn = False  # this process was forked while another thread compiled: it cannot compile by itself
_usual_interval: float | None = None  # the switch interval outside of a compile that runs now


def _before_fork() -> None:
    if _compiling.acquire(blocking=False):
        _forking.add(threading.get_ident())
    linker.hold()


def _after_fork() -> None:
    linker.let_go()
    if threading.get_ident() in _forking:
        _forking.discard(threading.get_ident())
        _compiling.release()


def _start_anew_after_fork() -> None:
    """Reset a forked child, where the threads that promised kernels or compiled are gone."""
    global _compiling, _torn
    linker.start_anew()
    if threading.get_ident() in _forking:
        _compiling.release()
    else:
        _compiling, _torn = threading.RLock(), True
        if _usual_interval is not None:
            sys.setswitchinterval(_usual_interval)
    _forking.clear()
    collector.wake()  # a pause that another thread began would never end
    for structure, promise in list(_kernels.items()):
        if not promise.done():
            del _kernels[structure]


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_start_anew_after_fork)


def load(recipes: Sequence[Recipe]) -> list[tuple[Kernel, str]]:
    """The kernels of `recipes`, and where each came from this time."""
    structures = [id(recipe.structure) for recipe in recipes]  # hashing one is slow; most are one object
    distinct = dict(zip(structures, recipes, strict=True))
    found = dict(zip(distinct, _load(list(distinct.values())), strict=True))
    again = {structure: (kernel, "memory") for structure, (kernel, _) in found.items()}
    return [found.pop(structure) if structure in found else again[structure] for structure in structures]


def _load(recipes: Sequence[Recipe]) -> list[tuple[Kernel, str]]:
    """Load kernels as `load` does; most of the recipes differ."""
    mine: list[Promised] = []
    promises = []
    try:
        with _lock:
            for recipe in recipes:
                promise = _kernels.get(recipe.structure)
                if promise is None:
                    promise = Promise()
                    living = _alive.get(recipe.structure)
                    if living is None:
                        mine.append((recipe, promise))  # first: if this is aborted, nobody requests it
                    else:
                        promise.keep(living)
                    _kernels[recipe.structure] = promise
                _kernels.move_to_end(recipe.structure)
                promises.append(promise)
        if mine:
            _fulfil(mine)
    except BaseException as error:  # an interrupt, too
        for recipe, promise in mine:
            if not promise.done():
                _break(recipe, promise, error)
            promise.wake()
        raise
    kernels = [promise.result() for promise in promises]
    _remember(recipes, kernels)
    first = {promise: recipe for recipe, promise in mine}
    origins = []
    for promise, kernel in zip(promises, kernels, strict=True):
        origins.append("memory" if first.pop(promise, None) is None else kernel.origin)
    return list(zip(kernels, origins, strict=True))


def _remember(recipes: Sequence[Recipe], kernels: Sequence[Kernel]) -> None:
    """Keep these kernels, and release those that nobody has requested since `KEPT` others."""
    with _lock:
        for recipe, kernel in zip(recipes, kernels, strict=True):
            _alive[recipe.structure] = kernel
        surplus = len(_kernels) - KEPT
        if surplus > 0:
            oldest = [structure for structure, promise in _kernels.items() if promise.done()]
            for structure in oldest[:surplus]:
                del _kernels[structure]


def _fulfil(promised: Sequence[Promised]) -> None:
    """Load or compile the kernels that this thread has promised."""
    missing = []
    for recipe, promise in promised:
        kernel = _stored(recipe)
        if kernel is None:
            missing.append((recipe, promise))
        else:
            promise.keep(kernel)
    if missing and _torn:
        with _compiling, _announced(len(missing)):
            _compile_elsewhere(missing)
    elif missing:
        with _compiling, _announced(len(missing)), _in_a_hurry():
            _compile(missing)


def _break(recipe: Recipe, promise: Promise, error: BaseException) -> None:
    """Forget a promise that has failed, so that the next request tries again."""
    with _lock:
        _kernels.pop(recipe.structure, None)
    promise.fail(error)


def is_known(recipe: Recipe) -> bool:
    """Whether a kernel is in memory or in the store, where it has not been read, so it may be damaged."""
    return recipe.structure in _kernels or store().has(_key(recipe))


def _key(recipe: Recipe) -> str:
    return key(repr(recipe.structure), linker.host())


def _stored(recipe: Recipe) -> Kernel | None:
    """The kernel that the store has; None if there is none, or one that cannot be loaded."""
    where = store()
    entry = where.get(_key(recipe))
    if entry is None:
        return None
    try:
        kernel = _linked(entry, "loaded")
        if recipe.entries is None and not kernel.addresses.keys() >= set(recipe.symbols):
            raise LookupError(f"has {', '.join(kernel.addresses)}, not {', '.join(recipe.symbols)}")
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        where.reject(entry.key, f"damaged: cannot be loaded ({type(error).__name__}: {error})")
        return None
    return kernel


def _linked(entry: Entry, origin: str) -> Kernel:
    code = linker.load(entry.name, entry.object_code, entry.metadata["symbols"])
    width = int(entry.metadata["width"])
    return Kernel(entry.name, entry.key, entry.source, origin, entry.seconds, width, code)


def _heavy(module: str) -> Any:
    """Import a module that needs Numba or llvmlite: the gate."""
    return importlib.import_module(module)


def compiler() -> Any:
    """The module that makes kernels for GPUs: `tracejit.codegen.objects.ptx`."""
    return _heavy("tracejit.codegen.objects.ptx")


# ------------------------------------------------------------------------------------------------ compilation


class Drafted(NamedTuple):
    """A kernel between Numba and LLVM."""

    recipe: Recipe
    source: str
    draft: Any
    seconds: float


def _compile(missing: Sequence[Promised]) -> None:
    """Compile: Numba's part in this thread, LLVM's in another, a kernel behind. Those that take LLVM longer
    come first: LLVM finishes them while Numba works on the others (S. M. Johnson, "Optimal two- and
    three-stage production schedules with setup times included", 1954).
    """
    import queue  # not needed where all kernels are in the store

    drafts: queue.SimpleQueue[tuple[Promise, Drafted] | None] = queue.SimpleQueue()
    finisher = threading.Thread(target=_finish_all, args=(drafts,), name="tracejit compiler", daemon=True)
    finisher.start()
    try:
        for recipe, promise in sorted(missing, key=lambda promised: promised[0].handwritten):
            drafts.put((promise, _drafted(recipe)))
        collector.collect_young()  # else all that Numba left is traversed when the pause ends
    finally:
        drafts.put(None)
        finisher.join()


@contextmanager
def _in_a_hurry() -> Iterator[None]:
    """Settings of the interpreter for a compile. LLVM's thread needs Python's lock between LLVM's functions,
    and would wait for 5 ms each time.
    """
    global _usual_interval
    _usual_interval = interval = sys.getswitchinterval()
    sys.setswitchinterval(INTERVAL)
    try:
        with collector.at_rest():
            yield
    finally:
        sys.setswitchinterval(interval)
        _usual_interval = None


def _finish_all(drafts: queue.SimpleQueue[tuple[Promise, Drafted] | None]) -> None:
    """The main function of the thread for LLVM's part."""
    while (item := drafts.get()) is not None:
        promise, drafted = item
        try:
            promise.keep(_finished(drafted))
        except BaseException as error:
            _break(drafted.recipe, promise, error)


def _drafted(recipe: Recipe) -> Drafted:
    """Numba's part."""
    start = time.perf_counter()
    build, source = _heavy("tracejit.codegen.objects.build"), recipe.source()
    draft = build.draft(_functions(recipe, source, build.EntryPoint))
    return Drafted(recipe, source, draft, time.perf_counter() - start)


def _functions(recipe: Recipe, source: str, entry: Callable[..., Any]) -> list[Any]:
    """The functions to compile."""
    if recipe.entries is not None:
        module, attribute = recipe.entries
        return [entry(*item) for item in getattr(_heavy(module), attribute)]
    namespace: dict[str, Any] = {}
    exec(compile(source, f"<kernel {recipe.name}>", "exec"), namespace)
    return [entry(symbol, namespace[symbol]) for symbol in recipe.symbols]


def _finished(drafted: Drafted) -> Kernel:
    """LLVM's part; the result goes into the store."""
    return _put(_entry(drafted))


def _put(entry: Entry) -> Kernel:
    """Store what was compiled, and link it."""
    store().put(entry.key, entry)
    return _linked(entry, "compiled")


def _entry(drafted: Drafted) -> Entry:
    start = time.perf_counter()
    listing = _heavy("tracejit.codegen.objects.listing")
    built = listing.build.finish(drafted.draft)
    return Entry(
        name=drafted.recipe.name,
        source=drafted.source,
        object_code=built.object_code,
        target=linker.host(),
        seconds=drafted.seconds + time.perf_counter() - start,
        metadata={"symbols": list(drafted.draft.names), "width": listing.vector_width(built.llvm_ir)},
        key=_key(drafted.recipe),
    )


# ----------------------------------------------------------------------------- compilation by another process


def _compile_elsewhere(missing: Sequence[Promised]) -> None:
    """Compile in a new process. Only what needs no module that the parent may have been importing is used."""
    if not sys.executable:
        raise EngineError(
            "this process was forked while another thread compiled kernels, and there is no executable of "
            "Python to compile in another process; fork before the first call, or spawn processes"
        )
    wanted = [(r.name, r.structure, r.source(), r.symbols, r.entries) for r, _ in missing]
    program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
    ours_to_theirs, theirs_to_ours = os.pipe(), os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, ours_to_theirs[0], 0),
        (os.POSIX_SPAWN_DUP2, theirs_to_ours[1], 1),
    ]
    try:
        process = os.posix_spawn(
            sys.executable, [sys.executable, "-c", program], os.environ, file_actions=actions
        )
    finally:
        os.close(ours_to_theirs[0])
        os.close(theirs_to_ours[1])
    with open(ours_to_theirs[1], "wb") as request, open(theirs_to_ours[0], "rb") as answer:
        pickle.dump(wanted, request)
        request.close()
        given = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status or not given:
        raise EngineError(f"the process that compiles for this forked one ended with status {status}")
    for (recipe, promise), made in zip(missing, pickle.loads(given), strict=True):
        if isinstance(made, str):
            _break(recipe, promise, EngineError(f"kernel {recipe.name!r} could not be compiled:\n{made}"))
        else:
            promise.keep(_put(Entry(**made)))


def serve() -> None:
    """Compile the requests on standard input: the main function of the new process."""
    import traceback

    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text is no part of the answer
    made: list[dict[str, Any] | str] = []
    for name, structure, source, symbols, entries in pickle.load(sys.stdin.buffer):
        try:
            entry = _entry(_drafted(Recipe(name, structure, partial(str, source), symbols, entries)))
            made.append({**entry._asdict(), "metadata": dict(entry.metadata), "environment": {}})
        except Exception:
            made.append(traceback.format_exc())
    with answer:
        pickle.dump(made, answer)


@contextmanager
def _announced(count: int) -> Iterator[None]:
    """Report a long compile, where standard error is a terminal or `config.verbose` is set."""
    if not (config.verbose or sys.stderr.isatty()):
        yield
        return
    text = f"tracejit: compiling {count} kernel{'s' * (count != 1)} ..."
    timer = threading.Timer(SLOW, print, [text], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
