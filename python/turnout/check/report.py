"""The test report: each operator at each named scale, its differences, its time and its efficiency."""

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
    """One output of one case. The first output of a case has its speed."""

    case: Case
    sizes: str
    output: str
    measured: Differences | None  # None: the case ended with an error, which is in `output`
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
    """Compares one case with its definition, and times it. An error is a row, too."""
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
    except Exception as error:  # an operator that fails must not hide the others
        return [Row(case, "", f"{type(error).__name__}: {error}", None)]
    rows = zip(data.limits.items(), measured, strict=True)
    return [
        Row(case, data.sizes, name, one, limit, timing if i == 0 else None)
        for i, ((name, limit), one) in enumerate(rows)
    ]


_PAGE = """\
# Test report

{passed} of {outputs} outputs are within their limits. Turnout {version}, {isa}, {cpu}, {date}.
Made by `turnout check --report`.

What each design document asks for, and the tests that show it: {conformance}.

The baseline is the definition in `turnout.check`, plain NumPy. diff1 is the sum of the absolute errors over
the sum of the absolute values, diff2 the same by squares, under a root, and diff3 the largest relative error,
which is absolute for values below 1e-6. A limit of `diff3 = 0` asks for equal values; any other is for diff1
and diff2.

Times are CPU times of one thread, medians. The floor of an efficiency is measured in turns with the operator:
a streamed copy that reads and writes as many bytes, a memcpy of the operator's arrays, or the peak rate of
fused multiply-adds.

{table}
## Sizes

{sizes}"""


def markdown(rows: list[Row], path: Path) -> str:
    """The report as a page. It names the machine and the command that makes it again."""
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
    """A link, if the report is where the link leads somewhere."""
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
