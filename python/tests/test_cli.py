"""The shell command turnout."""

import inspect
import os
import subprocess
import sys
from operator import attrgetter

import pytest

import turnout
from turnout import _core, check, cli


def output_of(capsys, *arguments):
    assert cli.main(list(arguments)) == 0
    return capsys.readouterr().out


def test_info(capsys):
    text = output_of(capsys, "info")
    assert f"version          {turnout.__version__}\n" in text
    assert _core.info()["isa"] in text
    assert "turnout.torch" in text


def test_ops(capsys):
    text = output_of(capsys, "ops")
    for signature in _core.functions():
        assert f"\n{signature['op']}(" in f"\n{text}"
    row = next(line for line in text.splitlines() if line.startswith("  gates "))
    assert row.split(maxsplit=2)[2].split("  ")[0] == "[choices?, samples]"
    assert row.endswith("that of input, or float32")


# Arguments without a row in a signature: they select results or another form, or are not integers.
WITHOUT_ROW = {
    "voxelize": {"max_points", "max_voxels", "return_map"},
    "moe_experts": {"transposed", "alpha", "limit"},
    "moe_experts_quantized": {"alpha", "limit"},
    "voxel_query": {"ranges"},
}


# Rows of operators that the public functions do not have: the stand-ins need distances; ranges are a tuple.
NOT_PUBLIC = {
    **{f"furthest_point_sample{kind}": {"with_distances"} for kind in ("", "_stacked", "_by_distances")},
    "voxel_query": {"z_range", "y_range", "x_range"},
}


def test_ops_have_the_arguments_of_python():
    """Every argument of a function has a row, and the other rows are results in a tuple `out`."""
    seen = set()
    for function in _core.functions():
        name = function["op"]
        rows = [row["name"] for row in function["arguments"] + function["scalars"]]
        parameters = inspect.signature(attrgetter(name)(turnout)).parameters
        expected = {parameter for parameter in parameters if parameter != "self"}
        expected -= WITHOUT_ROW.get(name, set()) - set(rows)
        if "out" not in rows:
            expected -= {"out"}
        expected |= {row["name"] for row in function["arguments"] if row["role"] != "in"}
        assert set(rows) - NOT_PUBLIC.get(name, set()) == expected
        seen.add(name.split(".")[0])
    library = {"OutputCache", "__version__", "output_cache", "trim"}
    library |= {"get_num_threads", "quantize_experts", "set_log", "set_num_threads", "show_config"}
    assert seen == set(turnout.__all__) - library


def test_ops_of_one_name(capsys):
    text = output_of(capsys, "ops", "voxelize")
    assert text.startswith("voxelize(points, voxel_size, point_cloud_range, *, max_points=-1")
    assert "scatter" not in text
    assert cli.main(["ops", "voxelize_hard"]) == 2
    assert capsys.readouterr().err == (
        "turnout: ops: name is voxelize_hard, expected an operator of python; `turnout ops` lists them\n"
    )


def test_ops_of_c_and_cpp(capsys):
    """Lists the C functions and all C++ operators of the headers."""
    text = output_of(capsys, "ops", "--language", "c", "mluOpMoeDispatchForward")
    assert text.startswith("mluOpStatus_t mluOpMoeDispatchForward(\n  mluOpHandle_t handle,\n")
    assert "aclnnStatus aclnnMoeReRouting(\n" in output_of(capsys, "ops", "--language", "c")
    text = output_of(capsys, "ops", "--language", "cpp")
    operators = {signature["op"] for signature in _core.signatures()}
    operators -= {"indice_convolution_index"}  # in C++ the constructor of a class
    assert [op for op in operators if f" {op}(\n" not in text] == []
    assert text.count("  const Caller& caller = {})") >= len(operators)
    text = output_of(capsys, "ops", "--language", "cpp", "global_max_pool_forward")
    arguments = ["const ConstTensor& features,", "const ConstTensor& indices,", "const Tensor& features_out,"]
    assert text.splitlines()[1:4] == [f"  {argument}" for argument in arguments]


@pytest.mark.torch
def test_ops_of_torch(capsys):
    pytest.importorskip("torch")
    text = output_of(capsys, "ops", "--language", "torch")
    assert "\nvoxelize(points, voxel_size, point_cloud_range, *, max_points=-1" in text
    assert "voxelize_hard" not in text
    row = next(line for line in text.splitlines() if line.startswith("  delay_penalty "))
    assert row.split() == ["delay_penalty", "float"]


def test_closed_pipe(tmp_path):
    """turnout ops | head"""
    command = f"{sys.executable} -m turnout ops | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("moe_dispatch_forward(gates, ")
    # The reader closes the pipe before the first line.
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "turnout", "ops"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "turnout", "--version"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, f"turnout {turnout.__version__}\n")


def test_check(capsys):
    *lines, last = output_of(capsys, "check", "--quick").splitlines()
    assert lines == [f"{signature['op']}: ok" for signature in _core.signatures()]
    assert last == f"operators checked: {len(lines)}; all passed"


def test_check_reports_failure(capsys, monkeypatch):
    def wrong(rng):
        raise AssertionError("not equal")

    monkeypatch.setitem(check.CHECKS, "moe_dispatch_forward", wrong)
    assert cli.main(["check", "--quick", "moe_dispatch_forward"]) == 1
    assert capsys.readouterr().out == (
        "moe_dispatch_forward: not equal\noperators checked: 1; 1 failed: moe_dispatch_forward\n"
    )


def test_check_of_an_unknown_operator(capsys):
    assert cli.main(["check", "moe_dispach"]) == 2
    assert capsys.readouterr().err.startswith(
        "turnout: check: operator is 'moe_dispach', expected one of moe_"
    )


def test_help_has_examples_and_exit_codes(capsys):
    for command in ("", "info", "ops", "check", "bench", "run", "call", "replay"):
        with pytest.raises(SystemExit) as left:
            cli.main([*command.split(), "--help"])
        assert left.value.code == 0
        text = capsys.readouterr().out
        assert f"turnout {command}" in text.partition("examples:")[2]
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "exit codes: 0 success; 1 a check failed" in capsys.readouterr().out


def test_without_rich(tmp_path):
    """rich draws tables on a terminal; commands work without it, and files never contain its colours."""
    (tmp_path / "rich.py").write_text("raise ImportError('hidden')")
    done = subprocess.run(
        [sys.executable, "-m", "turnout", "check", "moe_re_routing_inverse"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("moe_re_routing_inverse: ok\n")
    assert "\x1b" not in done.stdout


def test_version_and_usage(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"turnout {turnout.__version__}\n"
    with pytest.raises(SystemExit) as left:
        cli.main([])
    assert left.value.code == 2


def test_log_goes_to_stderr():
    program = "import turnout.cli as c; c.main(['check', '--quick', 'moe_dispatch_forward'])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={"TURNOUT_LOG": "1"}, timeout=120
    )
    assert done.stdout.startswith("moe_dispatch_forward: ok\n")
    assert "[turnout] moe_dispatch_forward(gates f32[2, 37]" in done.stderr
