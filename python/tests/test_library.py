"""The whole library: settings, environment variables, memory, process exit."""

import gc
import os
import platform
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest
from conftest import at_the_same_time

import turnout
from turnout import _core

MEGABYTE = 2**20
FOREIGN_ISA = "neon" if platform.machine() == "x86_64" else "sse4"
FOREIGN_NOTE = f"TURNOUT_ISA is {FOREIGN_ISA}, which this CPU or this build lacks: "
CALL = """
import numpy as np, turnout
one = np.ones(1, np.float32)
turnout.moe_dispatch_forward(one, np.int32([0]), np.int32([0]), np.ones((1, 2), np.float32), 1, 1)
"""


def run(program, *arguments, **variables):
    """Runs a Python program in its own process, with only these TURNOUT variables."""
    ours = ("TURNOUT_LOG", "TURNOUT_ISA", "TURNOUT_NUM_THREADS", "TURNOUT_RECORD")
    environment = {name: value for name, value in os.environ.items() if name not in ours} | variables
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )


# -- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: turnout.set_num_threads("2"),
            "set_num_threads: threads is of type str, expected an integer",
        ),
        (
            lambda: turnout.set_num_threads(None),
            "set_num_threads: threads is of type NoneType, expected an integer",
        ),
        (
            lambda: turnout.set_num_threads(1.5),
            "set_num_threads: threads is of type float, expected an integer",
        ),
        (lambda: turnout.set_log("1"), "set_log: level is of type str, expected an integer"),
        (lambda: turnout.set_log([]), "set_log: level is of type list, expected an integer"),
        (lambda: turnout.output_cache("1"), "output_cache: limit is of type str, expected an integer"),
        (lambda: turnout.output_cache(1e6), "output_cache: limit is of type float, expected an integer"),
    ],
)
def test_wrong_types(call, message):
    with pytest.raises(TypeError) as raised:
        call()
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: turnout.set_num_threads(1025), "set_num_threads: threads is 1025, expected 0 .. 1024"),
        (lambda: turnout.set_log(-1), "set_log: level is -1, expected 0 .. 5"),
        (lambda: turnout.set_log(6), "set_log: level is 6, expected 0 .. 5"),
        (lambda: turnout.output_cache(-1), "output_cache: limit is -1, expected 0 or more"),
        (
            lambda: turnout.set_num_threads(2**64),
            f"set_num_threads: threads is {2**64}, expected an integer of 64 bits",
        ),
        (
            lambda: turnout.output_cache(2**64),
            f"output_cache: limit is {2**64}, expected an integer of 64 bits",
        ),
    ],
)
def test_out_of_range(call, message):
    with pytest.raises(ValueError) as raised:
        call()
    assert str(raised.value) == message


def test_any_integer_type_is_accepted(threads):
    threads(np.int64(2))
    assert turnout.get_num_threads() == 2


# -- environment variables -----------------------------------------------------------------------------------

BAD_VARIABLES = [
    ("TURNOUT_LOG", "yes", "TURNOUT_LOG is 'yes', expected a level, 0 .. 5"),
    ("TURNOUT_LOG", "6", "TURNOUT_LOG is '6', expected a level, 0 .. 5"),
    (
        "TURNOUT_ISA",
        "mmx",
        "TURNOUT_ISA is 'mmx', expected one of sse4, avx2, avx512, avx512_dl, avx512_bf16, neon",
    ),
    ("TURNOUT_NUM_THREADS", "two", "TURNOUT_NUM_THREADS is 'two', expected 1 .. 1024"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD_VARIABLES)
def test_bad_variables_are_errors_of_the_first_call(name, value, message):
    done = run(
        f"import turnout\ntry:\n  {CALL.replace(chr(10), chr(10) + '  ')}\nexcept ValueError as e: print(e)",
        **{name: value},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, message + "\n", "")


@pytest.mark.parametrize(("name", "value", "message"), BAD_VARIABLES)
def test_bad_variables_in_the_shell(name, value, message):
    done = run("import sys, turnout.cli; sys.exit(turnout.cli.main(['info']))", **{name: value})
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"turnout: {message}\n")


@pytest.mark.parametrize("name", ["TURNOUT_LOG", "TURNOUT_ISA", "TURNOUT_NUM_THREADS", "TURNOUT_RECORD"])
def test_empty_variables_are_ignored(name):
    done = run(CALL, **{name: ""})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_instruction_set_is_logged_once():
    done = run(CALL + CALL, TURNOUT_ISA=FOREIGN_ISA, TURNOUT_LOG="1")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0] == f"[turnout] {FOREIGN_NOTE}{_core.info()['isa']} is used"
    assert all(line.startswith("[turnout] moe_dispatch_forward(") for line in lines[1:])


def test_a_missing_instruction_set_is_not_reported_without_a_log():
    done = run(CALL, TURNOUT_ISA=FOREIGN_ISA)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_show_config_names_a_missing_instruction_set():
    done = run("import turnout; turnout.show_config()", TURNOUT_ISA=FOREIGN_ISA)
    assert f"note             {FOREIGN_NOTE}" in done.stdout
    assert "note" not in run("import turnout; turnout.show_config()").stdout


# -- torch's threads -----------------------------------------------------------------------------------------

# A pool that claims 64 threads and records the ranges that it was given.
TEAM = """
import ctypes, numpy as np
from turnout import _core

RANGE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, RANGE, ctypes.c_void_p)
def parallel_for(begin, end, grain, work, context):
    pieces.append((begin, end, grain))
    work(begin, end, context)
    return 0

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint32))
def get_num_threads(threads):
    threads[0] = 64
    return 0

pieces = []
_core.use_torch_threads(*(ctypes.cast(f, ctypes.c_void_p).value for f in (parallel_for, get_num_threads)))
rows = 2048
tokens, slots = np.ones((rows, 256), np.float32), np.arange(rows, dtype=np.int32)
for count in (rows, 20 * rows):
    slots, tokens = np.arange(count, dtype=np.int32), np.ones((count, 256), np.float32)
    gates, experts = np.ones(count, np.float32), np.zeros(count, np.int32)
    assert (_core.torch.moe_dispatch_forward(gates, experts, slots, tokens, count, 1) == 1).all()
print(*(end - begin for begin, end, grain in pieces))
"""


def test_few_ranges_do_not_use_every_torch_thread():
    done = run(TEAM)
    assert (done.returncode, done.stderr) == (0, "")
    few, many = map(int, done.stdout.split())
    assert 2 <= few <= 16
    assert many == 64


# -- memory --------------------------------------------------------------------------------------------------


def test_trim_frees_idle_scratch_and_outputs(rng, cache):
    points = rng.integers(0, 100, (200_000, 3)).astype(np.int32)
    at_the_same_time([partial(turnout.VoxelIndex, points)] * 6)
    gc.collect()
    assert _core.info()["scratch_idle"] > MEGABYTE
    assert cache().idle > 0
    resident = resident_bytes()
    turnout.trim()
    assert _core.info()["scratch_idle"] == 0
    assert cache().idle == 0
    assert resident - resident_bytes() > 10 * MEGABYTE


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_trim_keeps_memory_in_use(rng):
    points = rng.integers(0, 20, (50_000, 3)).astype(np.int32)
    feats = rng.standard_normal((50_000, 8)).astype(np.float32)
    index = turnout.VoxelIndex(points)
    before = index.reduce(feats, "max")
    turnout.trim()
    assert (index.reduce(feats, "max") == before).all()


def test_trim_while_others_call(rng):
    points = rng.integers(0, 20, (20_000, 3)).astype(np.int32)
    feats = rng.standard_normal((20_000, 4)).astype(np.float32)
    expected = turnout.VoxelIndex(points).reduce(feats, "max")
    stop = threading.Event()

    def trim():
        while not stop.is_set():
            turnout.trim()

    trimmer = threading.Thread(target=trim)
    trimmer.start()
    try:
        for _ in range(50):
            assert (turnout.VoxelIndex(points).reduce(feats, "max") == expected).all()
    finally:
        stop.set()
        trimmer.join()


# A worker that cannot be started, or lacks the memory it needs, is left out.
MEMORY_PRESSURE = """
import os, resource, numpy as np, turnout
rows = 40_000
tokens, slots = np.ones((rows, 64), np.float32), np.arange(rows, dtype=np.int32)
gates, experts, out = np.ones(rows, np.float32), np.zeros(rows, np.int32), np.zeros((rows, 64), np.float32)
turnout.set_num_threads(1)
turnout.moe_dispatch_forward(gates, experts, slots, tokens, rows, 1, out=out)  # its scratch memory is there
turnout.set_num_threads(16)
stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
stack = (8 << 20 if stack == resource.RLIM_INFINITY else stack) + resource.getpagesize()
for workers in range(6):
    for rest in (0, 16 << 10, 32 << 10, 64 << 10, 1 << 20):
        child = os.fork()
        if child == 0:
            out[:] = 0
            with open("/proc/self/statm") as file:
                used = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + workers * stack + rest, resource.RLIM_INFINITY))
            try:
                turnout.moe_dispatch_forward(gates, experts, slots, tokens, rows, 1, out=out)
                right = (out[:, 0] == 1).all()
            except MemoryError:
                right = True
            os._exit(0 if right else 1)
        status = os.waitpid(child, 0)[1]
        assert status == 0, (workers, rest, status)
"""


def test_memory_pressure_leaves_workers_out():
    done = run(MEMORY_PRESSURE)
    assert (done.returncode, done.stderr) == (0, "")


# -- process exit --------------------------------------------------------------------------------------------

DAEMONS = """
import sys, threading, time, numpy as np, turnout

class Slow:  # Python code inside the call
    def __init__(self, array):
        self.array = array
    def __dlpack__(self, **arguments):
        for _ in range(300):
            pass
        return self.array.__dlpack__(**arguments)
    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

def work():
    rows = 20_000 if sys.argv[1] == "large" else 4
    tokens, slots = np.ones((rows, 64), np.float32), np.arange(rows, dtype=np.int32)
    if sys.argv[1] == "python":
        tokens, slots = Slow(tokens), Slow(slots)
    gates, experts = np.ones(rows, np.float32), np.zeros(rows, np.int32)
    running.release()
    while True:
        turnout.moe_dispatch_forward(gates, experts, slots, tokens, rows, 1)

running = threading.Semaphore(0)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
for _ in range(4):
    running.acquire()
time.sleep(0.02)
"""


@pytest.mark.parametrize("kind", ["large", "small", "python"])
def test_exit_with_daemon_threads_in_calls_is_silent(kind):
    for _ in range(7):
        done = run(DAEMONS, kind)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
