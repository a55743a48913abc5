"""Runs a function of a test module in several processes, which form a gloo group.

As a program: ``processes.py <folder> <world> <module> <function>``.
"""

import importlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile


def run(world, module, function):
    """Runs the function as ``function(rank, world)`` on each process; returns each (status, output)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, folder, str(world), module, function]
        started = subprocess.Popen(command, start_new_session=True)
        try:
            assert started.wait(timeout=200) == 0
        except BaseException:
            os.killpg(started.pid, signal.SIGKILL)
            raise
        files = [pathlib.Path(folder, str(rank)) for rank in range(world)]
        return [(int(file.with_suffix(".status").read_text()), file.read_text()) for file in files]


def run_well(world, module, function):
    """The same for functions that must succeed. Returns the outputs."""
    results = run(world, module, function)
    for status, output in results:
        assert status == 0, output
    return [output for _, output in results]


def _run_rank(rank, world, folder, function):
    import datetime

    import torch

    output = os.open(f"{folder}/{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=60),
    )
    torch.distributed.barrier()  # a process that ends early must not break the connection of the others
    function(rank, world)
    torch.distributed.destroy_process_group()


def _main(folder, world, module, name):
    import torch.multiprocessing

    function = getattr(importlib.import_module(module), name)
    # Fork, so that torch is imported only once; it has not started any thread yet.
    context = torch.multiprocessing.get_context("fork")
    ranks = [context.Process(target=_run_rank, args=(r, world, folder, function)) for r in range(world)]
    for rank in ranks:
        rank.start()
    for i, rank in enumerate(ranks):
        rank.join()
        pathlib.Path(folder, f"{i}.status").write_text(str(rank.exitcode))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
