"""Runs the shell command ``turnout`` as ``python -m turnout``."""

import sys

from turnout.cli import main

sys.exit(main())
