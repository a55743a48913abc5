"""The user documentation: its Python code runs, drawings and numbers are current, links lead to files.

tests/installed/run.sh compiles and runs the C and C++ programs of the same pages.
"""

import contextlib
import importlib.metadata
import importlib.util
import multiprocessing
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools/docs"))
import snippets

del sys.path[0]
ROOT = snippets.ROOT

# As in conftest.py, torch may be missing only if the run says so.
WITHOUT_TORCH = os.environ.get("TURNOUT_TEST_CORE") == "1" and importlib.util.find_spec("torch") is None
TORCH = [pytest.mark.torch, pytest.mark.skipif(WITHOUT_TORCH, reason="torch is not installed")]


def python_programs():
    programs = []
    for snippet in snippets.programs("python"):
        needs_torch = re.search(r"\btorch\b", snippet.code) is not None
        programs.append(pytest.param(snippet, id=snippet.name, marks=TORCH if needs_torch else []))
    return programs


def run(folder):
    """Runs program.py; writes stdout to the file output and stderr to errors."""
    os.chdir(folder)
    with (
        open("errors", "w") as file,
        open("output", "w") as output,
        contextlib.redirect_stderr(file),
        contextlib.redirect_stdout(output),
    ):
        try:
            runpy.run_path("program.py", run_name="__main__")
        except BaseException:
            import traceback

            traceback.print_exc(file=file)
            raise


@pytest.fixture(scope="module")
def processes():
    """Starts processes that have imported torch, because the import takes longer than most programs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numpy"] if WITHOUT_TORCH else ["numpy", "turnout.torch"])
    return context


def test_there_is_python_with_and_without_torch():
    marks = [bool(program.marks) for program in python_programs()]
    assert True in marks
    assert False in marks


@pytest.mark.parametrize("snippet", python_programs())
def test_python_runs(snippet, tmp_path, processes):
    """Runs as a program; if it begins with a torchrun command, in the processes that it starts."""
    (tmp_path / "program.py").write_text(snippet.code)
    if torchrun := re.match(r"# torchrun (--nproc_per_node=\d+) ", snippet.code):
        command = ["-m", "torch.distributed.run", "--standalone", torchrun[1], "program.py"]
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return
    process = processes.Process(target=run, args=(tmp_path,))
    process.start()
    process.join(120)
    if process.is_alive():
        process.kill()
    assert process.exitcode == 0, (tmp_path / "errors").read_text()
    if snippet.output is not None:
        assert (tmp_path / "output").read_text() == snippet.output


def test_a_program_that_fails_is_noticed(tmp_path, processes):
    (tmp_path / "program.py").write_text("assert 1 == 2")
    process = processes.Process(target=run, args=(tmp_path,))
    process.start()
    process.join(120)
    assert process.exitcode == 1
    assert "AssertionError" in (tmp_path / "errors").read_text()


def test_readme_examples_end_with_what_they_print():
    for language in "cpp", "python":
        found = snippets.snippets(Path("README.md"), language)
        assert found
        assert all(snippet.output for snippet in found)


def test_description_of_the_package_needs_no_file_of_the_repository():
    text = importlib.metadata.metadata("turnout")["Description"]
    assert "index-driven" in text
    assert re.findall(r"\]\((?!https?:)", text) == []


def without_code(page):
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """Returns the anchors of a page's headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [str(page) for page in snippets.pages()])
def test_links_lead_to_files_and_headings(page):
    page = ROOT / page
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", without_code(page)):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or file.suffix != ".md" or anchor in anchors(file), f"{target}#{anchor}"


@pytest.mark.parametrize("program", ["docs/figures.py", "speed.py"])
def test_generated_parts_are_current(program):
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / program, "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
