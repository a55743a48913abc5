"""Sphinx settings of the documentation; tools/docs/build.py gathers the pages and runs Sphinx."""

import importlib
import importlib.util
import inspect
import re
import typing
from pathlib import Path

import tables  # of tools/, which build.py puts on the path
from sphinx.pycode import ModuleAnalyzer

import turnout
from turnout import _core

project = "Turnout"
copyright = "the authors of Turnout"
version = release = turnout.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design"]
exclude_patterns = ["files"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
highlight_language = "none"

html_theme = "furo"
html_title = "Turnout"
html_static_path = ["static"]
html_css_files = ["turnout.css"]
html_favicon = "static/turnout.svg"
html_copy_source = False
html_show_sourcelink = False

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
maximum_signature_line_length = 90
cpp_maximum_signature_line_length = 90
python_display_short_literal_types = True


def _argument_tables() -> dict[str, list[dict]]:
    """What the functions of the Python package accept, by their names; voxelize has two forms."""
    found: dict[str, list[dict]] = {}
    for signature in _core.functions():
        found.setdefault(f"turnout.{signature['op']}", []).append(signature)
    return found


_TABLES = _argument_tables()

# What the reference shows in place of the names for type checkers. docs/reference/python.md explains Array.
_TYPES = {
    r"Source\[R\d?\]|R\d?": "Array",
    r"NumPyArray": "numpy.ndarray",
    r"torch\.Tensor": "Tensor",
    r"Ints": "int | Sequence[int]",
    r"Int": "int",
    r"Numbers": "Sequence[float] | Array",
}
_HAS_TORCH = importlib.util.find_spec("torch") is not None
for _module in ("turnout.typing", *(["turnout.torch.rnnt_loss"] if _HAS_TORCH else [])):
    for _name, _value in vars(importlib.import_module(_module)).items():
        if typing.get_origin(_value) is typing.Literal:
            _TYPES[_name] = f"Literal{list(typing.get_args(_value))}"


def _shorter(text):
    """An annotation or a whole signature; None stays None."""
    for name, shown in _TYPES.items():
        text = text and re.sub(rf"(?<![\w.'])(?:{name})(?![\w'])", shown, text)
    return text


def _short_types(app, what, name, obj, options, signature, returns) -> tuple[str | None, str | None]:
    return _shorter(signature), _shorter(returns)


def _short_overloads(app) -> None:
    """The signatures of overloaded functions, which autodoc reads from the sources."""
    package = Path(turnout.__file__).parent
    for path in package.rglob("*.py"):
        if "@overload" not in path.read_text():
            continue
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        if name.startswith(("turnout.torch", "turnout.compat")) and not _HAS_TORCH:
            continue
        analyzer = ModuleAnalyzer.for_module(name)
        analyzer.analyze()
        for signatures in analyzer.overloads.values():
            signatures[:] = [_with_short_types(signature) for signature in signatures]


def _with_short_types(signature: inspect.Signature) -> inspect.Signature:
    parameters = [p.replace(annotation=_shorter(p.annotation)) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=_shorter(signature.return_annotation))


def _add_table(app, what, name, obj, options, lines) -> None:
    """Appends the table of arguments, generated from the data that checks every call, to a docstring."""
    for signature in _TABLES.get(name, []):
        lines += ["", ".. list-table::", "   :header-rows: 1", ""]
        for row in tables.rows(signature, tables.PYTHON):
            cells = [re.sub(r"`([^`]*)`", r"``\1``", cell).strip() for cell in row]
            lines += [f"   {'*' if not number else ' '} - {cell}" for number, cell in enumerate(cells)]


def _list_results(app, what, name, obj, options, lines) -> None:
    """Makes a list of the results of a function that has several, which napoleon takes for one."""
    if "Returns:" not in lines:
        return
    start = lines.index("Returns:")
    end = next((i for i in range(start + 1, len(lines)) if re.match(r"\S", lines[i])), len(lines))
    body = [line[4:] for line in lines[start + 1 : end]]
    if not any(re.match(r"\w+: ", line) for line in body):
        return
    items = [re.sub(r"^(\w+): ", r"* ``\1``: ", line) for line in body]
    for i in range(len(items) - 1, 0, -1):  # a list and a paragraph are apart
        if re.match(r"\w", items[i]) and items[i - 1].startswith("* "):
            items.insert(i, "")
    lines[start:end] = [".. rubric:: Returns", "", *items, ""]


def setup(app) -> None:
    app.connect("autodoc-process-docstring", _list_results, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", _add_table)
    app.connect("autodoc-process-signature", _short_types)
    app.connect("builder-inited", _short_overloads)
