"""bench/against.py compares two builds: its calls run, and a call that one build lacks is a failure.

bench/serial.py reads the serial part of a call from its log line.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

import turnout

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import against
import calls
import run
import serial
import small_calls

del sys.path[0]

ALL = ["first", "second, small", "second, small, out="]
# Replaces bench/calls.py and bench/small_calls.py in the process of a build.
STUB = """
def of_name(name):
    def call():
        if name in {broken}:
            raise TypeError(f"{{name}}() got an unexpected keyword argument 'gates'")
    return call

class Small:
    def numpy_calls(self):
        {preparation}
        yield from ((name, of_name(name)) for name in {names}[1:])

    def torch_calls(self):
        return ()

FAMILIES = {{"family": lambda scale=None: [({names}[0], 1, of_name({names}[0]))] if scale else [Small()]}}
"""


@pytest.fixture
def build(tmp_path):
    def made(folder, names=ALL, broken=(), preparation="pass"):
        path = tmp_path / folder
        path.mkdir()
        for module in ("calls", "small_calls"):
            text = STUB.format(names=names, broken=broken, preparation=preparation)
            (path / f"{module}.py").write_text(text)
        return path

    return made


@pytest.fixture
def compare(monkeypatch, capsys):
    monkeypatch.setattr(against, "LIMIT", 1e9)

    def compared(old, new):
        count = against.compare(old, new, ["family"], 0)
        return count, capsys.readouterr().out

    return compared


def test_equal_builds_pass(build, compare):
    count, output = compare(build("old"), build("new"))
    assert count == 0
    assert all(name in output for name in ALL)
    assert "do not run in both builds" not in output


@pytest.mark.parametrize("with_it", ["old", "new"])
def test_a_call_in_one_build_only_is_a_failure(build, compare, with_it):
    names = {"old": ALL[:2], "new": ALL[:2], with_it: ALL}
    count, output = compare(*(build(side, names[side]) for side in ("old", "new")))
    assert count == 1
    assert f"second, small, out=: runs in the {with_it} build only" in output


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_call_that_raises_in_one_build_is_a_failure(build, compare, side):
    other = {"old": "new", "new": "old"}[side]
    builds = {side: build(side, broken=ALL[1:2]), other: build(other)}
    count, output = compare(builds["old"], builds["new"])
    assert count == 2
    assert f"second, small: runs in the {other} build only" in output
    assert f"second, small, {side} build: TypeError: second, small() got an unexpected keyword" in output


def test_calls_that_raise_in_both_builds_are_failures(build, compare):
    count, output = compare(build("old", broken=ALL), build("new", broken=ALL))
    assert count == 6
    assert output.count("TypeError: first() got") == 2


def test_arguments_that_a_build_cannot_prepare_are_a_failure(build, compare):
    count, output = compare(build("old"), build("new", preparation="raise AttributeError('no moe_combine')"))
    assert count == 3
    assert "second, small, out=: runs in the old build only" in output
    assert "arguments of family, new build: AttributeError: no moe_combine" in output


def test_all_families_have_large_and_small_calls():
    assert set(run.FAMILIES) == set(calls.FAMILIES) == set(small_calls.FAMILIES)


@pytest.mark.parametrize("family", run.FAMILIES)
def test_calls_run(family):
    for _, _, call in calls.FAMILIES[family](1 / 64):
        call()
        call()  # writes into the results of the first call
    for small in small_calls.FAMILIES[family]():
        for _, call in small.numpy_calls():
            call()
            call()


@pytest.mark.skipif(not against.HAS_TORCH, reason="needs PyTorch")
@pytest.mark.parametrize("family", run.FAMILIES)
def test_calls_of_torch_run(family):
    names = []
    for small in small_calls.FAMILIES[family]():
        for name, call in small.torch_calls():
            call()
            call()
            names.append(name)
    assert names
    has_gradients = family not in ("boxes", "points")
    for kind in ("recorded gradient", "backward"):
        assert any(name.endswith(f"small, {kind}") for name in names) == has_gradients


def test_a_slice_has_a_call_even_if_its_time_is_over_at_once(monkeypatch):
    monkeypatch.setattr(against, "SLICE", 0)
    assert against.burst(lambda: None) > 0


@pytest.mark.parametrize(
    ("time_us", "shown"),
    [(0.5, "0.50 us"), (2.468, "2.47 us"), (24.68, "24.7 us"), (246.8, "247 us"), (24680, "24,680 us")],
)
def test_times_have_three_digits(time_us, shown):
    assert against.duration(time_us) == shown


def test_serial_shares():
    assert serial.bound(0, 16) == 16
    assert serial.bound(1, 16) == 1
    assert serial.bound(0.5, 2) == pytest.approx(4 / 3)
    rows = np.ones((1 << 16, 64), np.float32)  # enough for several ranges
    whole, shared = serial.times(lambda: turnout.moe_token_permute(rows, np.zeros((len(rows), 1), np.int32)))
    assert 0 <= shared < whole
    whole, alone = serial.times(lambda: turnout.moe_token_permute(rows[:4], np.zeros((4, 1), np.int32)))
    assert whole == alone > 0
