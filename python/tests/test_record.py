"""turnout call and turnout replay: calls in files, and calls that TURNOUT_RECORD has recorded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

import turnout
from turnout import cases, cli

DISPATCH = """
import numpy as np, turnout
rng = np.random.default_rng(0)
gates, tokens = rng.random(5, dtype=np.float32), rng.random((5, 7), dtype=np.float32)
indices, locations = np.array([0, 1, 0, 9, 1], np.int32), np.array([0, 0, 2, 0, 1], np.int32)
turnout.moe_dispatch_forward(gates, indices, locations, tokens, 3, 2)
"""


def record(where, program: str, *, fails: bool = False) -> list[Path]:
    """Runs a program with TURNOUT_RECORD. Returns the folders in the order of the calls."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={"TURNOUT_RECORD": str(where)},
    )
    assert (done.returncode != 0) == fails, done.stderr
    folder = Path(str(where).removeprefix("on_error:"))
    return sorted(folder.iterdir(), key=lambda path: path.suffix)


def described(path: Path) -> dict:
    return json.loads((path / "call.json").read_text())


def array(path: Path, name: str) -> np.ndarray:
    return np.load(path / f"{name}.npy")


def replayed(capsys, *paths) -> str:
    assert cli.main(["replay", *map(str, paths)]) == 0
    return capsys.readouterr().out


# -- call ----------------------------------------------------------------------------------------------------


def test_call(tmp_path, capsys):
    source, target = tmp_path / "a.npz", tmp_path / "b.npz"
    counts = np.array([[2, 1], [3, 2]], np.int32)
    tokens = np.arange(128, dtype=np.int8).reshape(8, 16)
    np.savez(source, tokens=tokens, expert_token_num_per_rank=counts, idx_type=1)
    assert cli.main(["call", "moe_re_routing", "--in", str(source), "--out", str(target)]) == 0
    assert "permute_tokens int8[8, 16]\n" in capsys.readouterr().out
    expected = turnout.moe_re_routing(tokens, counts, idx_type=1)
    with np.load(target) as results:
        assert sorted(results) == ["expert_token_num", "permute_token_idx", "permute_tokens"]
        np.testing.assert_array_equal(results["permute_tokens"], expected[0])
        np.testing.assert_array_equal(results["permute_token_idx"], expected[2])


def test_call_with_bfloat16_and_strings(tmp_path):
    source, target = tmp_path / "a.npz", tmp_path / "b.npz"
    feats = np.array([[1, 5], [3, 2], [4, 4]], ml_dtypes.bfloat16)
    coors = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0]], np.int32)
    np.savez(source, **{"feats.bf16": feats.view(np.uint16), "coors": coors, "reduce_type": "sum"})
    cases.run("dynamic_scatter_forward", source, target)
    with np.load(target) as results:
        sums = results["voxel_feats.bf16"].view(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(sums, np.array([[4, 7], [4, 4]], ml_dtypes.bfloat16))
        assert results["voxel_points_count"].tolist() == [2, 1]


def test_call_saves_arguments_that_are_written(tmp_path):
    source, target = tmp_path / "a.npz", tmp_path / "b.npz"
    px, py = np.array([[[-1, -2]]], np.float32), np.array([[[-0.5], [-0.25]]], np.float32)
    p, _ = turnout.mutual_information_forward(px, py)
    np.savez(source, px=px, py=py, p=p, ans_grad=np.full(1, 2, np.float32), overwrite_ans_grad=True)
    cases.run("mutual_information_backward", source, target)
    with np.load(target) as results:
        assert sorted(results) == ["ans_grad", "px_grad", "py_grad"]
        np.testing.assert_allclose(results["ans_grad"], [2], rtol=1e-6)


def test_call_refuses_in_one_message(tmp_path, capsys):
    source, target = tmp_path / "a.npz", tmp_path / "b.npz"

    def message(op: str, **arrays) -> str:
        np.savez(source, **arrays)
        assert cli.main(["call", op, "--in", str(source), "--out", str(target)]) == 2
        assert not target.exists()
        return capsys.readouterr().err

    assert message("moe_rerouting") == (
        "turnout: run: op is 'moe_rerouting', expected an operator listed by `turnout ops`\n"
    )
    assert f"turnout: {source} has an array 'token', which is not an argument of" in message(
        "moe_re_routing", token=np.zeros(1)
    )
    assert "missing 2 required positional arguments" in message("moe_re_routing")
    counts = np.array([[2, 1]], np.int32)
    refused = message("moe_re_routing", tokens=np.zeros((4, 2), np.int8), expert_token_num_per_rank=counts)
    assert refused.startswith("turnout: moe_re_routing: expert_token_num_per_rank sums to 3")
    source.write_text("nothing")
    assert cli.main(["call", "moe_re_routing", "--in", str(source), "--out", str(target)]) == 2
    assert capsys.readouterr().err.startswith(f"turnout: {source} cannot be read as .npz: ")


# -- recording -----------------------------------------------------------------------------------------------


def test_a_recorded_call_is_replayed(tmp_path, capsys):
    first, second = record(tmp_path / "new" / "folder", DISPATCH + DISPATCH)
    assert first.name.startswith("moe_dispatch_forward.")
    call = described(first)
    assert (call["op"], call["function"]) == ("moe_dispatch_forward", "moe_dispatch_forward")
    assert call["scalars"]["capacity"] == 3
    assert call["arguments"][0] == {"name": "gates", "dtype": "f32", "rank": 1, "shape": [5]}
    assert array(first, "in.indices").tolist() == [0, 1, 0, 9, 1]
    rng = np.random.default_rng(0)
    gates, tokens = rng.random(5, dtype=np.float32), rng.random((5, 7), dtype=np.float32)
    np.testing.assert_array_equal(array(first, "in.input"), tokens)
    np.testing.assert_array_equal(array(first, "out.dispatch")[0], gates[0] * tokens[0])
    text = replayed(capsys, first, second)
    assert text.startswith("moe_dispatch_forward(")
    assert text.count("as recorded") == 2
    assert "dispatch: same bits in 42 elements" in text


def test_the_memory_of_a_replay_is_not_the_recorded_result(tmp_path, capsys):
    """Detects a difference from a recorded file that the test changes."""
    (path,) = record(tmp_path, DISPATCH)
    changed = array(path, "out.dispatch")
    changed[0, 3] += 1
    np.save(path / "out.dispatch.npy", changed)
    assert cli.main(["replay", str(path)]) == 1
    text = capsys.readouterr().out
    assert "dispatch: 1 of 42 elements differ, diff3" in text
    assert "NOT as recorded" in text


EVERY_KIND = """
import ml_dtypes, numpy as np, turnout
rng = np.random.default_rng(0)
sites = np.array([[0, 0, 0, 0], [0, 0, 0, 1]], np.int64)
turnout.get_indice_pairs(sites, 1, (1, 1, 3), kernel_size=(1, 1, 3), padding=(0, 0, 1))
feats = rng.random((6, 2)).astype(ml_dtypes.bfloat16)
coors = rng.integers(-1, 2, (6, 3)).astype(np.int32)
turnout.dynamic_scatter_forward(feats, coors, "mean")
turnout.VoxelIndex(coors)
px, py = (rng.random(shape, dtype=np.float32) for shape in ((2, 3, 5), (2, 4, 4)))
p, ans = turnout.mutual_information_forward(px, py, boundary=np.array([(0, 0, 3, 4), (1, 1, 2, 2)]))
turnout.mutual_information_backward(px, py, p, ans, overwrite_ans_grad=True)
tokens = rng.integers(0, 255, (4, 3)).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
turnout.moe_re_routing(tokens, np.array([[1, 3]], np.int64))
weights = rng.random((2, 3, 5), dtype=np.float32).transpose(0, 2, 1)
pairs = np.array([[[0, 1], [0, 1]], [[0, -1], [1, -1]]], np.int32)
turnout.indice_convolution_forward(
    rng.random((2, 5), dtype=np.float32), weights, pairs, np.array([2, 1], np.int32), 2
)
"""


def test_every_kind_of_argument(tmp_path, capsys):
    """Vectors, bfloat16, 8-bit floats, absent and strided arguments, modified arguments."""
    paths = record(tmp_path, EVERY_KIND)
    names = [path.name.split(".")[0] for path in paths]
    assert {"get_indice_pairs", "dynamic_scatter_forward", "moe_re_routing"} <= set(names)
    text = replayed(capsys, *paths)
    assert "NOT as recorded" not in text
    # Functions that first compute the sizes of their results are recorded as one call.
    assert len(names) == len(set(names)) == 7
    assert text.count("as recorded") == 6
    assert text.count("cannot be replayed: it is one step") == 1  # the VoxelIndex
    moved = paths[names.index("moe_re_routing")]
    assert described(moved)["arguments"][0]["dtype"] == "f8_e4m3fn"
    assert array(moved, "in.tokens").dtype == np.uint8
    filters = described(paths[names.index("indice_convolution_forward")])["arguments"][1]
    assert (filters["name"], filters["strides"]) == ("filters", [15, 1, 5])
    backward = paths[names.index("mutual_information_backward")]
    assert (array(backward, "in.ans_grad") != array(backward, "out.ans_grad")).any()


REFUSED = DISPATCH + "turnout.moe_dispatch_forward(gates, indices, locations[:4], tokens, 3, 2)\n"


def test_only_failing_calls_are_recorded(tmp_path, capsys):
    (path,) = record(f"on_error:{tmp_path}", REFUSED, fails=True)
    message = described(path)["error"]
    assert message.startswith("moe_dispatch_forward: locations.shape[0] is 4")
    assert array(path, "in.locations").shape == (4,)
    assert not list(path.glob("out.*"))
    assert f"now: {message}" in replayed(capsys, path)


def test_a_recorded_error_that_no_longer_occurs(tmp_path, capsys):
    (path,) = record(f"on_error:{tmp_path}", REFUSED, fails=True)
    np.save(path / "in.locations.npy", np.array([0, 0, 2, 0, 1], np.int32))
    text = (path / "call.json").read_text()
    shape = '"name": "locations", "dtype": "i32", "rank": 1, "shape": [{}]'
    assert shape.format(4) in text
    (path / "call.json").write_text(text.replace(shape.format(4), shape.format(5)))
    assert cli.main(["replay", str(path)]) == 1
    assert "now: no error" in capsys.readouterr().out


MANY_DIMENSIONS = (
    DISPATCH
    + """
gates = gates.reshape((1,) * 19 + (5,))
turnout.moe_dispatch_forward(gates, indices, locations, tokens, 3, 2)
"""
)


def test_more_dimensions_than_a_tensor_has(tmp_path, capsys):
    _, path = record(tmp_path, MANY_DIMENSIONS, fails=True)
    gates = described(path)["arguments"][0]
    assert gates == {"name": "gates", "dtype": "f32", "rank": 20, "shape": [1] * 8}
    assert not (path / "in.gates.npy").exists()
    assert f"now: {described(path)['error']}" in replayed(capsys, path)


def test_a_process_that_ends_during_a_call_leaves_the_arguments(tmp_path, capsys):
    """The inputs are complete before the operator starts."""
    (path,) = record(tmp_path, DISPATCH)
    (path / "out.dispatch.npy").unlink()
    assert "no results were recorded" in replayed(capsys, path)


def test_a_directory_that_cannot_be_written():
    value = "/proc/none"
    program = "import sys, turnout.cli; sys.exit(turnout.cli.main(['info']))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"TURNOUT_RECORD": value},
    )
    message = f"TURNOUT_RECORD is '{value}', expected a writable directory, or on_error: followed by one"
    assert (done.returncode, done.stderr) == (2, f"turnout: {message}\n")


def test_folders_that_are_not_calls(tmp_path, capsys):
    def refusal(text: str | None) -> str:
        if text is not None:
            (tmp_path / "call.json").write_text(text)
        assert cli.main(["replay", str(tmp_path)]) == 2
        return capsys.readouterr().err

    start = f"turnout: {tmp_path} is not the folder of a recorded call: "
    assert refusal(None).startswith(start + "[Errno 2] No such file or directory: ")
    assert refusal("{").startswith(start)
    assert refusal("{}") == start + "'arguments'\n"
    assert refusal('{"arguments": [{"name": "x"}]}').startswith(start)


def test_a_call_that_the_c_interface_refused(tmp_path, capsys):
    call = {"op": "mluOpMoeDispatchForward", "function": "mluOpMoeDispatchForward", "version": "", "isa": ""}
    call |= {"error": "gates is missing", "scalars": {}, "arguments": []}
    (tmp_path / "call.json").write_text(json.dumps(call))
    text = replayed(capsys, tmp_path)
    assert (
        "cannot be replayed, because it was rejected before it reached an operator: gates is missing" in text
    )
