"""Loading of kernels as addresses: from memory, from the kernel store, or from the compiler.

A `Recipe` describes a kernel: its structure, whose text the store's key hashes, and the generator of its
source. `load` turns recipes into `Kernel`s. Invariants:

- A structure is compiled once, even if several threads request it: the first one creates a promise, and the
  others wait for it. A failed compilation is forgotten, so the next request tries again.
- A kernel's code stays in the process as long as its `Kernel` is referenced. Programs reference their
  kernels, and are referenced while a launch is in flight. In addition, the `KEPT` most recently requested
  kernels are retained.
- LLVM is loaded with the first kernel (see `linker`). Numba and llvmlite are imported only when a kernel must
  be compiled, by `_import_heavy`, the only lazy import of the package: a second process that finds its
  kernels in the store never pays for them.
- Compilation is pipelined: LLVM processes one kernel while Numba's front end, which is Python, processes the
  next.
- A fork does not wait for a compilation, which may need a lock that the forking thread holds (any library may
  acquire locks before a fork). In a child that was forked during a compilation, Numba's locks remain locked
  forever: the child discards the promises that no thread will fulfil, and compiles in another process.

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
"""The time in seconds after which a running compilation is reported."""

KEPT = 512
"""The number of kernels retained in memory for later programs. Each takes two memory mappings and at least
50 KiB.
"""

INTERVAL = 2e-4
"""The interpreter's switch interval in seconds during a compilation: the time after which a thread passes
the GIL to a waiting one.
"""


class Recipe(NamedTuple):
    """The description of a kernel. `source` returns executable Python that defines the functions
    `symbols`.

    Recipes with equal `structure`s describe the same kernel; ``repr(structure)`` is canonical. `entries`
    is for functions that are not kernels: a module and an attribute, a list of (name, word function).
    `handwritten`: the kernel consists of typed functions in this package, many short ones, on which Numba
    takes longer than LLVM. For a generated kernel, one long function, and for word functions, the opposite
    holds.
    """

    name: str
    structure: Hashable
    source: Callable[[], str]
    symbols: tuple[str, ...] = ("kernel",)
    entries: tuple[str, str] | None = None
    handwritten: bool = False


class Kernel:
    """Machine code in this process, valid as long as this object is referenced. `seconds`: the compile
    time; `width`: the number of elements in its widest vector.
    """

    def __init__(
        self, name: str, key: str, source: str, origin: str, seconds: float, width: int, code: linker.Code
    ) -> None:
        self.name, self.key, self.source, self.origin = name, key, source, origin
        self.seconds, self.width, self._code = seconds, width, code

    @property
    def addresses(self) -> Mapping[str, int]:
        """The addresses of the kernel's functions, by their names."""
        return self._code.addresses


class Promise:
    """A kernel that one thread produces for all threads that request it.

    A signal handler may raise between any two steps, in the producing thread or in a waiting one; all
    other threads must continue. (`threading.Event` could leave its lock locked forever.)
    """

    def __init__(self) -> None:
        self._kernel: Kernel | None = None
        self._error: BaseException | None = None
        self._waiting: list[queue.SimpleQueue[None]] = []

    def fulfil(self, kernel: Kernel) -> None:
        """Fulfil the promise with a kernel."""
        self._kernel = kernel
        self.wake()

    def fail(self, error: BaseException) -> None:
        """Fail the promise: all waiting threads raise `error`."""
        self._error = error
        self.wake()

    def wake(self) -> None:
        """Wake all waiting threads. Idempotent."""
        for wakeup in list(self._waiting):
            wakeup.put(None)

    def done(self) -> bool:
        """Return whether the promise is fulfilled or has failed."""
        return self._kernel is not None or self._error is not None

    def result(self) -> Kernel:
        """Wait for the kernel and return it."""
        if not self.done():
            import queue  # not needed if all kernels are in the store

            wakeup: queue.SimpleQueue[None] = queue.SimpleQueue()
            self._waiting.append(wakeup)
            if not self.done():  # otherwise nothing may be put into `wakeup`
                wakeup.get()
        if self._kernel is None:
            assert self._error is not None
            raise self._error
        return self._kernel


Promised = tuple[Recipe, Promise]

_lock = make_lock()
_kernels: OrderedDict[Hashable, Promise] = OrderedDict()  # in order of the latest request
_alive: WeakValueDictionary[Hashable, Kernel] = WeakValueDictionary()  # all referenced kernels
_store: Store | None = None
_compiling = threading.RLock()  # held while Numba and LLVM compile


def store() -> Store:
    """Return the process's kernel store, at `config.store`."""
    global _store
    with _lock:
        if _store is None or _store.path != config.store:
            _store = Store(config.store, config.store_limit)
        return _store


def forget() -> None:
    """Forget the kernels in memory, so that they are looked up in the store again. Kernels that a program
    references stay valid.
    """
    with _lock:
        _kernels.clear()
        _alive.clear()


_forking: set[int] = set()  # threads that fork while no other thread compiles
_cannot_compile = False  # this process was forked while another thread compiled
_saved_interval: float | None = None  # the switch interval to restore after a running compilation


def _before_fork() -> None:
    if _compiling.acquire(blocking=False):
        _forking.add(threading.get_ident())
    linker.block()


def _after_fork() -> None:
    linker.unblock()
    if threading.get_ident() in _forking:
        _forking.discard(threading.get_ident())
        _compiling.release()


def _after_fork_in_child() -> None:
    """Reset a forked child, in which the threads that promised or compiled kernels do not exist."""
    global _compiling, _cannot_compile
    linker.reset_in_child()
    if threading.get_ident() in _forking:
        _compiling.release()
    else:
        _compiling, _cannot_compile = threading.RLock(), True
        if _saved_interval is not None:
            sys.setswitchinterval(_saved_interval)
    _forking.clear()
    collector.wake()  # a pause begun by another thread would never end
    for structure, promise in list(_kernels.items()):
        if not promise.done():
            del _kernels[structure]


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def load(recipes: Sequence[Recipe]) -> list[tuple[Kernel, str]]:
    """Return the kernels of `recipes`, with the origin of each in this call."""
    structures = [
        id(recipe.structure) for recipe in recipes
    ]  # structures are slow to hash; most are one object
    distinct = dict(zip(structures, recipes, strict=True))
    loaded = dict(zip(distinct, _load(list(distinct.values())), strict=True))
    repeated = {structure: (kernel, "memory") for structure, (kernel, _) in loaded.items()}
    return [loaded.pop(structure) if structure in loaded else repeated[structure] for structure in structures]


def _load(recipes: Sequence[Recipe]) -> list[tuple[Kernel, str]]:
    """Implement `load` for recipes that are mostly distinct."""
    own: list[Promised] = []
    promises = []
    try:
        with _lock:
            for recipe in recipes:
                promise = _kernels.get(recipe.structure)
                if promise is None:
                    promise = Promise()
                    alive = _alive.get(recipe.structure)
                    if alive is None:
                        own.append((recipe, promise))  # first: after an interrupt here, nobody waits for it
                    else:
                        promise.fulfil(alive)
                    _kernels[recipe.structure] = promise
                _kernels.move_to_end(recipe.structure)
                promises.append(promise)
        if own:
            _fulfil(own)
    except BaseException as error:  # including an interrupt
        for recipe, promise in own:
            if not promise.done():
                _fail(recipe, promise, error)
            promise.wake()
        raise
    kernels = [promise.result() for promise in promises]
    _remember(recipes, kernels)
    produced = {promise: recipe for recipe, promise in own}
    origins = []
    for promise, kernel in zip(promises, kernels, strict=True):
        origins.append("memory" if produced.pop(promise, None) is None else kernel.origin)
    return list(zip(kernels, origins, strict=True))


def _remember(recipes: Sequence[Recipe], kernels: Sequence[Kernel]) -> None:
    """Retain these kernels, and drop the least recently requested ones beyond `KEPT`."""
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
            promise.fulfil(kernel)
    if missing and _cannot_compile:
        with _compiling, _progress_message(len(missing)):
            _compile_in_new_process(missing)
    elif missing:
        with _compiling, _progress_message(len(missing)), _compile_settings():
            _compile(missing)


def _fail(recipe: Recipe, promise: Promise, error: BaseException) -> None:
    """Forget a promise that has failed, so that the next request tries again."""
    with _lock:
        _kernels.pop(recipe.structure, None)
    promise.fail(error)


def is_known(recipe: Recipe) -> bool:
    """Return whether a kernel is in memory or in the store. An entry of the store is not read, so it may
    be damaged.
    """
    return recipe.structure in _kernels or store().has(_key(recipe))


def _key(recipe: Recipe) -> str:
    return key(repr(recipe.structure), linker.host())


def _stored(recipe: Recipe) -> Kernel | None:
    """Return the stored kernel, or None if there is none or it cannot be loaded."""
    kernel_store = store()
    entry = kernel_store.get(_key(recipe))
    if entry is None:
        return None
    try:
        kernel = _linked(entry, "loaded")
        if recipe.entries is None and not kernel.addresses.keys() >= set(recipe.symbols):
            raise LookupError(f"has {', '.join(kernel.addresses)}, not {', '.join(recipe.symbols)}")
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        kernel_store.reject(entry.key, f"damaged: cannot be loaded ({type(error).__name__}: {error})")
        return None
    return kernel


def _linked(entry: Entry, origin: str) -> Kernel:
    code = linker.load(entry.name, entry.object_code, entry.metadata["symbols"])
    width = int(entry.metadata["width"])
    return Kernel(entry.name, entry.key, entry.source, origin, entry.seconds, width, code)


def _import_heavy(module: str) -> Any:
    """Import a module that needs Numba or llvmlite. All such imports of the package go through this
    function.
    """
    return importlib.import_module(module)


def compiler() -> Any:
    """Return the module that compiles kernels for GPUs: `tracejit.codegen.objects.ptx`."""
    return _import_heavy("tracejit.codegen.objects.ptx")


# ------------------------------------------------------------------------------------------------ compilation


class Drafted(NamedTuple):
    """A kernel between Numba's and LLVM's half of its compilation."""

    recipe: Recipe
    source: str
    draft: Any
    seconds: float


def _compile(missing: Sequence[Promised]) -> None:
    """Compile: Numba's half runs in this thread, LLVM's half in another one, one kernel behind. Kernels
    that take LLVM longer come first: LLVM finishes them while Numba works on the others (S. M. Johnson,
    "Optimal two- and three-stage production schedules with setup times included", 1954).
    """
    import queue  # not needed if all kernels are in the store

    drafts: queue.SimpleQueue[tuple[Promise, Drafted] | None] = queue.SimpleQueue()
    finisher = threading.Thread(target=_finish_all, args=(drafts,), name="tracejit compiler", daemon=True)
    is_parallel = True
    try:
        finisher.start()
    except RuntimeError:  # the interpreter shuts down and starts no more threads
        is_parallel = False
    try:
        for recipe, promise in sorted(missing, key=lambda promised: promised[0].handwritten):
            drafts.put((promise, _drafted(recipe)))
        collector.collect_young()  # otherwise everything Numba allocated is traversed when the pause ends
    finally:
        drafts.put(None)
        if is_parallel:
            finisher.join()
        else:
            _finish_all(drafts)


@contextmanager
def _compile_settings() -> Iterator[None]:
    """Adjust the interpreter for a compilation. LLVM's thread needs the GIL between calls of LLVM, and
    would otherwise wait for 5 ms each time.
    """
    global _saved_interval
    _saved_interval = interval = sys.getswitchinterval()
    sys.setswitchinterval(INTERVAL)
    try:
        with collector.suspended():
            yield
    finally:
        sys.setswitchinterval(interval)
        _saved_interval = None


def _finish_all(drafts: queue.SimpleQueue[tuple[Promise, Drafted] | None]) -> None:
    """Run LLVM's half for all drafts: the main function of its thread."""
    while (item := drafts.get()) is not None:
        promise, drafted = item
        try:
            promise.fulfil(_finished(drafted))
        except BaseException as error:
            _fail(drafted.recipe, promise, error)


def _drafted(recipe: Recipe) -> Drafted:
    """Run Numba's half."""
    start = time.perf_counter()
    build, source = _import_heavy("tracejit.codegen.objects.build"), recipe.source()
    draft = build.draft(_functions(recipe, source, build.EntryPoint))
    return Drafted(recipe, source, draft, time.perf_counter() - start)


def _functions(recipe: Recipe, source: str, entry: Callable[..., Any]) -> list[Any]:
    """Return the functions to compile."""
    if recipe.entries is not None:
        module, attribute = recipe.entries
        return [entry(*item) for item in getattr(_import_heavy(module), attribute)]
    namespace: dict[str, Any] = {}
    exec(compile(source, f"<kernel {recipe.name}>", "exec"), namespace)
    return [entry(symbol, namespace[symbol]) for symbol in recipe.symbols]


def _finished(drafted: Drafted) -> Kernel:
    """Run LLVM's half, and add the result to the store."""
    return _put(_entry(drafted))


def _put(entry: Entry) -> Kernel:
    """Store a compiled entry, and link it."""
    store().put(entry.key, entry)
    return _linked(entry, "compiled")


def _entry(drafted: Drafted) -> Entry:
    start = time.perf_counter()
    listing = _import_heavy("tracejit.codegen.objects.listing")
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


def _compile_in_new_process(missing: Sequence[Promised]) -> None:
    """Compile in a new process. This uses only modules that the parent cannot have been importing at the
    fork.
    """
    if not sys.executable:
        raise EngineError(
            "this process was forked while another thread compiled kernels, and there is no executable of "
            "Python to compile in another process; fork before the first call, or spawn processes"
        )
    requests = [(r.name, r.structure, r.source(), r.symbols, r.entries) for r, _ in missing]
    program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
    to_child, from_child = os.pipe(), os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, to_child[0], 0),
        (os.POSIX_SPAWN_DUP2, from_child[1], 1),
    ]
    try:
        process = os.posix_spawn(
            sys.executable, [sys.executable, "-c", program], os.environ, file_actions=actions
        )
    finally:
        os.close(to_child[0])
        os.close(from_child[1])
    with open(to_child[1], "wb") as request, open(from_child[0], "rb") as answer:
        pickle.dump(requests, request)
        request.close()
        reply = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status or not reply:
        raise EngineError(f"the process that compiles for this forked one ended with status {status}")
    for (recipe, promise), outcome in zip(missing, pickle.loads(reply), strict=True):
        if isinstance(outcome, str):
            _fail(recipe, promise, EngineError(f"kernel {recipe.name!r} could not be compiled:\n{outcome}"))
        else:
            promise.fulfil(_put(Entry(**outcome)))


def serve() -> None:
    """Compile the requests on standard input: the main function of the new process."""
    import traceback

    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not mix with the answer
    outcomes: list[dict[str, Any] | str] = []
    for name, structure, source, symbols, entries in pickle.load(sys.stdin.buffer):
        try:
            entry = _entry(_drafted(Recipe(name, structure, partial(str, source), symbols, entries)))
            outcomes.append({**entry._asdict(), "metadata": dict(entry.metadata), "environment": {}})
        except Exception:
            outcomes.append(traceback.format_exc())
    with answer:
        pickle.dump(outcomes, answer)


@contextmanager
def _progress_message(n_kernels: int) -> Iterator[None]:
    """Report a long compilation if standard error is a terminal or `config.verbose` is set."""
    if not (config.verbose or sys.stderr.isatty()):
        yield
        return
    text = f"tracejit: compiling {n_kernels} kernel{'s' * (n_kernels != 1)} ..."
    timer = threading.Timer(SLOW, print, [text], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
