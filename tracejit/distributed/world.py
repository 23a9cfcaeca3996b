"""The ranks that run this program: `init`, `rank`, `size`, and the end of the program.

`init` imports mpi4py only if a launcher (``tracejit run``, mpirun, srun) has started the process. Otherwise
the world has one rank, and collective operations are trivial.

At the end of the program a rank notifies the other ranks, with the exception if one ended it, and waits for
them; after an exception for a few seconds only, then it aborts the job. So no rank waits for one that has
ended.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tracejit import engine
from tracejit.config import config
from tracejit.distributed.transport import MpiTransport
from tracejit.distributed.window import SharedWindow
from tracejit.engine.available_processors import share_processors
from tracejit.engine.lifecycle import drain
from tracejit.errors import EngineError, text
from tracejit.ops.communicate import set_transport

LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS")
"""Environment variables that launchers set."""

PATIENCE = 5.0  # seconds for which a failed rank waits for the others

_transport: MpiTransport | None = None
_started = False
_failure: str | None = None


def init() -> None:
    """Join the ranks that ``tracejit run``, mpirun or srun has started. Call it before other functions here.

    A process without launcher is the only rank. A second call has no effect.
    Raises EngineError if a launcher has started the process and mpi4py or MPI is missing, or if MPI has been
    initialised without support for threads.

    >>> import tracejit as tj
    >>> tj.distributed.init()
    >>> tj.distributed.rank() < tj.distributed.size()
    True
    """
    global _transport, _started
    if _started:
        return
    if any(name in os.environ for name in LAUNCHED):
        world, owned = _connect()
        if world.size > 1:
            _share_processors(world)
            window = SharedWindow.allocate(world, config.window, direct=config.direct)
            _transport = MpiTransport(world, float(config.exchange_deadline), config.link, window)
            set_transport(_transport)
            _transport.serve()
            _end_together(world, owned)
    _started = True


def _connect() -> tuple[Any, bool]:
    """Return the communicator of all ranks, and whether this module must finalise MPI."""
    try:
        import mpi4py  # only needed with several ranks
    except ImportError as error:
        what = (
            "tj.distributed.init: mpi4py is missing; install the extra: pip install '.[dist]' in a checkout"
        )
        raise EngineError(what) from error
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # it prints warnings on machines without such a network
    owned = "mpi4py.MPI" not in sys.modules
    if owned:
        mpi4py.rc.finalize = False
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise EngineError("tj.distributed.init: MPI was initialised for one thread; let init() initialise it")
    return MPI.COMM_WORLD, owned


def _share_processors(world: Any) -> None:
    """Divide the processors among the ranks of a machine.

    Each rank starts fewer workers, unless the user has configured their number. Threads other than workers
    neither spin nor compute, as they would occupy processors of other ranks.
    """
    from mpi4py import MPI  # see `_connect`

    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    share_processors(local.size)
    workers = max(1, engine.processors() // local.size - 1)
    engine.set_workers(workers if config.workers is None else config.workers)
    local.Free()


def _end_together(world: Any, owned: bool) -> None:
    """Install the hooks that end this process together with the other ranks."""
    outer = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, traceback_: TracebackType | None) -> None:
        global _failure
        last_frame = traceback.extract_tb(traceback_)[-1:] if traceback_ else []
        location = "".join(f" at {frame.filename}:{frame.lineno}" for frame in last_frame)
        _failure = f"{text(error)[:400]}{location}"
        print(f"tracejit: rank {world.rank} of {world.size} failed:", file=sys.stderr)
        outer(kind, error, traceback_)

    timeline = _open_timeline()

    process = os.getpid()

    def leave() -> None:
        if os.getpid() != process:
            return  # a forked child is not a rank
        assert _transport is not None
        failed = _failure or (text(_transport.broken) if _transport.broken else None)
        drained = drain(PATIENCE if failed else float(config.exchange_deadline))
        if drained:
            timeline()
        patience = PATIENCE if failed or not drained else float(config.exchange_deadline)
        all_left = _transport.leave(failed, patience)
        sys.stdout.flush()
        sys.stderr.flush()
        if not all_left or not drained:
            world.Abort(1)
        elif owned:
            from mpi4py import MPI  # see `_connect`

            MPI.Finalize()

    sys.excepthook = report
    atexit.register(leave)


def _open_timeline() -> Callable[[], None]:
    """Record a profile of this rank if the launcher requests one; return the function that writes it."""
    folder = os.environ.get("TRACEJIT_TIMELINE")
    if not folder:
        return lambda: None
    profile = engine.profile()
    events = profile.__enter__()

    def close() -> None:
        profile.__exit__(None, None, None)
        events.save(os.path.join(folder, f"{rank()}.json"))

    return close


def rank() -> int:
    """The index of this process among the ranks, from 0.

    >>> import tracejit as tj
    >>> tj.distributed.rank()
    0
    """
    return _transport.rank if _transport else 0


def size() -> int:
    """The number of ranks: 1 before `init`, and in a process without launcher.

    >>> import tracejit as tj
    >>> tj.distributed.size()
    1
    """
    return _transport.size if _transport else 1
