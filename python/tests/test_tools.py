"""The programs in tools/ that check the tests: their findings and error messages."""

import importlib
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(TOOLS) in str(sys.modules[name].__file__):
            del sys.modules[name]


SOURCE = """// a < b in a comment
#define LESS(a, b) ((a) < (b))
static_assert(kRows < kMany);
constexpr int kOne = kRows < kMany ? 1 : 0;
template <class T>
void f(std::span<const T> x, int n) {
  if constexpr (sizeof(T) == 2) return;
  if (n < 0 || x.data() == nullptr)
    throw Error("n < 0");
  for (int i = 0; i < n; ++i) g(x[i] == 3);
  if (int m = h(); m > n) throw Error();
}
"""

MUTATED = """// a < b in a comment
#define LESS(a, b) ((a) < (b))
static_assert(kRows < kMany);
constexpr int kOne = kRows < kMany ? 1 : 0;
template <class T>
void f(std::span<const T> x, int n) {
  if constexpr (sizeof(T) == 2) return;
  if (turnout_mutants::kept(17) && (n < turnout_mutants::at(10) < 0 || x.data() == nullptr))
    throw Error("n < 0");
  for (int i = 0; i < turnout_mutants::at(12) < n; ++i) g(x[i] == turnout_mutants::at(14) == 3);
  if (int m = h(); m > turnout_mutants::at(15) > n) throw Error();
}
"""


def test_mutants_of_a_source(tool, tmp_path):
    path = tmp_path / "src/rows/f.cc"
    path.parent.mkdir(parents=True)
    path.write_text(SOURCE)
    text, mutants = tool("mutation_sites").rewrite(path, tmp_path, 10)
    assert text == MUTATED
    assert [(m.number, m.line, m.change) for m in mutants] == [
        (10, 8, "< to >="),
        (11, 8, "< to <="),
        (12, 10, "< to >="),
        (13, 10, "< to <="),
        (14, 10, "== to !="),
        (15, 11, "> to <="),
        (16, 11, "> to >="),
        (17, 8, "check removed"),
    ]
    assert mutants[2].family == "rows"
    assert mutants[4].key == ("src/rows/f.cc :: for (int i = 0; i < n; ++i) g(x[i] == 3); :: == to !=")


def test_folders_of_the_coverage(tool):
    folder_of = tool("coverage").folder_of
    src = TOOLS.parent / "src"
    assert folder_of(str(src / "rows/kernels.cc")) == "rows"
    assert folder_of(str(src / "bindings/mluop/call.cc")) == "bindings/mluop"
    assert folder_of(str(src / "bindings/last_error.h")) == "bindings"
    for name in ["rows/test.cc", "sparse_conv/fuzz.cc", "sparse_conv/python.cc", "sparse_conv/reference.h"]:
        assert folder_of(str(src / name)) is None
    assert folder_of("/usr/include/hwy/highway.h") is None


def test_an_instruction_set_without_a_run_is_a_fault(tool, tmp_path, monkeypatch):
    sets = tool("instruction_sets")
    page = tmp_path / "page.md"
    monkeypatch.setattr(sets, "PAGE", page)
    names = sets.compiled()
    assert names[0] == "sse4" and "neon" in names
    rows = [f"| {name} | 2026-11-17 | HEAD | ./dev test | a CPU |" for name in names]

    def faults(lines):
        page.write_text("\n".join(["Text.", sets.MARKER.strip(), *sets.HEAD, *lines]) + "\n")
        return sets.faults()

    assert faults(rows) == []
    assert faults(rows[1:]) == ["sse4: no run is recorded"]
    assert faults([*rows, "| mmx | 2026-11-17 | HEAD | ./dev test | a CPU |"]) == [
        "mmx: not an instruction set"
    ]
    assert "the row is" in faults([rows[0].replace("2026-11-17", "lately"), *rows[1:]])[0]


def test_the_message_about_instruction_sets(tool):
    message = tool("instruction_sets").message
    everything = ["sse4", "avx2", "avx512", "avx512_dl", "avx512_bf16"]
    assert message(everything, []) == (
        "instruction sets: the tests ran sse4, avx2, avx512, avx512_dl, avx512_bf16; they did not run neon; "
        "run ./dev arm"
    )
    assert message(everything[:2], everything[2:]) == (
        "instruction sets: the tests ran sse4, avx2; they did not run avx512, avx512_dl, avx512_bf16, neon "
        "(this CPU lacks them); run ./dev arm and ./dev avx512"
    )


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("src/a.cc", "memory_is_out", ["memory_is_out"]),
        ("tests/a.cc", "x_is_no_array", ["is_no_array"]),
        ("README.md", "at most so_many bytes, which are_not_to_be_had", ["so_many", "are_not_to_be_had"]),
        ("docs/a.md", "one_SENTENCE", ["_SENTENCE"]),
        ("tests/a.cc", "one_sentence", []),
        ("src/a.cc", "x is not an array; there is no array; so many rows that it is slow; outdoors", []),
    ],
)
def test_wording(tool, name, text, found):
    """Underscores are spaces, so that the check does not find the phrases in this file."""
    lines = tool("wording").findings(name, "fine\n" + text.replace("_", " "))
    phrases = [phrase.replace("_", " ").strip() for phrase in found]
    assert [line.split(", write: ")[0] for line in lines] == [f"{name}:2: {phrase!r}" for phrase in phrases]
