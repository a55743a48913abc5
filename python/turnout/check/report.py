"""The test report: differences, time and efficiency of each operator at each named scale."""

from __future__ import annotations

import datetime
import platform
from dataclasses import dataclass
from pathlib import Path

from turnout import _core, terminal
from turnout.check.measures import Differences, differences
from turnout.check.scales import Case, arrays_of
from turnout.floors import Speed, speed

COLUMNS = (
    *("operator", "document", "scale", "output", "diff1", "diff2", "diff3", "limit", "result"),
    *("CPU ms", "speed", "efficiency"),
)
FAILED = "FAILED"


@dataclass(frozen=True)
class Row:
    """One output of one case. The first output of a case also holds its speed."""

    case: Case
    sizes: str
    output: str
    measured: Differences | None  # None if the case raised an error, which is in `output`
    limit: float = 0.0
    speed: Speed | None = None

    @property
    def passed(self) -> bool:
        return self.measured is not None and self.measured.within(self.limit)

    def cells(self) -> tuple[str, ...]:
        diffs = ("", "", "")
        if self.measured is not None:
            diffs = tuple(
                "0" if x == 0 else f"{x:.1e}"
                for x in (self.measured.diff1, self.measured.diff2, self.measured.diff3)
            )
        limit = "diff3 = 0" if self.limit == 0 else f"{self.limit:.0e}"
        timing = ("", "", "")
        if self.speed is not None:
            timing = (
                f"{self.speed.seconds * 1e3:.3f}",
                f"{self.speed.rate / 1e9:.1f} {self.speed.unit}",
                f"{self.speed.efficiency:.0%} of {self.speed.floor}",
            )
        case = self.case
        names = (case.op, case.document, case.name, self.output)
        return (*names, *diffs, limit, "ok" if self.passed else FAILED, *timing)


def check_case(case: Case, *, timed: bool = True) -> list[Row]:
    """Compares one case with its definition and times it. An error also becomes a row."""
    try:
        data = case.make()
        results, expected = arrays_of(data.run()), arrays_of(data.definition())
        measured = [differences(e, b) for e, b in zip(results, expected, strict=True)]
        work = {
            "bytes_moved": data.bytes_moved,
            "bytes_copied": data.bytes_copied,
            "operations": data.operations,
        }
        timing = speed(data.run, **work) if timed else None
    except Exception as error:  # keep checking the other operators
        return [Row(case, "", f"{type(error).__name__}: {error}", None)]
    rows = zip(data.limits.items(), measured, strict=True)
    return [
        Row(case, data.sizes, name, one, limit, timing if i == 0 else None)
        for i, ((name, limit), one) in enumerate(rows)
    ]


_PAGE = """\
# Test report

{passed} of {outputs} outputs are within their limits. Turnout {version}, {isa}, {cpu}, {date}.
Written by `turnout check --report`.

The requirements of each design document, and the tests that cover them: {conformance}.

The baseline is the definition in `turnout.check`, in plain NumPy. diff1 is the sum of the absolute errors
divided by the sum of the absolute values. diff2 is the same with squares, under a square root. diff3 is the
largest relative error; for values below 1e-6 it is absolute. A limit of `diff3 = 0` requires equal values;
any other limit applies to diff1 and diff2.

Times are median CPU times of one thread. An efficiency compares with a floor that is measured alternately
with the operator: a streamed copy that reads and writes as many bytes, a memcpy of the operator's arrays, or
the peak rate of fused multiply-adds.

{table}
## Sizes

{sizes}"""


def markdown(rows: list[Row], path: Path) -> str:
    """Renders the report as a Markdown page that names the machine and the command to reproduce it."""
    info = _core.info()
    sizes = {(row.case.op, row.case.name): row.sizes for row in rows}
    return _PAGE.format(
        passed=sum(row.passed for row in rows),
        outputs=len(rows),
        version=info["version"],
        isa=info["isa"],
        cpu=_cpu(),
        date=f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
        conformance=_conformance(path),
        table=terminal.markdown_table(COLUMNS, [row.cells() for row in rows]),
        sizes=terminal.markdown_table(
            ("operator", "scale", "sizes"), [(*names, text) for names, text in sizes.items()]
        ),
    )


def _conformance(path: Path) -> str:
    """Returns a link if its target exists relative to the report, otherwise the path."""
    page = "../conformance.md"
    exists = (path.parent / page).exists()
    return f"[docs/conformance.md]({page})" if exists else "docs/conformance.md in the source tree"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
