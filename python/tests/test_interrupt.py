"""Ctrl-C and other signals during calls, each in its own process."""

import pathlib
import subprocess
import sys

import long_calls
import pytest

START = """
import os, signal, sys, threading, time, numpy as np, turnout, long_calls
from conftest import dispatch_arguments, same_bits
from turnout import check

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with SIGINT ignored

def send_later(number, seconds):
    sent = {}
    def send():
        time.sleep(seconds)
        sent.update(wall=time.perf_counter(), cpu=time.process_time())
        os.kill(os.getpid(), number)
    threading.Thread(target=send, daemon=True).start()
    return sent

def next_call_is_right():
    rng = np.random.default_rng(1)
    for sizes in {}, {"samples": 2500, "hidden": 512, "capacity": 1024}:
        arguments = dispatch_arguments(rng, **sizes)
        assert same_bits(turnout.moe_dispatch_forward(*arguments), check.moe_dispatch_forward(*arguments))
"""


def run(program, *arguments):
    """Runs a program that must succeed and returns its output."""
    done = subprocess.run(
        [sys.executable, "-c", START + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=pathlib.Path(__file__).parent,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# Make the call longer if it ends before the signal arrives.
CTRL_C = """
def interrupt(make):
    for scale in 1, 2, 4, 8:
        call, is_over = make(scale), False
        sent = send_later(signal.SIGINT, 0.1)
        try:
            call()
            is_over = True
            time.sleep(60)
        except KeyboardInterrupt:
            if not is_over:
                return time.perf_counter() - sent["wall"], time.process_time() - sent["cpu"]
    raise SystemExit(f"{make.__name__}: every call was too short")

turnout.set_num_threads(int(sys.argv[1]))
for make in long_calls.ALL:
    print(make.__name__, *interrupt(make))
    next_call_is_right()
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_calls_within_200_ms(threads):
    """Measures CPU time, because other processes may use the cores."""
    lines = [line.split() for line in run(CTRL_C, threads).splitlines()]
    assert [name for name, _, _ in lines] == [call.__name__ for call in long_calls.ALL]
    for name, wall, cpu in lines:
        assert float(cpu) < 0.2 * threads, (name, wall, cpu)


def test_a_handler_may_raise_anything():
    run("""
class Late(Exception):
    pass
def handler(*_):
    raise Late
signal.signal(signal.SIGALRM, handler)
call = long_calls.dot_products(8)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    call()
    raise SystemExit("the call was not ended")
except Late:
    pass
next_call_is_right()
""")


def test_a_handler_that_returns_leaves_the_call_alone_and_may_make_calls():
    run("""
handled = []
def handler(*_):
    handled.append(time.perf_counter())
    next_call_is_right()
    if len(handled) < 3:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
call = long_calls.dot_products(1)
expected = call()
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.01)
result = call()
end = time.perf_counter()
signal.signal(signal.SIGALRM, signal.SIG_IGN)  # the timer may still run
assert same_bits(result, expected)
assert handled[0] < end  # during the call
""")


def test_other_threads_are_not_interrupted():
    """Python handles signals in its main thread, so a call in another thread completes."""
    run("""
call = long_calls.dot_products(1)
expected, results = call(), []
worker = threading.Thread(target=lambda: results.append(call()))
worker.start()
send_later(signal.SIGINT, 0.05)
try:
    while True:
        time.sleep(0.01)
except KeyboardInterrupt:
    worker.join()
assert same_bits(results[0], expected)
""")
