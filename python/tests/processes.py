"""Several processes of one test: each runs a function of a module here, in a group with the backend gloo."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = """
import datetime, importlib, sys, torch, torch.distributed as dist
torch.set_num_threads(1)
store, rank, world, module, function = sys.argv[1:]
dist.init_process_group(
    "gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world),
    timeout=datetime.timedelta(seconds=60),
)
getattr(importlib.import_module(module), function)(int(rank), int(world))
"""


def run(world, module, function):
    """Runs the function as ``function(rank, world)`` on each process; returns (status, output) of each."""
    folder = pathlib.Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with tempfile.TemporaryDirectory() as store, contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    [
                        sys.executable,
                        "-c",
                        PROGRAM,
                        f"{store}/store",
                        str(rank),
                        str(world),
                        module,
                        function,
                    ],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=environment,
                )
            )
            for rank in range(world)
        ]
        try:
            outputs = [process.communicate(timeout=100)[0] for process in started]
        except BaseException:
            for process in started:
                process.kill()
            raise
        return [(process.returncode, output) for process, output in zip(started, outputs, strict=True)]


def run_well(world, module, function):
    """The same for functions that succeed; the outputs."""
    results = run(world, module, function)
    for status, output in results:
        assert status == 0, output
    return [output for _, output in results]
