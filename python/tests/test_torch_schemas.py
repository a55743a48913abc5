"""docs/schemas.txt records the schemas of torch.ops.turnout, and tools/schemas.py writes it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import schemas

del sys.path[0]

pytestmark = pytest.mark.torch


def test_schemas_are_recorded():
    """Exported models depend on the schemas. After an intended change, run python tools/schemas.py."""
    assert schemas.PATH.read_text().splitlines() == schemas.schemas()


def test_a_changed_schema_is_shown(tmp_path, monkeypatch, capsys):
    path = tmp_path / "schemas.txt"
    monkeypatch.setattr(schemas, "PATH", path)
    schemas.main([])
    written = path.read_text()
    schemas.main(["--check"])
    capsys.readouterr()
    other = written.replace("(Tensor lm, Tensor ranges) -> Tensor", "(Tensor lm) -> Tensor")
    assert other != written
    path.write_text(other)
    with pytest.raises(SystemExit, match=r"run python tools/schemas\.py"):
        schemas.main(["--check"])
    assert path.read_text() == other
    assert capsys.readouterr().out.splitlines() == [
        "- turnout::rnnt_pruning_forward(Tensor lm) -> Tensor",
        "+ turnout::rnnt_pruning_forward(Tensor lm, Tensor ranges) -> Tensor",
    ]
    schemas.main([])
    assert path.read_text() == written
