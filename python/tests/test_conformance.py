"""Checks docs/conformance.md: every named test exists, and every row names one."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text()
SHOWN_BY = "shown by"

PYTEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
GTEST = re.compile(r"`([A-Z]\w+)\.([A-Za-z]\w+)`")


def gtests():
    found = set()
    for path in [*(ROOT / "src").rglob("*test.cc"), *(ROOT / "tests").glob("*test.cc")]:
        for suite, name in re.findall(
            r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", path.read_text(), re.M
        ):
            found.add((suite, name))
    return found


def pytests():
    return {
        (path.name, name)
        for path in (ROOT / "python" / "tests").glob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.M)
    }


def tables():
    """Yields (heading, header cells, rows of cells) of each table with a column of tests."""
    heading, table = "", []
    for line in [*PAGE.splitlines(), ""]:
        if line.startswith("#"):
            heading = line
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")])
        elif table:
            if table[0][-1].strip() == SHOWN_BY:
                yield heading, table[0], table[2:]
            table = []


def test_named_tests_exist():
    named = set(GTEST.findall(PAGE))
    assert len(named) > 100
    assert sorted(named - gtests()) == []
    named = set(PYTEST.findall(PAGE))
    assert len(named) > 20
    assert sorted(named - pytests()) == []


def test_every_row_names_a_test():
    rows = [(heading, header, row) for heading, header, table in tables() for row in table]
    assert len(rows) > 200
    for heading, header, row in rows:
        assert len(row) == len(header), (heading, row)
        assert GTEST.search(row[-1]) or PYTEST.search(row[-1]), (heading, row)


def test_every_heading_of_the_documents_is_there():
    documents = re.split(r"^## Design document ", PAGE, flags=re.M)[1:]
    assert [text[:3] for text in documents] == ["000", "001", "002", "003", "004"]
    for text in documents:
        if text.startswith("002"):
            names = ["Products", "Function", "Parameters", "Constraints"]
        else:
            names = ["1.1", "1.2", "1.3", "1.4", "1.5", "2", "3", "4", "5", "4.1", "4.2", "5.2"]
        for name in names:
            assert re.search(rf"(^### |[,|] ){re.escape(name)}\b", text, re.M), (text[:40], name)


def test_nothing_is_left_open():
    assert not re.findall(r"\{\{|\bTBD\b", PAGE)


def test_figures_are_those_that_the_script_draws():
    path = ROOT / "tools" / "conformance_figures.py"
    spec = importlib.util.spec_from_file_location("conformance_figures", path)
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    for name, draw in figures.FIGURES.items():
        drawn = (ROOT / "docs" / "images" / name).read_text()
        assert drawn == draw().svg(), "run python tools/conformance_figures.py"
        assert f"images/{name}" in PAGE


@pytest.mark.parametrize("folder", ["src", "include", "python/turnout", "tools", "bench"])
def test_the_first_line_of_a_source_file_is_a_comment(folder):
    """Checks the maintainability rule that the first line says what a file implements."""
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".cc", ".h", ".py", ".c")]
    assert files
    for path in files:
        first, *others = path.read_text().splitlines() or [""]
        assert not others or first.startswith(("//", "/*", '"""', "#!", "# ", 'r"""')), path
