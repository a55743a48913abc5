"""turnout bench."""

import importlib.util
import json
import xml.dom.minidom

import pytest

from turnout import bench, cli
from turnout.check import scales


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """One case with a peer, and one without work."""
    names = ("256 tokens, float16, scales", "no token")
    chosen = [case for case in scales.SCALES if case.name in names]
    assert len(chosen) == 2
    monkeypatch.setattr(bench, "SCALES", chosen)


def test_table(capsys):
    assert cli.main(["bench", "moe_re_routing"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["operator", "scale"]
    assert row.startswith("moe_re_routing  256 tokens, float16, scales")
    assert row.endswith("of streamed copy")


def test_json_and_plot(tmp_path, capsys):
    path = tmp_path / "plot.svg"
    assert cli.main(["bench", "--json", "--plot", str(path)]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["op"] == "moe_re_routing"
    assert result["speed"]["seconds"] > 0
    assert result["torch_seconds"] is None
    drawn = xml.dom.minidom.parseString(path.read_text())
    assert len(drawn.getElementsByTagName("rect")) == 1


def test_unknown_family(capsys):
    assert cli.main(["bench", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("turnout: bench: family is 'nothing', expected one of moe_")


def test_peers_without_torch(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["bench", "--peers"]) == 2
    assert capsys.readouterr().err == "turnout: --peers needs torch, which is not installed\n"
