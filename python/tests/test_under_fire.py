"""Several threads in different operators while something disturbs them; each case in its own process."""

import os
import pathlib
import subprocess
import sys

import pytest

# Each thread calls one operator repeatedly and compares the bits with those of an undisturbed call.
PROGRAM = """
import os, signal, sys, threading, time, numpy as np, turnout
from conftest import dispatch_arguments, same_bits, token_counts

def operators():
    rng = np.random.default_rng(1)
    dispatch = dispatch_arguments(rng, samples=2500, hidden=512, capacity=1024, num_experts=2)
    yield lambda: turnout.moe_dispatch_forward(*dispatch)
    tokens, counts = rng.standard_normal((3000, 256)).astype(np.float32), token_counts(rng, 3000, 4, 8)
    yield lambda: turnout.moe_re_routing(tokens, counts)[0]
    sites = np.unique(rng.integers(0, 60, (30_000, 4), np.int32) // [60, 1, 1, 1], axis=0).astype(np.int32)
    yield lambda: turnout.get_indice_pairs(sites, 1, [60, 60, 60], 3, 2, 1)[1]
    features, cells = rng.standard_normal((50_000, 8)).astype(np.float32), rng.integers(-1, 40, (50_000, 3))
    yield lambda: turnout.dynamic_scatter_forward(features, cells, "mean")[0]
    px, py = rng.standard_normal((1, 60, 3001)).astype(np.float32), np.zeros((1, 61, 3000), np.float32)
    yield lambda: turnout.mutual_information_forward_backward(px, py)[1]

turnout.set_num_threads(2)
calls = list(operators())
expected = [call() for call in calls]
end, wrong, done = time.monotonic() + 1.0, [], [0] * len(calls)

def work(i):
    while time.monotonic() < end or done[i] == 0:
        if not same_bits(calls[i](), expected[i]):
            wrong.append(i)
        done[i] += 1

def all_are_right():
    return all(same_bits(call(), one) for call, one in zip(calls, expected))

workers = [threading.Thread(target=work, args=(i,)) for i in range(len(calls))]
for worker in workers:
    worker.start()
"""
FINISH = """
for worker in workers:
    worker.join()
assert not wrong and min(done) > 0, (wrong, done)
assert all_are_right()
"""
DISTURBANCES = {
    "nothing": "",
    "set_num_threads": """
while time.monotonic() < end:
    for threads in 1, 2, 7, 3, 0:
        turnout.set_num_threads(threads)
        time.sleep(0.001)
""",
    "trim": """
while time.monotonic() < end:
    turnout.trim()
    turnout.output_cache(0)
    turnout.output_cache(2**28)
""",
    "a core taken away": """
cores = os.sched_getaffinity(0)
while time.monotonic() < end:
    for task in os.listdir("/proc/self/task"):
        for some in {min(cores)}, cores:
            try:
                os.sched_setaffinity(int(task), some)
            except ProcessLookupError:
                pass
""",
    "signals": """
handled = []
signal.signal(signal.SIGALRM, lambda *_: handled.append(1))
signal.signal(signal.SIGUSR1, lambda *_: handled.append(2))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while time.monotonic() < end:
    os.kill(os.getpid(), signal.SIGUSR1)
signal.setitimer(signal.ITIMER_REAL, 0)
assert {1, 2} <= set(handled)
""",
    # Without the other threads, the child's calls start their own pool.
    "fork": """
children = 0
while time.monotonic() < end:
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # one that hangs is killed
        os._exit(0 if all_are_right() else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    children += 1
assert children > 0
""",
}


@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_disturbed_calls_are_correct(disturbance):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + DISTURBANCES[disturbance] + FINISH],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=pathlib.Path(__file__).parent,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},  # Python 3.12 warns about fork with threads
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
