"""What concerns the library as a whole: threads, log, the output cache, what runs here."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

from turnout import _core

__version__ = _core.__version__


class OutputCache(NamedTuple):
    """The cache of large results, in bytes.

    Example:
        >>> cache = turnout.output_cache()
        >>> cache.idle <= cache.limit
        True
    """

    limit: int
    idle: int


def output_cache(limit: int | None = None) -> OutputCache:
    """State of the cache of output memory; with ``limit`` given, sets the most bytes it keeps idle.

    Results of 1 MB and more come from memory that earlier results have left, because fresh pages cost more
    than most operators. Memory returns to the cache when its array dies. The limit starts at 512 MB, or a
    sixteenth of the memory if that is less; 0 turns the cache off and frees what is idle.

    Example:
        >>> before = turnout.output_cache().limit
        >>> turnout.output_cache(64 * 2**20).limit  # keeps at most 64 MB idle
        67108864
        >>> turnout.output_cache(before).limit == before
        True
    """
    if limit is not None:
        _core.set_output_cache_limit(limit)
    return OutputCache(_core.output_cache_limit(), _core.output_cache_idle())


def trim() -> None:
    """Gives idle memory back to the system: scratch memory of calls, and what the output cache holds.

    Both are kept so that repeated calls need no fresh pages; each is at most 512 MB, or a sixteenth of the
    memory if that is less. What arrays and calls use is not touched.

    Example:
        >>> turnout.trim()
        >>> turnout.output_cache().idle
        0
    """
    _core.trim()


def set_num_threads(threads: int) -> None:
    """How many threads a call may use; 0: TURNOUT_NUM_THREADS, or the CPUs this process may use.

    These are the CPUs of its affinity mask, or fewer if its container has a CPU quota.
    Daemonic processes of ``multiprocessing``, as are the workers of a ``DataLoader``, start with one thread
    unless TURNOUT_NUM_THREADS is set. ``worker_init_fn`` may call this function.
    Calls through ``turnout.torch``, and those with a torch tensor among their arguments, use torch's threads
    instead: see ``torch.set_num_threads``.

    Example:
        >>> turnout.set_num_threads(1)
        >>> turnout.get_num_threads()
        1
        >>> turnout.set_num_threads(0)
    """
    _core.set_num_threads(threads)


def get_num_threads() -> int:
    """How many threads a call may use.

    Example:
        >>> turnout.get_num_threads() >= 1
        True
    """
    return _core.get_num_threads()


def set_log(level: int) -> None:
    """Sets which lines are written to stderr: 0 none, 1 one per call and failure, 5 also skipped empty calls.

    A line ends with pairs in the format logfmt: ``algorithm="last writers" isa=avx2 threads=1``.

    Example:
        >>> turnout.set_log(1)  # from now on each call writes its arguments, algorithm and time to stderr
        >>> turnout.set_log(0)
    """
    _core.set_log(level)


def show_config() -> None:
    """Prints version, instruction sets, threads, idle memory and whether turnout.torch can be imported.

    Example:
        >>> turnout.show_config()
        version          ...
        instruction set  ...
        threads          ...
        output cache     ... MB idle, at most ... MB
        scratch memory   ... MB idle
        turnout.torch    ...available...
    """
    info = _core.info()
    has_torch = importlib.util.find_spec("torch") is not None
    rows = {
        "version": info["version"],
        "instruction set": f"{info['isa']} (this CPU has {', '.join(info['supported_isas'])})",
        "threads": info["threads"],
        "output cache": f"{_megabytes(info['output_cache_idle'])} idle, at most "
        f"{_megabytes(info['output_cache_limit'])}",
        "scratch memory": f"{_megabytes(info['scratch_idle'])} idle",
        "turnout.torch": "available" if has_torch else "not available: torch is not installed",
    }
    if info["isa_note"]:
        rows["note"] = info["isa_note"]
    for name, value in rows.items():
        print(f"{name:16} {value}")


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.0f} MB"
