"""The ranks that run this program: `init`, `rank`, `size`, and the end of the program.

`init` imports mpi4py only where a launcher (``tracejit run``, mpirun, srun) has started the process; anywhere
else the world has one rank, and everything between ranks does nothing.

At the end of the program a rank tells the others that it leaves, and why if an exception ended it, and waits
for them: after an exception a few seconds, then it ends the whole job. So no rank waits for one that is gone.
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
"""Variables of the environment that launchers set."""

PATIENCE = 5.0  # seconds that a rank which has failed waits for the others

_transport: MpiTransport | None = None
_started = False
_failure: str | None = None


def init() -> None:
    """Join the ranks that ``tracejit run``, mpirun or srun has started; before anything else of this module.

    A process that was started alone is the only rank. A second call does nothing.
    Raises EngineError where a launcher has started the process and mpi4py or MPI is missing.

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
    """The communicator of all ranks, and whether ending MPI is up to this module."""
    try:
        import mpi4py  # where there is one rank, nobody needs it
    except ImportError as error:
        what = (
            "tj.distributed.init: mpi4py is missing; install the extra: pip install '.[dist]' in a checkout"
        )
        raise EngineError(what) from error
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # which complains where there is no such network
    owned = "mpi4py.MPI" not in sys.modules
    if owned:
        mpi4py.rc.finalize = False
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise EngineError("tj.distributed.init: MPI was started for one thread; let init() start it")
    return MPI.COMM_WORLD, owned


def _share_processors(world: Any) -> None:
    """Have fewer workers where ranks share a machine, unless the user says how many, and no thread that spins
    or computes besides them where another rank could compute.
    """
    from mpi4py import MPI  # see `_connect`

    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    share_processors(local.size)
    count = max(1, engine.processors() // local.size - 1)
    engine.set_workers(count if config.workers is None else config.workers)
    local.Free()


def _end_together(world: Any, owned: bool) -> None:
    """Have this process end with the others."""
    outer = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _failure
        place = traceback.extract_tb(trace)[-1:] if trace else []
        where = "".join(f" at {frame.filename}:{frame.lineno}" for frame in place)
        _failure = f"{text(error)[:400]}{where}"
        print(f"tracejit: rank {world.rank} of {world.size} failed:", file=sys.stderr)
        outer(kind, error, trace)

    timeline = _open_timeline()

    process = os.getpid()

    def leave() -> None:
        if os.getpid() != process:
            return  # a process that this one has forked is no rank
        assert _transport is not None
        failed = _failure or (text(_transport.broken) if _transport.broken else None)
        drained = drain(PATIENCE if failed else float(config.exchange_deadline))
        if drained:
            timeline()
        patience = PATIENCE if failed or not drained else float(config.exchange_deadline)
        together = _transport.leave(failed, patience)
        sys.stdout.flush()
        sys.stderr.flush()
        if not together or not drained:
            world.Abort(1)
        elif owned:
            from mpi4py import MPI  # see `_connect`

            MPI.Finalize()

    sys.excepthook = note
    atexit.register(leave)


def _open_timeline() -> Callable[[], None]:
    """Record what this rank does, where the launcher asks for it; the function that ends and writes it."""
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
    """The number of this process among the ranks, from 0.

    >>> import tracejit as tj
    >>> tj.distributed.rank()
    0
    """
    return _transport.rank if _transport else 0


def size() -> int:
    """The number of ranks: 1 before `init`, and in a process that was started alone.

    >>> import tracejit as tj
    >>> tj.distributed.size()
    1
    """
    return _transport.size if _transport else 1
