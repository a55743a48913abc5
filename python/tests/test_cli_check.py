"""turnout check: the measures, the named scales, the report."""

import numpy as np
import pytest

from turnout import _core, check, cli
from turnout.check import measures, report, scales

# The families' tests cover the other scales; here each would take seconds, mostly in definitions.
LARGE = {("moe_dispatch_forward", "MLU-OPS case 3"), ("moe_dispatch_backward_gate", "MLU-OPS case 0")}
LARGE |= {(f"mutual_information_{op}", "MLU-OPS case, large S and T") for op in ("forward", "backward")}
KINDS = ("0 elements, case 2", "boundary", "MLU-OPS case", "shape of", "B 4", "by hand", "no token", "empty")
SMALL = [case for case in scales.SCALES if case.name.startswith(KINDS) and (case.op, case.name) not in LARGE]


def test_measures_by_hand():
    e, b = np.array([1.0, 2.5, -4.0], np.float32), np.array([1.0, 2.0, -4.0], np.float32)
    measured = measures.differences(e, b)
    assert measured.diff1 == pytest.approx(0.5 / 7)
    assert measured.diff2 == pytest.approx(np.sqrt(0.25 / 21))
    assert measured.diff3 == pytest.approx(0.25)
    assert measured.within(0.2)
    assert not measured.within(0.05)
    assert not measured.within(0)


def test_diff3_of_small_values_is_absolute():
    e, b = np.array([3e-7], np.float32), np.array([1e-7], np.float32)
    assert measures.differences(e, b).diff3 == pytest.approx(2e-7)
    assert measures.differences(e.astype(np.float64), b.astype(np.float64)).diff3 > 1


def test_non_finite_values_must_agree_and_finite_ones_are_compared():
    b = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert measures.differences(b, b.copy()).within(0)
    wrong = np.array([np.nan, np.inf, -np.inf, 2.0])
    assert measures.differences(wrong, b).diff1 == pytest.approx(1)
    for i, other in ((0, 1.0), (1, -np.inf), (2, 5.0), (3, np.nan)):
        e = b.copy()
        e[i] = other
        assert not measures.differences(e, b).within(1e30)


def test_large_integers_are_compared_exactly():
    b = np.array([2**60], np.int64)
    assert measures.differences(b, b.copy()).within(0)
    assert not measures.differences(b + 2**10, b).within(0)
    with pytest.raises(ValueError, match="shape"):
        measures.differences(b, b[:0])


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.op}-{case.name}")
def test_named_scales(case):
    for row in report.check_case(case, timed=False):
        assert row.passed, row.cells()


def test_named_scales_of_the_first_document():
    (row,) = report.check_case(scales.SCALES[0])
    assert (row.case.op, row.case.name) == ("moe_dispatch_forward", "network scale")
    assert row.passed
    assert row.measured.diff3 == 0
    assert 0 < row.speed.efficiency < 3


def test_every_operator_of_the_documents_has_its_scales():
    documents = {case.document for case in scales.SCALES}
    assert documents == {"000", "001", "002", "003", "004"}
    operators = {signature["op"] for signature in _core.signatures()}
    assert {case.op for case in scales.SCALES} <= operators
    names = [(case.op, case.name) for case in scales.SCALES]
    assert len(names) == len(set(names))


@pytest.fixture
def one_case(monkeypatch):
    case = next(case for case in SMALL if case.name == "by hand")
    monkeypatch.setattr(scales, "SCALES", [case])
    return case


def test_report_has_every_output(one_case, tmp_path, capsys):
    path = tmp_path / "report.md"
    assert cli.main(["check", "moe_re_routing", "--report", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"wrote {path}\noperators checked: 1; all passed\n")
    lines = [line for line in path.read_text().splitlines() if line.startswith("| moe_re_routing | 002 |")]
    outputs = [line.split(" | ")[3] for line in lines]
    assert outputs == ["permute_tokens", "permute_token_idx", "expert_token_num"]
    assert all(" | 0 | 0 | 0 | diff3 = 0 | ok | " in line for line in lines)
    assert "of streamed copy" in lines[0]
    assert "3 of 3 outputs are within their limits" in path.read_text()


def test_a_wrong_result_fails(one_case, monkeypatch, capsys):
    monkeypatch.setattr(check, "moe_re_routing", lambda tokens, counts, **_: (tokens, None, counts, counts))
    assert cli.main(["check", "moe_re_routing"]) == 1
    said = capsys.readouterr().out
    assert report.FAILED in said
    assert said.endswith("operators checked: 1; 1 failed: moe_re_routing\n")


def test_results_that_differ_are_measured(one_case, monkeypatch):
    definition = check.moe_re_routing

    def other(*arguments, **options):
        tokens, *rest = definition(*arguments, **options)
        return tokens + np.int8(1), *rest

    monkeypatch.setattr(check, "moe_re_routing", other)
    rows = report.check_case(one_case, timed=False)
    assert [row.passed for row in rows] == [False, True, True]
    assert rows[0].measured.diff3 > 0
