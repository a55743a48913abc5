"""Settings of the whole library: threads, log, output cache and configuration."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

from turnout import _core

__version__ = _core.__version__


class OutputCache(NamedTuple):
    """State of the cache of large results, in bytes.

    Example:
        >>> cache = turnout.output_cache()
        >>> cache.idle <= cache.limit
        True
    """

    limit: int
    idle: int


def output_cache(limit: int | None = None) -> OutputCache:
    """Returns the state of the output cache. If ``limit`` is given, first sets how many idle bytes it keeps.

    Results of 1 MB and more reuse memory of earlier results, because fresh pages cost more than most
    operators. Memory returns to the cache when its array is deleted. The limit is initially 512 MB or a
    sixteenth of the machine's memory, whichever is less. 0 disables the cache and frees its idle memory.

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
    """Returns idle memory to the system: the scratch memory of calls and the contents of the output cache.

    Both are kept so that repeated calls need no fresh pages. Each is at most 512 MB or a sixteenth of the
    machine's memory, whichever is less. Memory that arrays and running calls use is not affected.

    Example:
        >>> turnout.trim()
        >>> turnout.output_cache().idle
        0
    """
    _core.trim()


def set_num_threads(threads: int) -> None:
    """Sets how many threads a call may use. 0 means TURNOUT_NUM_THREADS, or the available CPUs.

    The available CPUs are those in the affinity mask, or fewer if the container has a CPU quota.
    Daemonic processes of ``multiprocessing``, such as the workers of a ``DataLoader``, start with one thread
    unless TURNOUT_NUM_THREADS is set; ``worker_init_fn`` may call this function.
    Calls through ``turnout.torch`` and calls with a torch tensor among their arguments use torch's threads
    instead: see ``torch.set_num_threads``.

    Example:
        >>> turnout.set_num_threads(1)
        >>> turnout.get_num_threads()
        1
        >>> turnout.set_num_threads(0)
    """
    _core.set_num_threads(threads)


def get_num_threads() -> int:
    """Returns how many threads a call may use.

    Example:
        >>> turnout.get_num_threads() >= 1
        True
    """
    return _core.get_num_threads()


def set_log(level: int) -> None:
    """Sets what is logged to stderr: 0 nothing, 1 one line per call and failure, 5 also skipped empty calls.

    A line ends with key-value pairs in logfmt: ``algorithm="last writers" isa=avx2 threads=1``.

    Example:
        >>> turnout.set_log(1)  # each call now logs its arguments, algorithm and time
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
