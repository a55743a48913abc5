"""The programs that build and check the documentation."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools/docs"))
import headers
import links
import snippets
import stage

del sys.path[:2]


def test_blocks_continue_and_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(snippets, "ROOT", tmp_path)
    page = ["```python", "import numpy", "```", "text", "```python", "x = 1", "```"]
    page += [
        "<!-- not run: slow -->",
        "```python",
        "import torch",
        "```",
        "```c",
        "int main(void) {}",
        "```",
        "",
    ]
    (tmp_path / "page.md").write_text("\n".join(page))
    [program] = snippets.snippets(Path("page.md"), "python")
    assert program.name == "page.md:1"
    assert program.code == "import numpy\n\nx = 1\n"
    assert [c.code for c in snippets.snippets(Path("page.md"), "c")] == ["int main(void) {}\n"]


def test_a_first_block_without_an_import_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(snippets, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("```python\nx = 1\n```\n")
    with pytest.raises(ValueError, match=r"page\.md:1: this block imports nothing"):
        snippets.snippets(Path("page.md"), "python")


@pytest.mark.parametrize("target", ["other.html", "#nothing", "page.html#nothing", "picture.png"])
def test_broken_links_are_found(tmp_path, target):
    (tmp_path / "page.html").write_text(f'<p id="here"><a href="#here">x</a><a href="{target}">y</a></p>')
    with pytest.raises(SystemExit, match=rf"page\.html: {target}"):
        links.check(tmp_path)


def test_links_are_counted(tmp_path):
    (tmp_path / "page.html").write_text(
        '<p id="a b"><a href="page.html#a%20b">x</a><a href="https://x.y">z</a></p>'
    )
    assert links.check(tmp_path) == 1


def test_a_header_becomes_a_page(tmp_path):
    header = tmp_path / "family.h"
    header.write_text(
        "// What it is for.\n#pragma once\n\n#include <x>\n\nnamespace turnout {\n\n"
        "// Adds *all* rows:\n//   out = a + b\nTURNOUT_API void add(Context& context, int a = {});\n"
        "inline void add(int a = {}) {\n  add(default_context(), a);\n}\n\n"
        "TURNOUT_API bool is(int a);  // by now\n\n}  // namespace turnout\n"
    )
    page = headers.page(header, "cpp", lambda name: f"table of {name}" if name == "add" else None)
    assert headers.title(header) == "What it is for."
    assert page == (
        "`````{cpp:function} void add(Context& context, int a = {})\n"
        "Adds \\*all\\* rows:\n\n```text\n  out = a + b\n```\n\ntable of add\n\n"
        "Also without `context`: with `default_context()`.\n`````\n\n"
        "`````{cpp:function} bool is(int a)\nBy now.\n`````"
    )


def test_links_lead_to_pages(tmp_path):
    text = "[a](#here) [b](../src/matrix/README.md#speed) [c](guides/c.md) [d](../README.md#c) [e](../tests)"
    staged = stage.Stage(tmp_path).text(Path("docs/page.md"), text)
    assert staged == "[a](#here) [b](families/matrix.md#speed) [c](guides/c.md) [d](index.md) e"


def test_links_to_sources_lead_to_copies(tmp_path):
    staged = stage.Stage(tmp_path).text(
        Path("docs/guides/c.md"), "[x](../../dev#L3) ![y](../images/scan.png)"
    )
    assert staged == "[x](../files/dev) ![y](../images/scan.png)"
    assert (tmp_path / "files/dev").read_text() == (stage.ROOT / "dev").read_text()
    assert (tmp_path / "images/scan.png").exists()


def test_a_link_to_nothing_is_an_error(tmp_path):
    made = stage.Stage(tmp_path)
    made.text(Path("docs/page.md"), "[x](missing.md)")
    assert made.errors == ["docs/page.md: the link to missing.md is broken"]


def test_every_function_of_the_headers_is_documented():
    """The reference would lack a declaration that the parser does not understand."""
    total = 0
    for path in sorted((snippets.ROOT / "include/turnout").glob("**/*.h")):
        text = path.read_text()
        declared = len(re.findall(r"^TURNOUT_(?:MLUOP_)?API (?:void|mluOpStatus_t) ", text, re.MULTILINE))
        page = headers.page(path, "cpp", lambda name: None)
        assert page.count(":function} void ") + page.count(":function} mluOpStatus_t ") == declared, path
        total += declared
    assert total > 80


def test_without_torch_its_parts_are_left_out_and_counted(tmp_path):
    made = stage.Stage(tmp_path)
    made.has_torch = False
    page = Path("docs/reference/page.md")
    text = "a <!-- python reference of turnout.torch: turnout.torch.scatter -->\n"
    left = made.text(page, text + "<!-- python reference of turnout.compat.k2: turnout.compat.k2 -->")
    assert "autofunction" not in left
    assert left.count("built without it") == 2
    assert made.shortened == {page}
    kept = made.text(Path("docs/other.md"), "<!-- python reference of turnout: turnout.scatter -->")
    assert ".. autofunction:: scatter_sum" in kept
    assert made.shortened == {page}


def test_a_page_shows_the_recorded_schemas(tmp_path):
    page = stage.Stage(tmp_path).text(Path("docs/page.md"), "<!-- torch operators -->")
    recorded = (stage.ROOT / "docs/schemas.txt").read_text()
    assert page == f"```text\n{recorded}```"


def test_the_reference_begins_with_main_functions_and_ends_with_gradients():
    text = stage._python_reference("turnout", ["turnout.moe_dispatch", "turnout.moe_routing"])
    names = re.findall(r"autofunction:: (\w+)", text)
    assert names[:2] == ["moe_dispatch", "moe_combine"]
    gradients = ["_backward" in name for name in names]
    assert gradients == sorted(gradients)
    assert sum(gradients) >= 4
    assert stage._rank("mutual_information", "mutual_information_forward_backward") == 2
