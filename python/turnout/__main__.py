"""``python -m turnout`` is the shell command ``turnout``."""

import sys

from turnout.cli import main

sys.exit(main())
