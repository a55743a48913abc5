"""Rules that hold for every operator: strided inputs, recording and replaying."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import same_bits
from test_strided import LAYOUTS
from varied_calls import ARRAYS, CALLS, OPERATORS, public, results_of

from turnout import cases

# Weights are used where they are. Their strides choose the algorithm, which may add in another order.
USED_IN_PLACE = {("moe_experts", "w13"), ("moe_experts", "w2")}


def assert_same(results, expected, exact=True):
    for actual, wanted in zip(results, expected, strict=True):
        if exact:
            assert same_bits(actual, wanted)
        else:
            np.testing.assert_allclose(actual, wanted, rtol=1e-6)


# The gradient of a maximum does not need the counts.
UNUSED = {("dynamic_scatter_backward", "voxel_points_count")}


@pytest.mark.parametrize(("op", "name"), ARRAYS)
def test_every_array_matters(op, name):
    """Otherwise an element that is read from the wrong place would not be noticed."""
    rng, call = np.random.default_rng(0), CALLS[op]
    expected = [np.asarray(result).tobytes() for result in results_of(op, call)]

    def differs(other):
        try:
            return [
                np.asarray(result).tobytes() for result in results_of(op, call | {name: other})
            ] != expected
        except (ValueError, NotImplementedError):
            return True

    value = call[name]
    assert len(np.unique(value)) > 1
    moved = [rng.permutation(value.ravel()).reshape(value.shape) for _ in range(20)]
    assert any(map(differs, moved)) != ((op, name) in UNUSED)


@pytest.mark.parametrize(("op", "name"), ARRAYS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_strided_input(op, name, layout):
    call = CALLS[op]
    strided = LAYOUTS[layout](call[name])
    assert layout in ("fortran", "unaligned") or not strided.flags.c_contiguous
    exact = (op, name) not in USED_IN_PLACE
    assert_same(results_of(op, call | {name: strided}), results_of(op, call), exact)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_inputs_strided(op, layout):
    call = {
        name: LAYOUTS[layout](value) if isinstance(value, np.ndarray) else value
        for name, value in CALLS[op].items()
    }
    exact = all((op, name) not in USED_IN_PLACE for name in call)
    assert_same(results_of(op, call), results_of(op, CALLS[op]), exact)


PROGRAM = """
import pickle, sys
import turnout
for name, options, arguments in pickle.load(open(sys.argv[1], "rb")):
    getattr(turnout, name)(**arguments, **options)
"""


def test_recorded_calls_of_every_operator_are_replayed(tmp_path):
    folder, calls = tmp_path / "calls", tmp_path / "calls.pickle"
    calls.write_bytes(pickle.dumps([(*public(op), call) for op, call in CALLS.items()]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(calls)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"TURNOUT_RECORD": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    recorded = {json.loads((path / "call.json").read_text())["op"]: path for path in folder.iterdir()}
    assert sorted(recorded) == sorted(OPERATORS)
    for op, path in recorded.items():
        replay = cases.replay(path)
        assert replay.same is True, (op, replay.lines)
        assert len(replay.lines) >= len(results_of(op, CALLS[op])), (op, replay.lines)
