"""The tables and the chart of speeds, which tools/speed.py writes from docs/speed.json."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import speed

del sys.path[0]


def row(name, family, ours, peer, **more):
    return {
        **{"id": name, "family": family, "call": "scatter_sum", "size": "9 rows", "dtype": "f32"},
        **{"threads": [2, 2], "outputs": "new", "peer": "PyTorch `index_add_`"},
        **{"turnout_us": [0.9 * ours, ours, 1.1 * ours], "peer_us": [0.9 * peer, peer, 1.1 * peer]},
        **{"command": f"./dev bench --pick {name}", **more},
    }


@pytest.fixture
def root(tmp_path):
    """Makes a repository with one page of two tables, and a call for which the peer is faster."""
    rows = [
        row("voxelize", "points", 1000.0, 12340.0, threads=[2, 1]),
        row("scatter_sum-1", "points", 100.0, 60.0),
        row("scatter_sum-16", "others", 100.0, 200.0, call="a step of training"),
    ]
    about = {"cpu": "a CPU", "cpus": 2, "instruction_set": "avx2", "date": "2026-11-17", "torch": "2.9"}
    about["busy"] = 0.02
    (tmp_path / "docs/images").mkdir(parents=True)
    (tmp_path / "docs/speed.json").write_text(json.dumps({**about, "comparisons": rows}))
    parts = "# Page", "<!-- speed: points -->", "<!-- end -->", "text", "<!-- speed: scatter_sum-1 -->", "old"
    (tmp_path / "docs/page.md").write_text("\n".join([*parts, "<!-- end -->", ""]))
    speed.main([], tmp_path)
    return tmp_path


def test_tables_have_the_rows_of_a_family_or_of_an_id(root):
    first, second = (root / "docs/page.md").read_text().split("text\n")
    assert "2 CPUs (a CPU, avx2), 2026-11-17, with PyTorch 2.9" in first
    times = "1 ms (900 us to 1.1 ms) | 12.3 ms (11.1 ms to 13.6 ms)"
    assert (
        f"| `scatter_sum`, f32, 9 rows | PyTorch `index_add_` | 12 | {times} | 2 and 1; new | `voxelize` |"
        in first
    )
    assert "| **0.60** | 100 us (90 us to 110 us) |" in first
    assert "`scatter_sum-16`" not in first + second
    assert "`scatter_sum-1`" in second
    assert "Measured on" not in second  # the machine is named only once
    assert "`voxelize`" not in second
    assert "old" not in second


def test_check_fails_if_a_number_was_changed(root):
    speed.main(["--check"], root)
    page = root / "docs/page.md"
    page.write_text(page.read_text().replace("| **0.60** |", "| 1.60 |", 1))
    with pytest.raises(SystemExit, match=r"docs/page.md: the speeds differ"):
        speed.main(["--check"], root)
    assert "| 1.60 |" in page.read_text()


def test_check_fails_if_the_chart_is_stale(root):
    (root / "docs/images/speed.svg").write_text("<svg/>")
    with pytest.raises(SystemExit, match=r"docs/images/speed.svg: the speeds differ"):
        speed.main(["--check"], root)


def test_a_run_on_a_busy_machine_is_called_preliminary(root):
    recorded = root / "docs/speed.json"
    recorded.write_text(recorded.read_text().replace('"busy": 0.02', '"busy": 0.5'))
    speed.main([], root)
    for name in ("docs/page.md", "docs/images/speed.svg"):
        assert "preliminary: other programs used the CPUs" in (root / name).read_text()


def test_a_table_without_rows_is_an_error(root):
    (root / "docs/page.md").write_text("<!-- speed: scatter -->\n<!-- end -->\n")
    with pytest.raises(SystemExit, match="no comparison for 'scatter'"):
        speed.main([], root)


def test_the_chart_shows_calls_for_which_the_other_program_is_faster(root):
    chart = (root / "docs/images/speed.svg").read_text()
    assert "Measured on 2 CPUs (a CPU, avx2), 2026-11-17<" in chart
    assert ">0.60x PyTorch index_add_<" in chart  # not one of those that are always charted
    assert chart.count('rx="2" class="b"') == 1  # the colour of slower calls
    assert chart.count('rx="2" class="a"') == 1
    assert 'class="head" text-anchor="middle">1<' in chart


def test_every_charted_call_is_recorded():
    recorded = json.loads((speed.ROOT / speed.RECORDED).read_text())["comparisons"]
    assert set(speed.CHARTED) <= {row["id"] for row in recorded}
    assert len({row["id"] for row in recorded}) == len(recorded)
