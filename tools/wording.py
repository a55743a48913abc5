"""Finds phrases that are not idiomatic English in the tracked text files: python tools/wording.py.

The list is short on purpose. Add a phrase only if it has misled readers and is almost always wrong.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A pattern, and what to write instead.
PHRASES = [
    (r"(?<!there )(is|are) no (array|tensor|list|number|integer|string|file|class)(e?s)?", "is not a ..."),
    (r"memory is out", "out of memory"),
    (r"so many(?! \w+ that)", "the number, or 'that many'"),
    (r"(is|are) (not )?to be had", "is available, cannot be converted"),
    (r"what there is to", "what must be, what can be"),
    (r"nothing but", "only"),
    (r"whoever", "say who: the caller, the thread"),
    (r"(has|have) not (\w+ )?(dimensions|elements|rows)", "does not have"),
]
IN_SOURCES = [(r"sentences?", "message"), (r"doors?", "binding, interface")]
SOURCES = ("src/", "include/", "python/", "docs/")
SKIPPED = re.compile(r"^(tools/wording\.py|requirements/.*|docs/images/.*)$|\.(png|svg|json|npz)$")


def findings(name: str, text: str) -> list[str]:
    """One line per phrase; name is the path within the repository."""
    phrases = PHRASES + IN_SOURCES * name.startswith(SOURCES)
    return [
        f"{name}:{number}: {match[0].strip()!r}, write: {instead}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, instead in phrases
        for match in re.finditer(rf"(?i)\b(?:{pattern})(?!\w)", line)
    ]


def main() -> int:
    names = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    kept = [name for name in names if not SKIPPED.search(name) and (ROOT / name).is_file()]
    found = [line for name in kept for line in findings(name, (ROOT / name).read_text(errors="replace"))]
    print("\n".join([*found, f"{len(kept)} files, {len(found)} phrases to reword"]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
