"""Settings, read once from the environment at import; the table in ``docs/configuration.md`` lists them all.

`config` is the only mutable object: tests and users set its attributes, all other code only reads them.
"""

from __future__ import annotations

import os
import pathlib

from tracejit.errors import ArgumentError

PASSES = (
    *("stack", "roll", "attend", "simplify", "cse", "dce"),
    *("winograd", "weight_sums", "remask", "recompute", "prepare", "fuse", "components"),
)
"""The names of the passes, in order, for `dump` and `disable`."""

ON = frozenset(["1", "true", "yes", "on"])
OFF = frozenset(["0", "false", "no", "off"])


def _flag(name: str, default: bool = False) -> bool:
    text = os.environ.get(name)
    if not text:
        return default
    if text.lower() not in ON | OFF:
        raise ArgumentError(f"{name}={text!r}: expected 1 or 0 (or true, yes, on, false, no, off)")
    return text.lower() in ON


def _names(name: str, *known: str) -> frozenset[str]:
    text = os.environ.get(name, "")
    names = frozenset(filter(None, map(str.strip, text.split(","))))
    if not names <= set(known):
        raise ArgumentError(f"{name}={text!r}: expected names among {', '.join(known)}")
    return names


def _number(name: str, default: int, minimum: int) -> int:
    text = os.environ.get(name)
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        number = minimum - 1
    if number < minimum:
        raise ArgumentError(f"{name}={text!r}: expected an integer of at least {minimum}")
    return number


def _choice(name: str, *choices: str) -> str:
    text = os.environ.get(name) or choices[0]
    if text not in choices:
        raise ArgumentError(f"{name}={text!r}: expected {' or '.join(choices)}")
    return text


def _link(name: str) -> tuple[float, float] | None:
    """Return latency in seconds and bandwidth in bytes per second, or None if the variable is not set."""
    text = os.environ.get(name)
    if not text:
        return None
    try:
        latency, bandwidth = map(float, text.split(","))
    except ValueError:
        latency = bandwidth = -1.0
    if not (latency >= 0 and bandwidth > 0):
        raise ArgumentError(f"{name}={text!r}: expected seconds and bytes per second, such as 1e-4,1e9")
    return latency, bandwidth


def _home() -> str | None:
    """Return the user's home folder, or None if there is none."""
    home = os.environ.get("HOME")
    if not home:
        try:
            import pwd  # not available on every system

            home = pwd.getpwuid(os.getuid()).pw_dir
        except (ImportError, KeyError):
            return None
    return home if os.path.isabs(home) else None


def _default_store() -> pathlib.Path | None:
    if path := os.environ.get("TRACEJIT_CACHE_DIR"):
        return pathlib.Path(os.path.abspath(path))  # absolute, as the process may change its folder
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # the XDG specification says to ignore relative paths
        return pathlib.Path(base, "tracejit")
    home = _home()
    return pathlib.Path(home, ".cache", "tracejit") if home else None


class Config:
    """All settings of the process.

    jit:      False makes `tj.jit` call the body eagerly (`TRACEJIT_JIT=0`), so that debuggers work.
    engine:   "native", or "naive" to run every task inline at its launch (`TRACEJIT_ENGINE`).
    workers:  native worker threads per CPU device; None: one less than affinity and cgroup allow.
    check:    compare every replay with the NumPy evaluator (`TRACEJIT_CHECK=1`).
    verify:   run the IR verifier between passes (`TRACEJIT_VERIFY=1`).
    dump:     names of passes whose result is printed (`TRACEJIT_DUMP=cse,fuse`).
    disable:  names of passes to skip, for bisection (`TRACEJIT_DISABLE=fuse`).
    explain:  print the reason of every retrace when it happens (`TRACEJIT_EXPLAIN=1`).
    verbose:  report long operations even if standard error is not a terminal (`TRACEJIT_VERBOSE=1`).
    store:    the kernel store's folder (`TRACEJIT_CACHE_DIR`); None without a home folder: nothing is stored.
    store_limit: size in bytes beyond which least recently used entries are evicted (`TRACEJIT_CACHE_LIMIT`).
    exchange_deadline: seconds after which a wait for another rank fails (`TRACEJIT_EXCHANGE_DEADLINE`).
    link:     latency in seconds and bytes per second of a network to emulate (`TRACEJIT_LINK=1e-4,1e9`).
    window:   bytes of memory that a rank shares with ranks of its machine, 0 for none (`TRACEJIT_WINDOW`).
    direct:   whether ranks of a machine read large arrays in one another's memory (`TRACEJIT_DIRECT`).
    signatures: the number of signatures that one jitted function caches (`TRACEJIT_SIGNATURES`).

    >>> import tracejit as tj
    >>> tj.config.signatures
    64
    """

    def __init__(self) -> None:
        self.jit = _flag("TRACEJIT_JIT", default=True)
        self.engine = _choice("TRACEJIT_ENGINE", "native", "naive")
        workers = _number("TRACEJIT_WORKERS", -1, 0)
        self.workers = None if workers < 0 else workers
        self.check = _flag("TRACEJIT_CHECK")
        self.verify = _flag("TRACEJIT_VERIFY")
        self.dump = _names("TRACEJIT_DUMP", "record", *PASSES, "legalize")
        self.disable = _names("TRACEJIT_DISABLE", *PASSES)
        self.explain = _flag("TRACEJIT_EXPLAIN")
        self.verbose = _flag("TRACEJIT_VERBOSE")
        self.store = _default_store()
        self.store_limit = _number("TRACEJIT_CACHE_LIMIT", 1 << 30, 0)
        self.exchange_deadline = _number("TRACEJIT_EXCHANGE_DEADLINE", 1800, 1)
        self.link = _link("TRACEJIT_LINK")
        self.window = _number("TRACEJIT_WINDOW", 32 << 20, 0)
        self.direct = _flag("TRACEJIT_DIRECT", default=True)
        self.signatures = _number("TRACEJIT_SIGNATURES", 64, 1)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


config = Config()
