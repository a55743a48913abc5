"""Requirements of a release: version, changelog, repository address, citation file."""

import re
from pathlib import Path

import turnout

ROOT = Path(__file__).parents[2]
PLACEHOLDER = "https://repository.invalid/"


def test_the_changelog_begins_with_this_version():
    heading = re.search(
        r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert heading
    assert heading[1] == turnout.__version__


def test_the_repository_address_is_in_one_place():
    """Only one line must change before the first upload."""
    project = (ROOT / "pyproject.toml").read_text()
    assert len(re.findall(r"^Source = \"https://", project, re.M)) == 1
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CITATION.cff", ROOT / "CMakeLists.txt"]
    assert [page.name for page in pages if PLACEHOLDER in page.read_text()] == []


def test_the_citation_has_no_version():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^cff-version: 1\.2\.0$", citation, re.M)
    assert not re.search(r"^version:", citation, re.M)
