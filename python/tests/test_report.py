"""The test report: all named scales within their limits, and the committed report about all of them."""

import re
from pathlib import Path

import pytest

from turnout.check import report, scales

ROOT = Path(__file__).parents[2]
REPORT = (ROOT / "docs" / "reports" / "named_scales.md").read_text()
PAGE = (ROOT / "docs" / "conformance.md").read_text()


def rows_of(text, *header):
    """The rows of the table that has this header."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("| ") and [cell.strip() for cell in line.strip("| ").split(" | ")] == [*header]:
            break
    next(lines)  # the rule below the header
    for line in lines:
        if not line.startswith("|"):
            return
        yield dict(zip(header, (cell.strip() for cell in line[1:-1].split("|")), strict=True))


COMMITTED = list(rows_of(REPORT, *report.COLUMNS))


@pytest.fixture(scope="module")
def measured():
    """Rows of all cases, untimed, by operator, scale and output."""
    rows = [row for case in scales.SCALES for row in report.check_case(case, timed=False)]
    return {(row.case.op, row.case.name, row.output): row for row in rows}


def test_every_output_of_every_named_scale_is_within_its_limit(measured):
    assert [row.cells() for row in measured.values() if not row.passed] == []
    assert len(measured) > 100


def test_the_committed_report_has_every_output(measured):
    assert [(row["operator"], row["scale"], row["output"]) for row in COMMITTED] == list(measured)
    for row, now in zip(COMMITTED, measured.values(), strict=True):
        assert row["result"] == "ok"
        assert (row["document"], row["limit"]) == (now.case.document, now.cells()[7])
        # The limit holds for the numbers that the report shows, too.
        diffs = [float(row[name]) for name in ("diff1", "diff2", "diff3")]
        assert diffs[2] == 0 if now.limit == 0 else max(diffs[:2]) <= now.limit
    sizes = {
        (row["operator"], row["scale"]): row["sizes"] for row in rows_of(REPORT, "operator", "scale", "sizes")
    }
    assert sizes == {(row.case.op, row.case.name): row.sizes for row in measured.values()}


def test_the_committed_report_has_the_time_of_every_scale_that_has_work():
    """Once per case. Cases without work, and those of some rows, which take microseconds, have none."""
    for case in scales.SCALES:
        data = case.make()
        works = data.bytes_moved or data.bytes_copied or data.operations
        rows = [row for row in COMMITTED if (row["operator"], row["scale"]) == (case.op, case.name)]
        timed = [row for row in rows if row["efficiency"]]
        assert len(timed) == bool(works), (case.op, case.name)
        for row in timed:
            assert float(row["CPU ms"]) > 0
            assert re.fullmatch(r"[\d.]+ (GB|GFLOP)/s", row["speed"])
            assert int(row["efficiency"].partition("%")[0]) > 0


# MLU-OPS asks for 60 % of the bandwidth or of the peak at the scales of networks, and for 30 % elsewhere.
NETWORK, ELSEWHERE = 60, 30


def below_the_standard():
    for row in COMMITTED:
        if not row["efficiency"]:
            continue
        reached, _, floor = row["efficiency"].partition("% of ")
        is_network = "network scale" in row["scale"] or row["scale"] == "at the submanifold scale"
        asked = NETWORK if is_network else ELSEWHERE
        if int(reached) < asked:
            yield row["operator"], row["scale"], f"{asked} %", f"{reached} % of {floor}"


def test_the_page_gives_a_reason_wherever_the_standard_is_not_met():
    header = ("operator", "scale", "asked for", "reached", "reason")
    rows = list(rows_of(PAGE, *header))
    assert [tuple(row.values())[:4] for row in rows] == list(below_the_standard())
    assert all(len(row["reason"]) > 20 for row in rows)


@pytest.mark.parametrize("heading", ["4.1", "4.2"])
def test_numbers_of_the_page_are_those_of_the_report(heading):
    """Every percentage and every time in a row about performance is in the report."""
    rows = [line for line in PAGE.splitlines() if re.match(rf"\| ({heading} |[\w ]+\({heading} of )", line)]
    assert len(rows) == 5
    percentages = {row["efficiency"].partition("%")[0] for row in COMMITTED if row["efficiency"]}
    times = [float(row["CPU ms"]) for row in COMMITTED if row["CPU ms"]]
    for line in rows:
        for number in re.findall(r"(\d+) %", line):
            assert number in percentages, line
        for number in re.findall(r"([\d.]+) ms", line):
            digits = len(number.partition(".")[2])
            assert any(round(time, digits) == float(number) for time in times), (number, line)
