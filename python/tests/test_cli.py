"""The shell command."""

import subprocess
import sys

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
    for signature in _core.signatures():
        assert signature["op"] in text
    row = next(line for line in text.splitlines() if line.startswith("  gates "))
    assert row.split(maxsplit=2)[2].split("  ")[0] == "[choices?, samples]"
    assert row.endswith("that of input, or f32")


def test_check(capsys):
    lines = output_of(capsys, "check").splitlines()
    assert lines == [f"{signature['op']}: ok" for signature in _core.signatures()]


def test_check_reports_failure(capsys, monkeypatch):
    def wrong(rng):
        raise AssertionError("not equal")

    monkeypatch.setitem(check.CHECKS, "moe_dispatch_forward", wrong)
    assert cli.main(["check"]) == 1
    assert "moe_dispatch_forward: not equal" in capsys.readouterr().out


def test_version_and_usage(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"turnout {turnout.__version__}\n"
    with pytest.raises(SystemExit) as left:
        cli.main([])
    assert left.value.code == 2


def test_log_goes_to_stderr():
    program = "import turnout.cli as c; c.main(['check'])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={"TURNOUT_LOG": "1"}, timeout=120
    )
    assert done.stdout.startswith("moe_dispatch_forward: ok\n")
    assert "[turnout] moe_dispatch_forward(gates f32[2, 37]" in done.stderr
