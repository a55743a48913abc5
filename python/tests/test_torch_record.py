"""Calls of turnout.torch are recorded and replayed; turnout bench times torch and Turnout."""

from test_record import described, record, replayed

from turnout import bench, cli
from turnout.check import scales


def test_calls_of_torch(tmp_path, capsys):
    program = """
import torch, turnout.torch
tokens = torch.arange(24, dtype=torch.bfloat16).reshape(8, 3)
turnout.torch.moe_re_routing(tokens, torch.tensor([[2, 1], [3, 2]]))
"""
    (path,) = record(tmp_path, program)
    assert described(path)["arguments"][0]["dtype"] == "bf16"
    assert "permute_tokens: same bits in 24 elements" in replayed(capsys, path)


def test_peers(monkeypatch, capsys):
    names = ("256 tokens, float16, scales", "no token")
    monkeypatch.setattr(bench, "SCALES", [case for case in scales.SCALES if case.name in names])
    assert cli.main(["bench", "--peers"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.endswith("torch / turnout")
    assert float(row.split()[-1]) > 0
